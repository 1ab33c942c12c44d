"""What a poll reads of a real Prometheus with service graphs: virtual nodes, and names of any alphabet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from model.names import readable
from model.snapshot import MeshSnapshot
from serve_app.doctor.telemetry import _find_folded_names
from tests.live.counters import Counter, histogram, poll_counters
from tests.live.polls import rates_of_calls, value_of
from tests.live.programs import needs

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]

VIRTUAL = "virtual_node"
METRIC = "traces_service_graph_request"
SLOW, FAST = 80.0, 8.0  # ms
NAMES = [
    "订单服务",
    "支付服务",
    "zażółć",
    "bank gateway",
    "bank/gateway",
    "bank_gateway",
    "bank@gateway",
    "a/b c",
    'x"y\\z',
]


def edge(
    client: str, server: str, rate: float, kind: str = "", *, failures: float = 0.0, **more: str
) -> Iterator[Counter]:
    """Yield the series of one call. A virtual node has no durations: the connector counts zeros for it."""
    labels = {"client": client, "server": server, "connection_type": kind, **more}
    yield Counter(f"{METRIC}_total", labels, rate)
    yield Counter(f"{METRIC}_failed_total", labels, failures)
    no_client = kind == VIRTUAL and (more.get(VIRTUAL) == "client" or (VIRTUAL not in more and client == "user"))
    no_server = kind == VIRTUAL and not no_client
    yield from histogram(f"{METRIC}_client_seconds_bucket", labels, rate, 0 if no_client else SLOW, 1e-3)
    yield from histogram(f"{METRIC}_server_seconds_bucket", labels, rate, 0 if no_server else FAST, 1e-3)


EDGES = [
    # A virtual client beside a real service of its name, which calls a virtual server too.
    *edge("user", "front-end", 50, VIRTUAL, failures=25),
    *edge("front-end", "user", 20),
    *edge("user", "user-db", 25, "database"),
    *edge("user", "front-end", 2),
    *edge("user", "audit.example.com", 3, VIRTUAL, virtual_node="server"),
    # Uninstrumented callees: named, and not.
    *edge("front-end", "payments.example.com", 10, VIRTUAL, failures=1),
    *edge("front-end", "unknown", 7, VIRTUAL),
    *edge("unknown", "user", 4),
    # One pair in several ways: a span of some calls is lost, and some go through a queue.
    *edge("front-end", "orders", 30),
    *edge("front-end", "orders", 6, VIRTUAL),
    *edge("front-end", "orders", 4, "messaging_system"),
    *edge("ingress", "orders", 9, VIRTUAL, virtual_node="client"),
    # Beyla sets the connection type of calls between services too.
    *edge("mobile", "orders", 5, VIRTUAL, source="beyla"),
    *(one for name in NAMES for one in edge("front-end", name, 1 + NAMES.index(name))),
]


@pytest.fixture(scope="module", params=[False, True], ids=["counters", "rules"])
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MeshSnapshot:
    poll = poll_counters(EDGES, tmp_path_factory.mktemp("graph"), "opentelemetry", recorded=request.param)
    assert poll.snapshot is not None
    return poll.snapshot


def test_the_connection_type_tells_virtual_nodes_from_services(mesh: MeshSnapshot) -> None:
    found = {tuple(one.removeprefix("default/") for one in ends): rate for ends, rate in rates_of_calls(mesh).items()}
    assert {ends: rate for ends, rate in found.items() if readable(ends[1]) not in NAMES} == {
        ("front-end", "user"): 20,
        ("user", "user-db"): 25,
        ("user", "front-end"): 2,
        ("user", "audit.example.com"): 3,
        ("front-end", "payments.example.com"): 10,
        ("unknown", "user"): 4,
        ("front-end", "orders"): 40,
        ("mobile", "orders"): 5,
    }
    assert "default/ingress" not in mesh.node_ids, "it is outside of the mesh"


@pytest.mark.parametrize(
    ("service", "requests", "errors", "p50"),
    [
        ("front-end", 52, 25 / 52, FAST),  # with the requests from outside
        ("payments.example.com", 10, 0.1, SLOW),  # measured by its callers only
        ("user", 24, 0, FAST),
        ("orders", 54, 0, FAST),  # the zeros of its virtual node do not count
    ],
)
def test_a_service_has_the_values_of_the_side_that_measures(
    mesh: MeshSnapshot, service: str, requests: float, errors: float, p50: float
) -> None:
    bounds = {FAST: (0.005, 0.01), SLOW: (0.05, 0.1)}[p50]
    assert value_of(mesh, f"default/{service}", "request_rate") == pytest.approx(requests)
    assert value_of(mesh, f"default/{service}", "error_rate") == pytest.approx(errors)
    latency = value_of(mesh, f"default/{service}", "p50_latency")
    assert latency is not None
    assert bounds[0] <= latency <= bounds[1]


def test_names_of_any_alphabet_stay_and_never_become_one(mesh: MeshSnapshot) -> None:
    found = {readable(b): rate for (_, b), rate in rates_of_calls(mesh).items() if rate == int(rate)}
    assert {name: found[f"default/{name}"] for name in NAMES} == {name: 1 + i for i, name in enumerate(NAMES)}


def test_an_old_version_without_connection_types_is_read_by_names(tmp_path: Path) -> None:
    edges = [*edge("user", "web", 10), *edge("unknown", "web", 2), *edge("web", "cart", 5)]
    poll = poll_counters(edges, tmp_path, "opentelemetry")
    assert poll.snapshot is not None
    assert rates_of_calls(poll.snapshot) == {("default/web", "default/cart"): 5}
    assert value_of(poll.snapshot, "default/web", "request_rate") == pytest.approx(12)


def test_a_callee_is_a_service_in_an_old_version_too(tmp_path: Path) -> None:
    edges = [*edge("web", "user", 10), *edge("user", "db", 5), *edge("unknown", "web", 2)]
    poll = poll_counters(edges, tmp_path, "opentelemetry")
    assert poll.snapshot is not None
    assert rates_of_calls(poll.snapshot) == {("default/web", "default/user"): 10, ("default/user", "default/db"): 5}


def test_visitors_are_one_outside_and_the_doctor_names_them(tmp_path: Path) -> None:
    edges = [
        *(one for i in range(30) for one in edge(f"203.0.113.{i}", "web", 1, VIRTUAL, source="beyla")),
        *edge("web", "cart-7d9f8b6c5d-x7k2p", 4),
        *edge("web", "cart", 1),
        *(one for i in range(3) for one in edge("web", f"10.42.7.{i}", 2, VIRTUAL, source="beyla", failures=1)),
    ]
    poll = poll_counters(edges, tmp_path, "opentelemetry")
    assert poll.snapshot is not None
    assert rates_of_calls(poll.snapshot) == {
        ("default/web", "default/cart"): 5,
        ("default/web", "external/addresses"): 6,
    }
    assert value_of(poll.snapshot, "default/web", "request_rate") == pytest.approx(30)
    assert value_of(poll.snapshot, "external/addresses", "error_rate") == pytest.approx(0.5)
    addresses, pods = (one.found for one in _find_folded_names(poll))
    assert addresses.startswith("addresses: ")
    assert "and 30 more" in addresses
    assert pods.startswith("pods: cart-7d9f8b6c5d-x7k2p;")
