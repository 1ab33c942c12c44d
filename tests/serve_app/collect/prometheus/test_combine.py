"""Several sources of one mesh: whose measurement counts, and services that two sources name differently."""

from collections.abc import Mapping

import pytest

from serve_app.collect.prometheus.combine import MeshRows, combine, level_of, split_level
from serve_app.collect.prometheus.detect import configured_dialect
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.keys import Column, Key, KeyTable
from serve_app.collect.prometheus.query import Dialect, Query
from serve_app.settings import MeshSettings

Values = dict[Key, float]


def dialect(name: str, **more: object) -> Dialect:
    query = Query(name, ("namespace", "name"))
    return Dialect(name, {"requests": query, "buckets": query}, {"requests": query}, (), **more)  # type: ignore[arg-type]


MESH, DOOR, SPANS = dialect("mesh"), dialect("door", front_door=True), dialect("spans", default_namespace="default")


class Sources:
    """The columns of one poll, by dialect."""

    def __init__(self) -> None:
        self.levels: dict[str, dict[str, Column]] = {}
        self.keys = KeyTable()

    def add(self, part: str, services: Mapping[str, Values], calls: Mapping[str, Values]) -> "Sources":
        for level, given in (("services", services), ("calls", calls)):
            columns = self.levels.setdefault(f"{level}@{part}" if part else level, {})
            columns |= {role: Column.of(values, self.keys) for role, values in given.items()}
        return self


def united(combined: Dialect, sources: Sources) -> tuple[dict[str, Column], dict[str, Column]]:
    return MeshRows(combined).read(sources.levels)


WEB, CART, INGRESS = ("shop", "web"), ("shop", "cart"), ("edge", "ingress-controller")


def test_ingress_controllers_count_last_whatever_the_order() -> None:
    for order in ([DOOR, MESH, SPANS], [MESH, SPANS, DOOR], [MESH, DOOR, SPANS]):
        combined = combine(order)
        assert [combined.name, *(one.name for one in combined.beside)] == ["mesh", "spans", "door"]
    assert combine([SPANS, MESH]).name == "spans"
    assert combine([DOOR]) is DOOR


def test_levels_name_the_dialect_beside_the_first() -> None:
    combined = combine([MESH, DOOR])
    levels = [level_of("calls", combined, part) for part in (combined, *combined.beside)]
    assert levels == ["calls", "calls@door"]
    assert [split_level(one) for one in levels] == [("calls", ""), ("calls", "door")]


@pytest.mark.parametrize("rate", [7.0, 0.0, 40.0])
def test_a_mesh_measures_its_services_and_calls(rate: float) -> None:
    """The controller is in the mesh, too. Only it sees the requests that it answers itself."""
    sources = Sources()
    sources.add("", {"requests": {WEB: 30, INGRESS: 28}}, {"requests": {(*INGRESS, *WEB): 28}})
    sources.add("door", {"requests": {WEB: rate, INGRESS: 35}}, {"requests": {(*INGRESS, *WEB): rate}})
    services, calls = united(combine([MESH, DOOR]), sources)
    assert services["requests"] == {WEB: 30, INGRESS: 28}
    assert calls["requests"] == {(*INGRESS, *WEB): 28}


def test_failures_belong_to_the_requests_of_their_source() -> None:
    sources = Sources()
    sources.add("", {"requests": {WEB: 30}, "failures": {}}, {"requests": {}})
    sources.add("spans", {"requests": {WEB: 10, CART: 5}, "failures": {WEB: 9, CART: 1}}, {"requests": {}})
    services, _ = united(combine([MESH, SPANS]), sources)
    assert services["requests"] == {WEB: 30, CART: 5}
    assert services["failures"] == {CART: 1}


def test_latencies_that_a_source_lacks_come_from_the_other() -> None:
    sources = Sources()
    sources.add("", {"requests": {WEB: 30, CART: 20}, "p99": {CART: 0.2}}, {"requests": {}})
    sources.add("spans", {"requests": {WEB: 30, CART: 20}, "p99": {WEB: 0.4, CART: 0.9}}, {"requests": {}})
    services, _ = united(combine([MESH, SPANS]), sources)
    assert services["p99"] == {WEB: 0.4, CART: 0.2}


def test_a_source_that_sees_no_requests_gives_way() -> None:
    sources = Sources()
    sources.add("", {"requests": {WEB: 0, CART: 0}}, {"requests": {}})
    sources.add("spans", {"requests": {WEB: 12, CART: 0}}, {"requests": {}})
    assert united(combine([MESH, SPANS]), sources)[0]["requests"] == {WEB: 12, CART: 0}


def test_a_dead_service_has_the_requests_of_all_callers() -> None:
    """So the controller's view of it is no measurement of the service itself."""
    sources = Sources()
    sources.add("", {"requests": {WEB: 30}}, {"requests": {(*WEB, *CART): 9}})
    sources.add("door", {"requests": {INGRESS: 3, CART: 3}}, {"requests": {(*INGRESS, *CART): 3}})
    services, calls = united(combine([MESH, DOOR]), sources)
    assert services["requests"] == {WEB: 30, INGRESS: 3}
    assert calls["requests"] == {(*WEB, *CART): 9, (*INGRESS, *CART): 3}


@pytest.mark.parametrize(
    ("own", "known", "name"),
    [
        (("edge", "ingress-controller"), ("edge", "ingress"), ("edge", "ingress")),  # canonical name and workload
        (("edge", "ingress"), ("edge", "ingress-controller"), ("edge", "ingress-controller")),
        (("edge", "ingress"), ("other", "ingress"), ("edge", "ingress")),
        (("edge", "ingress"), ("edge", "ingressive"), ("edge", "ingress")),
    ],
)
def test_a_controller_within_the_mesh_has_its_name_there(own: Key, known: Key, name: Key) -> None:
    sources = Sources()
    sources.add("", {"requests": {WEB: 30}}, {"requests": {(*known, *CART): 4}})
    sources.add("door", {"requests": {own: 30}}, {"requests": {(*own, *WEB): 30}})
    services, calls = united(combine([MESH, DOOR]), sources)
    assert services["requests"] == {WEB: 30, name: 30}
    assert (*name, *WEB) in calls["requests"]


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({("shop", "cart"): 1}, ("shop", "cart")),
        ({("shop", "cart"): 1, ("bank", "cart"): 1}, ("default", "cart")),  # it may be either
        ({("shop", "cart-api"): 1}, ("default", "cart")),
        ({("default", "cart"): 1, ("shop", "cart"): 1}, ("default", "cart")),
    ],
)
def test_a_service_without_a_namespace_is_the_only_one_of_its_name(known: Values, name: Key) -> None:
    sources = Sources()
    sources.add("", {"requests": known}, {"requests": {}})
    sources.add("spans", {"requests": {("default", "cart"): 5}}, {"requests": {("default", "cart", *WEB): 5}})
    services, calls = united(combine([MESH, SPANS]), sources)
    assert set(services["requests"]) == {*known, name}
    assert list(calls["requests"]) == [(*name, *WEB)]


def test_the_first_source_names_the_namespace() -> None:
    sources = Sources()
    sources.add("", {"requests": {("default", "cart"): 5}}, {"requests": {}})
    sources.add("mesh", {"requests": {("shop", "cart"): 5, ("shop", "web"): 1}}, {"requests": {}})
    assert set(united(combine([SPANS, MESH]), sources)[0]["requests"]) == {("default", "cart"), ("shop", "web")}


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({("my-shop", "cart"): 1}, ("my-shop", "cart")),
        ({("my-shop", "cart"): 1, ("my-shop-cart", "api"): 1}, ("my-shop", "cart")),
        ({("other", "shop-cart"): 1}, ("my", "shop-cart")),
    ],
)
def test_a_joined_name_is_split_where_the_mesh_splits_it(known: Values, name: Key) -> None:
    traefik = dialect("traefik", front_door=True, joined_names=True)
    own = ("my", "shop-cart")
    sources = Sources()
    sources.add("", {"requests": known}, {"requests": {}})
    sources.add("traefik", {"requests": {INGRESS: 5, own: 5}}, {"requests": {(*INGRESS, *own): 5}})
    services, calls = united(combine([MESH, traefik]), sources)
    assert set(services["requests"]) == {*known, INGRESS}
    assert list(calls["requests"]) == [(*INGRESS, *name)]


def test_names_stay_when_a_service_is_silent() -> None:
    rows = MeshRows(combine([MESH, SPANS]))
    seen = []
    known: Values = {CART: 20.0}
    silent: Values = {}
    sources = Sources()
    for requests in (known, silent, known):
        sources.levels = {}
        sources.add("", {"requests": requests}, {"requests": {}})
        sources.add("spans", {"requests": {("default", "cart"): 5}}, {"requests": {}})
        seen.append(tuple(rows.read(sources.levels)[0]["requests"]))
    assert seen == [(CART,)] * 3
    after = MeshRows(combine([MESH, SPANS]))
    after.follow(rows)  # as when the labels of the columns are forgotten
    sources.levels, sources.keys = {}, KeyTable()
    sources.add("", {"requests": silent}, {"requests": {}})
    sources.add("spans", {"requests": {("default", "cart"): 5}}, {"requests": {}})
    assert tuple(after.read(sources.levels)[0]["requests"]) == (CART,)


def test_callers_that_are_no_services_of_one_source_are_services_of_another() -> None:
    door = dialect("door", front_door=True, external=frozenset({"user"}))
    user = ("shop", "user")
    sources = Sources()
    sources.add("", {"requests": {WEB: 1, user: 1}}, {"requests": {(*user, *WEB): 1}})
    sources.add("door", {"requests": {}}, {"requests": {("edge", "user", *WEB): 9}})
    assert united(combine([MESH, door]), sources)[1]["requests"] == {(*user, *WEB): 1}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("istio", ["istio"]),
        (["nginx-ingress", "istio"], ["istio", "nginx-ingress"]),
        (["traefik", "linkerd", "nginx-ingress"], ["linkerd", "traefik", "nginx-ingress"]),
        (["opentelemetry", "span-metrics"], ["opentelemetry", "span-metrics"]),
        (["generic", "traefik"], ["generic", "traefik"]),
    ],
)
def test_the_settings_name_one_source_or_several(source: str | list[str], names: list[str]) -> None:
    queries = {"services": {"requests": "s"}, "calls": {"requests": "c"}}
    given = {
        "prometheus": "http://127.0.0.1:9090",
        "source": source,
        "generic": queries if "generic" in source else None,
    }
    combined = configured_dialect(MeshSettings.model_validate(given))
    assert combined is not None
    assert [combined.name, *(one.name for one in combined.beside)] == names


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], "expected at least one"),
        (["istio", "istio"], "expected each once"),
        (["auto", "istio"], 'expected "auto" alone'),
        (["istio", "istio-ambient"], "got both"),
        (["istio", "nginx"], "got 'nginx'"),
        ("consull", "got 'consull'"),
        (7, "got 7"),
    ],
)
def test_sources_that_do_not_fit_are_refused(source: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MeshSettings.model_validate({"prometheus": "http://127.0.0.1:9090", "source": source})


def test_every_known_source_can_be_set() -> None:
    for name in KNOWN:
        mesh = MeshSettings.model_validate({"prometheus": "http://127.0.0.1:9090", "source": name})
        assert configured_dialect(mesh) is KNOWN[name]
    assert configured_dialect(MeshSettings(prometheus="http://127.0.0.1:9090")) is None
