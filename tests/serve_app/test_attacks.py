"""More than 800 hostile requests, over every route and form: each is refused with a problem document, nothing stored
changes, and the ingress does not grow out of proportion.

Inputs are made by rule: route, form, field, kind of damage. The longest answer is printed, not asserted.
"""

import json
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import psutil
import pyarrow as pa
import pytest

from serve_app.api.codec import ARROW, JSON, MESSAGEPACK, decode_snapshot
from tests.serve_app.bodies import FACTOR, JSONS, PACKED, SPARE
from tests.serve_app.running import Service, push, read_store

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

MESH = "attacked"
BASE = f"/v1/meshes/{MESH}"
PUSH, BASELINE, SCORE = f"{BASE}/snapshots", f"{BASE}/baseline", "/v1/score"
FEEDBACK, MUTES, ROLLBACK = f"{BASE}/feedback", f"{BASE}/mutes", f"{BASE}/adapter/rollback"
REFUSED = range(400, 500)
# ruff: noqa: E501
sent: list[tuple[float, str]] = []  # seconds and name of every attack


def document(minute: int = 30) -> dict[str, Any]:
    return {
        "observed_at": f"2026-03-01T03:{minute:02}:00Z",
        "services": [
            {"namespace": "shop", "name": "web", "metrics": {"request_rate": 90.0, "error_rate": 0.01}},
            {"namespace": "shop", "name": "cart", "metrics": {"request_rate": 40.0, "p99_latency": 0.2}},
        ],
        "calls": [{"source": "shop/web", "destination": "shop/cart", "requests_per_second": 40.0, "error_rate": 0.0}],
        "changes": [{"kind": "deploy", "service": "shop/cart", "reason": "v2"}],
        "policies": [{"service": "shop/cart", "sensitivity": "low", "mute": "moved"}],
    }


def columns(rows: dict[str, Any]) -> dict[str, Any]:
    """The document turned, as far as it has rows."""

    def turn(some: Any) -> Any:
        if not isinstance(some, list) or not all(isinstance(row, dict) for row in some):
            return some
        return {name: [row.get(name) for row in some] for name in dict.fromkeys(n for row in some for n in row)}

    turned = {**rows, "services": turn(rows.get("services")), "calls": turn(rows.get("calls"))}
    if isinstance(turned["services"], dict) and "metrics" in turned["services"]:
        metrics = [one or {} for one in turned["services"]["metrics"]]
        turned["services"]["metrics"] = turn(metrics)
    return {name: value for name, value in turned.items() if name in rows}


def arrow(documents: list[Any]) -> bytes:
    names = list(dict.fromkeys(name for one in documents for name in one))
    table = pa.table({name: [one.get(name) for one in documents] for name in names})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


FORMS: dict[str, tuple[str, Callable[[list[Any]], bytes], Callable[[list[Any]], bytes]]] = {
    "JSON rows": (JSON, lambda d: as_json(d[-1]), lambda d: as_json({"snapshots": d})),
    "JSON columns": (JSON, lambda d: as_json(columns(d[-1])), lambda d: as_json({"snapshots": [*map(columns, d)]})),
    "MessagePack rows": (
        MESSAGEPACK, lambda d: msgspec.msgpack.encode(d[-1]), lambda d: msgspec.msgpack.encode({"snapshots": d})),
    "MessagePack columns": (
        MESSAGEPACK,
        lambda d: msgspec.msgpack.encode(columns(d[-1])),
        lambda d: msgspec.msgpack.encode({"snapshots": [*map(columns, d)]}),
    ),
    "Arrow": (ARROW, lambda d: arrow(d[-1:]), arrow),
}  # fmt: skip
NUMBERS = [
    "text",
    "1",
    True,
    [],
    {},
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    -1e-300,
    1.1e15,
    2e15,
    1e39,
    1e300,
    2**63,
]
NAMES = [
    "", " ", "\t", "a b", "a\nb", "a\x00b", "a\x1b[2J", "a\x7f", "a\r", "\u00e9", "\u200b", "\u202eb", "\U0001f600", "x" * 254,
    "x" * 10**6, "-a", "a-", ".", "..", "a//b", "/a", "a/", "a<b>", "a'b", 'a"b', "a\\b", "a;b", "$(a)", "a%00", "\ud800", 7, True, [], {},
]  # fmt: skip
TIMES = [
    "", "now", "2026-03-01", "2026-03-01T03:30:00", "2026-02-30T00:00:00Z", "2026-03-01T24:00:00Z", "2026-03-01T03:30:61Z",
    "2026-03-01T03:30:00+24:00", "2026-03-01T03:30:00 Europe/Berlin", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59", "99999-01-01T00:00:00Z", "-2026-03-01T03:30:00Z", "1767225600", 1767225600, 1e300, True, None,
    [], {}, "2026-03-01T03:30:00Z\n", "\u0662026-03-01T03:30:00Z", "2026-03-01T03:30:00.Z", "x" * 10**5,
]  # fmt: skip
TEXTS = ["a\x00", "a\x1b[2J", "a\nb", "a\u2028b", "a\u202eb", "\ud800", "x" * 10**4, 7, True, [], {}]
LISTS = ["text", 7, True, {"a": 1}, [7], ["text"], [[]], [None]]
VALUES: list[tuple[tuple[Any, ...], list[Any]]] = [
    (("observed_at",), [v for v in TIMES if v is not None]),
    (("version",), [0, 2, -1, True, False, 1.0, "1", [], {}, 10**30]),
    (("services", 0, "namespace"), [*NAMES, "a/b"]),
    (("services", 1, "name"), NAMES),
    (("services", 0, "metrics", "request_rate"), NUMBERS),
    (("services", 0, "metrics", "error_rate"), [*NUMBERS, 1.0001]),
    (("services", 1, "metrics", "p99_latency"), NUMBERS),
    (("services", 0, "metrics"), ["text", 7, True, [], [1], {"luck": 1.0}, {"": 1.0}]),
    (("services", 0), ["text", 7, True, [], {}, {"namespace": "a"}, {"namespace": "a", "name": "b", "zone": 1}]),
    (("services",), [*LISTS, [], {}]),
    (("calls", 0, "source"), [*NAMES, "shop/nobody", "shop", 2, -1]),
    (("calls", 0, "destination"), [*NAMES, "shop/nobody"]),
    (("calls", 0, "requests_per_second"), NUMBERS),
    (("calls", 0, "error_rate"), [*NUMBERS, 1.0001]),
    (("calls",), LISTS),
    (("changes", 0, "kind"), [*TEXTS, "", " "]),
    (("changes", 0, "service"), [*NAMES, "cart", "shop/", "/cart", "shop/*"]),
    (("changes", 0, "reason"), TEXTS),
    (("changes",), [*LISTS, [{"kind": "deploy", "service": "shop/cart"}] * 1001]),
    (("policies", 0, "service"), [*NAMES, "cart", "*", "shop/*x", "*/cart"]),
    (("policies", 0, "sensitivity"), ["loud", "", 7, True, []]),
    (("policies", 0, "mute"), TEXTS),
    (("policies",), LISTS),
    (("nonsense",), [1, "text", {"a": 1}]),
]  # fmt: skip
REPEATED = [
    b'{"observed_at":"2026-03-01T03:30:00Z",%s' % rest
    for rest in (
        b'"observed_at":"2026-03-01T03:30:00Z","services":[{"namespace":"a","name":"b"}]}',
        b'"services":[{"namespace":"a","name":"b"}],"services":[{"namespace":"a","name":"b"}]}',
        b'"services":[{"namespace":"a","name":"b","name":"b"}]}',
        b'"services":[{"namespace":"a","name":"b","n\\u0061me":"b"}]}',
        b'"services":[{"namespace":"a","name":"b","metrics":{"request_rate":1,"request_rate":1}}]}',
        b'"services":[{"namespace":"a","name":"b","metrics":null,"metrics":null}]}',
        b'"services":{"namespace":["a"],"name":["b"],"name":["b"]}}',
        b'"services":{"namespace":["a:b"],"name":["b"],"metrics":{"error_rate":[1],"error_rate":null}}}',
        b'"services":[{"namespace":"a","name":"b"}],"version":1,"version":1}',
        b'"services":[{"namespace":"a","name":"b"}],"changes":[{"kind":"a","kind":"a","service":"a/b"}]}',
        b'"services":[{"namespace":"a","name":"b"}],"policies":[{"service":"a/b","mute":"","mute":""}]}',
        b'"services":[{"namespace":"a","name":"b"}],"calls":[],"calls":[]}',
        b'"services":[{"namespace":"a","name":"b"}],"calls":[{"source":"a/b","destination":"a/b","requests_per_second":1,'
        b'"requests_per_second":1}]}',
    )
]  # fmt: skip
GOOD = as_json(document())
TEXT_DAMAGE = [
    b"", b" ", b"null", b"true", b"7", b'"text"', b"[]", b"{}", b"NaN", b"[" * 10**5, b'{"a":' * 10**5, b"\xef\xbb\xbf" + GOOD,
    GOOD[:-1], GOOD[1:], GOOD + b"}", GOOD + GOOD, GOOD + b",", GOOD.replace(b'"', b"'"), GOOD.replace(b":", b"="), b"//" + GOOD,
    GOOD.replace(b"}]", b"},]"), GOOD.decode().encode("utf-16"), GOOD.replace(b"web", b"\xff\xfe"), GOOD.replace(b"90.0", b"0x5A"),
    GOOD.replace(b"90.0", b"090"), GOOD.replace(b"90.0", b"1e"), GOOD.replace(b"90.0", b"1" * 5000), GOOD.replace(b"90.0", b"1e999999"),
    GOOD.replace(b"90.0", b"+90"), GOOD.replace(b"90.0", b".5"), GOOD.replace(b"90.0", b"-Infinity"), GOOD.replace(b"90.0", b"9" * 10**6),
    GOOD.replace(b"v2", b"\\ud800"), GOOD.replace(b"v2", b"\\udc00\\ud800"), GOOD.replace(b"web", b"\\u0000"), GOOD.replace(b"v2", b"\x00"),
    GOOD.replace(b"v2", b"\n"), GOOD.replace(b"moved", b"\\u001b"), GOOD.replace(b"web", b"\xed\xa0\x80"), GOOD.replace(b"v2", b"\xc0\x80"),
    b"PK\x03\x04" + b"\x00" * 100, b"\x1f\x8b" + b"\x00" * 100, b"<snapshot/>", b"observed_at=2026", *REPEATED,
]  # fmt: skip
PACKED_GOOD = msgspec.msgpack.encode(document())
PACKED_DAMAGE = [
    b"", b"\xc1", b"\xc0", b"\x80", b"\x90", b"\x01", PACKED_GOOD[:-1], PACKED_GOOD[1:], PACKED_GOOD + b"\x00", PACKED_GOOD * 2, GOOD,
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 10**5, b"\x81\xa1a" * 10**4,
    b"\xc7\xff\x05", b"\xd4\xff\x00", PACKED_GOOD.replace(b"\xa3web", b"\xa3\xed\xa0\x80"), PACKED_GOOD.replace(b"\xa2v2", b"\xa2\xff\xfe"),
    PACKED_GOOD.replace(b"\xa7changes", b"\xa7changed"),
    PACKED_GOOD.replace(b"\xa4name", b"\x01", 1), PACKED_GOOD.replace(b"\xa4kind", b"\xc0"),
    bytes([PACKED_GOOD[0] + 1]) + PACKED_GOOD[1:] + b"\xa7changes\x90",
    b"\x82" + msgspec.msgpack.encode("observed_at") + b"\xd6\xff" + struct.pack(">I", 1) + msgspec.msgpack.encode("services") + b"\x90",
    msgspec.msgpack.encode(document() | {"services": {"namespace": ["a"], "name": ["b"], "metrics": {"request_rate": b"123"}}, "calls": []}),
    msgspec.msgpack.encode(document() | {"calls": {"source": b"\xff\xff\xff\xff", "destination": b"\0\0\0\0", "requests_per_second": [1]}}),
    msgspec.msgpack.encode(document() | {"calls": {"source": [0], "destination": [1], "requests_per_second": struct.pack("<f", float("inf"))}}),
]  # fmt: skip
ARROW_GOOD = arrow([document()])
ARROW_DAMAGE = [
    b"", b"ARROW1", ARROW_GOOD[:-9][:100], ARROW_GOOD[8:], GOOD, PACKED_GOOD, b"\xff" * 1000, ARROW_GOOD.replace(b"services", b"servicez"),
    ARROW_GOOD.replace(b"web", b"\xff\xfe\xfd"), arrow([document(), document(31)])[:-200],
]  # fmt: skip
CALL = {"source": "shop/web", "destination": "shop/cart", "requests_per_second": 1.0}
WHOLE: list[Callable[[dict[str, Any]], Any]] = [
    lambda d: d | {"services": d["services"] * 2},
    lambda d: d | {"calls": d["calls"] * 2},
    lambda d: d | {"calls": [{"source": "shop/web", "destination": "shop/cart"}]},
    lambda d: d | {"calls": [{"destination": "shop/cart", "requests_per_second": 1.0}]},
    lambda d: d | {"calls": [CALL | {"nonsense": 1}]},
    lambda d: {k: v for k, v in d.items() if k != "observed_at"},
    lambda d: {k: v for k, v in d.items() if k != "services"},
    lambda d: d | {"services": [{"namespace": "n", "name": f"s{i}"} for i in range(501)], "calls": []},
    lambda d: d | {f"unknown{i}": 1 for i in range(5000)},
]
ACTIONS: dict[str, tuple[str, dict[str, Any], list[tuple[str, list[Any]]]]] = {
    "feedback": (
        FEEDBACK,
        {"incident": "20260301T031200Z-1f3870be", "was_incident": True, "culprit": "shop/cart", "note": "n"},
        [
            ("incident", [*TEXTS, "", "nobody's", None]),
            ("was_incident", ["true", 1, 0, None, [], {}, "yes"]),
            ("culprit", [*NAMES, "shop/nobody", "shop/*"]),
            ("note", ["a\x00", "a\x1b", "\ud800", "x" * 1001, 7, None, [], {}]),
            ("nonsense", [1, None]),
            ("since", ["2026-03-01T03:01:00Z"]),
        ],
    ),
    "missed": (
        FEEDBACK,
        {"services": ["shop/cart"], "since": "2026-03-01T03:01:00Z", "until": "2026-03-01T03:02:00Z"},
        [
            ("services", [*([name] for name in NAMES), [], "shop/cart", 7, {}, ["shop/nobody"], ["shop/cart"] * 1001, None, [None]]),
            ("since", TIMES),
            ("since", ["2026-03-01T03:03:00Z", "2026-12-01T00:00:00Z"]),
            ("until", [v for v in TIMES if v is not None] + ["2026-03-01T03:00:00Z", "9999-12-31T23:59:59Z"]),
            ("culprit", [*NAMES, "shop/nobody"]),
            ("was_incident", [True]),
        ],
    ),
    "mute": (
        MUTES,
        {"services": ["shop/cart"], "start": "2026-03-02T00:00:00Z", "end": "2026-03-02T01:00:00Z", "reason": "r"},
        [
            ("services", [*([name] for name in NAMES), [], "shop/cart", 7, {}, ["shop/nobody"], ["nobody/*"], ["*"], ["shop/cart"] * 1001]),
            ("start", [v for v in TIMES if v is not None] + ["2026-03-02T02:00:00Z", "0001-01-01T00:00:00Z"]),
            ("end", [*TIMES, "2026-03-01T23:00:00Z", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-03-02T00:00:00Z"]),
            ("reason", [*TEXTS, "", " ", "\u2003", None]),
            ("nonsense", [1]),
        ],
    ),
}  # fmt: skip
ODD = [
    "%00",
    "..",
    "%2e%2e",
    "%2f",
    "a%0Ab",
    "%ED%A0%80",
    "%ff",
    "%F0%9F%98%80",
    "x" * 5000,
    "A",
    "-",
    "a%20b",
    "%25",
    "a;b",
    "%E2%80%AE",
]
READS = ["verdict", "verdicts", "incidents", "plan", "graph", "source", "feedback", "mutes", "adapter", "timeline", "map", "report",
         "verdicts/stream", "series?service=a%2Fb"]  # fmt: skip
BAD_TIMES = [
    "",
    "now",
    "1767225600",
    "2026-03-01",
    "2026-03-01T03:00:00",
    "%00",
    "2026-02-30T00:00:00Z",
    "x" * 3000,
    "NaN",
]
BAD_TEXTS = ["%00", "a%0Ab", "%1b%5B2J", "x" * 5000, "%E2%80%AE"]
QUERIES = [
    *((path, f"{name}={value}") for path, name in (
        ("verdict", "at"), ("graph", "at"), ("map", "at"), ("verdicts", "since"), ("timeline", "since"), ("verdicts/stream", "since"),
        ("comparison", "first_to=2026-03-01T03:00:00Z&second_from=2026-03-01T03:00:00Z&second_to=2026-03-01T03:00:00Z&first_from"),
    ) for value in BAD_TIMES),
    *((path, f"limit={value}") for path in ("verdicts", "timeline") for value in ("0", "-1", "1.5", "x", "", "1e3", "9" * 5000, "10001", "NaN")),
    *((path, f"{name}={value}") for path, name in (("map", "expand"), ("series", "service"), ("report", "incident"),
                                                   ("series", "service=shop%2Fcart&source")) for value in BAD_TEXTS),
    ("series", ""), ("series", "service="), ("report", "incident="), ("series", "service=shop%2Fnobody"), ("report", "incident=nobody"),
    ("plan", "members=2"), ("plan", "members="), ("plan", "members=true&members=true"), ("comparison", ""), ("verdict", "a" * 3000 + "=1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def mesh(service: Service) -> None:
    for minute in range(3):
        push(service, MESH, decode_snapshot(as_json(document(minute))))


@pytest.fixture
def check_unharmed(service: Service, mesh: None) -> Iterator[None]:
    before = read_store(service)
    yield
    assert read_store(service) == before
    assert service.http.get("/healthz").status_code == 200


@pytest.fixture(scope="module", autouse=True)
def report() -> Iterator[None]:
    yield
    seconds, name = max(sent, default=(0.0, ""))
    print(f"\n{len(sent)} attacks; the longest answer took {seconds:.2f} s: {name}")


def check_refusal(service: Service, name: str, method: str, path: str, **request: Any) -> list[str]:
    """What is wrong with the answer to one attack."""
    started = time.perf_counter()
    try:
        response = service.http.request(method, path, **request)
    except (httpx.InvalidURL, UnicodeEncodeError, ValueError):
        return []  # the client cannot send it
    sent.append((time.perf_counter() - started, name))
    content_type = response.headers.get("content-type", "")
    if (
        response.status_code in REFUSED
        and content_type == "application/problem+json"
        and len(response.content) < 20_000
    ):
        json.loads(response.content)
        return []
    return [f"{name}: {response.status_code} {content_type} {response.text[:200]}"]


def change_at(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made: Any = document()
    inside = made
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = deepcopy(value)
    return made


# What a form cannot say: Arrow has one type for a column and no place for what is absent; a row that is an empty list, or
# an end that is a position, is right in columns.
def is_sound(form: str, path: tuple[Any, ...], value: Any) -> bool:
    if not path:
        return False
    if form == "Arrow":
        is_number = isinstance(path[-1], str) and path[-1] in (
            "request_rate",
            "error_rate",
            "p99_latency",
            "requests_per_second",
        )
        if is_number and value is True:
            return True
        if value in ([], {}) or value == [None]:
            return (
                path in {("calls",), ("changes",), ("policies",), ("services", 0, "metrics"), ("version",)}
                or len(path) > 2
            )
        return path == ("version",) and value == 1.0
    if "columns" in form:
        return (path == ("services", 0, "metrics") and value in ([],)) or (
            path in {("calls",), ("services",)} and value == []
        )
    return path == ("calls",) and value == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("route", [PUSH, BASELINE, SCORE])
@pytest.mark.usefixtures("check_unharmed")
def test_a_snapshot_with_one_bad_value_is_refused(service: Service, form: str, route: str) -> None:
    media_type, one, many = FORMS[form]
    others = [document(minute) for minute in range(3, 15)]
    wrong: list[str] = []
    made = [(path, value, change_at(path, value)) for path, values in VALUES for value in values]
    made += [((), i, change(document())) for i, change in enumerate(WHOLE)]
    if route != PUSH:  # the same decoder: a third of the inputs, other ones for each form
        made = made[list(FORMS).index(form) % 3 :: 3]
    for path, value, bad in made:
        if is_sound(form, path, value):
            continue
        try:
            body = many([*others, bad]) if route == SCORE else one([bad])
        except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError, AttributeError):
            continue  # this form cannot say it
        name = f"{form} {route} {path} {str(value)[:40]!r}"
        wrong += check_refusal(service, name, "POST", route, content=body, headers={"content-type": media_type})
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("media_type", "bodies"), [(JSON, TEXT_DAMAGE), (MESSAGEPACK, PACKED_DAMAGE), (ARROW, ARROW_DAMAGE)], ids=["JSON", "MessagePack", "Arrow"]
)  # fmt: skip
@pytest.mark.usefixtures("check_unharmed")
def test_damaged_bodies_are_refused(service: Service, media_type: str, bodies: list[bytes]) -> None:
    wrong: list[str] = []
    for route in (PUSH, BASELINE, SCORE, *((FEEDBACK, MUTES) if media_type == JSON else ())):
        for body in bodies:
            name = f"{media_type} {route} {body[:60]!r} {len(body)}"
            wrong += check_refusal(service, name, "POST", route, content=body, headers={"content-type": media_type})
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.usefixtures("check_unharmed")
def test_bad_feedback_and_mutes_are_refused(service: Service, kind: str) -> None:
    path, good, fields = ACTIONS[kind]
    wrong: list[str] = []
    for field, values in fields:
        for value in values:
            body = as_json(good | {field: value})
            wrong += check_refusal(service, f"{kind} {field} {str(value)[:40]!r}", "POST", path, content=body)
    for field in good:
        if kind == "feedback" or field in ("since", "end", "reason"):
            body = as_json({name: value for name, value in good.items() if name != field})
            wrong += check_refusal(service, f"{kind} without {field}", "POST", path, content=body)
        body = as_json(good)[:-1] + b"," + as_json({field: good[field]})[1:]
        wrong += check_refusal(service, f"{kind} {field} twice", "POST", path, content=body)
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("check_unharmed")
def test_odd_paths_and_parameters_are_refused(service: Service) -> None:
    wrong: list[str] = []
    for odd in ODD:
        for read in READS:
            wrong += check_refusal(service, f"GET {read} of {odd[:20]}", "GET", f"/v1/meshes/{odd}/{read}")
        for route in ("snapshots", "baseline", "feedback", "mutes", "adapter/rollback"):
            wrong += check_refusal(
                service, f"POST {route} of {odd[:20]}", "POST", f"/v1/meshes/{odd}/{route}", content=GOOD
            )
        for path in (f"{FEEDBACK}/{odd}", f"{MUTES}/{odd}", f"/v1/meshes/{odd}"):
            if not re.search(r"/(\.\.|%2e%2e)$", path):  # the client leads those elsewhere
                wrong += check_refusal(service, f"DELETE {path[:60]}", "DELETE", path)
        wrong += check_refusal(service, f"GET /static/{odd[:20]}", "GET", f"/static/{odd}/page.js")
    for route, query in QUERIES:
        wrong += check_refusal(service, f"GET {route}?{query[:60]}", "GET", f"{BASE}/{route}?{query}")
        wrong += check_refusal(service, f"GET {route}?nonsense", "GET", f"{BASE}/{route}?nonsense={quote(query[:500])}")
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
        for route in (PUSH, SCORE, f"{BASE}/verdict", "/v1/model", "/healthz"):
            wrong += check_refusal(service, f"{method} {route}", method, route, content=GOOD)
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("check_unharmed")
def test_bodies_that_call_themselves_something_else_are_refused(service: Service) -> None:
    headers = [
        *({"content-type": kind} for kind in (
            "text/plain", "text/html", "application/xml", "application/octet-stream", "multipart/form-data; boundary=x", "*/*",
            "application/json; charset=utf-16", "application/json; charset=latin-1", "application/jsonx", "x" * 5000,
            "application/vnd.apache.arrow.file", "application/x-www-form-urlencoded", "application/json, text/plain",
        )),
        *({"content-encoding": kind} for kind in ("gzip", "br", "deflate", "zstd", "identity, gzip", "x" * 5000, "compress")),
    ]  # fmt: skip
    wrong: list[str] = []
    bad = as_json(document() | {"observed_at": "never"})
    for route in (PUSH, BASELINE, SCORE, FEEDBACK, MUTES):
        for said in headers:
            wrong += check_refusal(service, f"{route} as {str(said)[:60]}", "POST", route, content=bad, headers=said)
        for media_type in (MESSAGEPACK, ARROW):
            wrong += check_refusal(
                service,
                f"{route} JSON as {media_type}",
                "POST",
                route,
                content=GOOD,
                headers={"content-type": media_type},
            )
    for body in (b"{", b"[1]", b'{"a":1}', b"x" * 2**21, b"\xff"):
        wrong += check_refusal(service, f"rollback {body[:9]!r}", "POST", ROLLBACK, content=body)
    assert not wrong, "\n".join(wrong)


def ingress() -> list[psutil.Process]:
    """The processes of this test's service that read bodies."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "Ingress" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.usefixtures("check_unharmed")
def test_the_ingress_does_not_grow_out_of_proportion(service: Service) -> None:
    processes = ingress()
    if not processes:
        pytest.skip("the service's processes are not those of this test")
    wrong: list[str] = []
    size = 2**22
    for media_type, cases in ((JSON, JSONS), (MESSAGEPACK, PACKED)):
        for case, make in cases.items():
            body = make(size)
            before = sum(process.memory_info().rss for process in processes)
            most, done = [before], threading.Event()

            def sample(most: list[int] = most, done: threading.Event = done) -> None:
                while not done.wait(0.02):
                    most[0] = max(most[0], sum(process.memory_info().rss for process in processes))

            thread = threading.Thread(target=sample)
            thread.start()
            for route in (PUSH, SCORE):
                wrong += check_refusal(
                    service,
                    f"{media_type} {case} {route}",
                    "POST",
                    route,
                    content=body,
                    headers={"content-type": media_type},
                )
            done.set()
            thread.join()
            if most[0] - before > FACTOR * len(body) + SPARE:
                wrong.append(f"{media_type} {case}: grew by {(most[0] - before) >> 20} MiB")
    assert not wrong, "\n".join(wrong)


def test_there_were_enough_attacks() -> None:
    assert len(sent) == 0 or len(sent) >= 800, "run the whole file, or none of it"
