"""What the failing or slow calls of an incident share."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from model.snapshot import EdgeMetric, MeshSnapshot
from model.verdict import LOSES
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.documents import MapInCommon
from serve_app.web.in_common import in_common
from tests.builders import AT, mesh_of

# Three callers in two namespaces, three callees, and a gateway that calls the callers.
CALLERS, CALLEES = ["maps/a", "maps/b", "shop/c"], ["data/x", "data/y", "shop/z"]
CALLS = {(caller, callee): 10.0 for caller in CALLERS for callee in CALLEES}
CALLS |= {("edge/gateway", caller): 30.0 for caller in CALLERS}
MESH = mesh_of(["edge/gateway", *CALLERS, *CALLEES], CALLS)


def values(errors: Callable[[str, str], float], latency: Callable[[str, str], float], at: int) -> MeshSnapshot:
    """Return the mesh at an instant, with these error rates and p99 latencies of its calls."""
    features, observed = MESH.edge_features.copy(), np.ones_like(MESH.edge_observed)
    for e, (source, destination) in enumerate(MESH.edge_index.T):
        ends = MESH.node_ids[source], MESH.node_ids[destination]
        features[e, EdgeMetric.ERROR_RATE] = errors(*ends)
        features[e, [EdgeMetric.P50_LATENCY, EdgeMetric.P99_LATENCY]] = latency(*ends)
    return replace(MESH, edge_features=features, edge_observed=observed, observed_at=AT + timedelta(seconds=15 * at))


def none(*_: str) -> float:
    return 0.0


def usual(*_: str) -> float:
    return 0.02


BEFORE = [values(none, usual, at) for at in range(-6, 0)]


def incident(first: str = "data/x", *says: str, **more: Any) -> IncidentDocument:
    reasons = [{"metric": metric, "observed": 0.4, "expected": 0.0, "since": AT, "text": metric} for metric in says]
    fields = {
        "id": "a", "since": AT, "severity": "major", "score": 5.0, "changes": [], "affected": MESH.node_ids,
        "suspects": [{"service": first, "score": 0.5, "reasons": reasons}],
    }  # fmt: skip
    return IncidentDocument.model_validate(fields | more)


def share(snapshot: MeshSnapshot, of: IncidentDocument | None = None) -> MapInCommon:
    return MapInCommon.model_validate(in_common(snapshot, BEFORE, of or incident()))


def failing(caller: str = "", callee: str = "", space: str = "") -> MeshSnapshot:
    """Return the mesh while the calls from a caller, to a callee or out of a namespace fail, and so do the calls to
    their callers, a little less."""

    def is_bad(source: str, destination: str) -> bool:
        return source == caller or destination == callee or bool(space and source.startswith(space))

    def errors(source: str, destination: str) -> float:
        if is_bad(source, destination):
            return 0.4
        return 0.2 if source == "edge/gateway" and any(is_bad(destination, callee) for callee in CALLEES) else 0.0

    return values(errors, usual, 2)


def test_calls_out_of_a_namespace_that_fail_are_compared_with_all_others() -> None:
    document = share(failing(space="maps/"))
    (best, *_) = document.groups
    assert (best.calls, best.bad, best.total) == ("calls out of namespace maps", 6, 6)
    assert (best.others_bad, best.others) == (0, 4), "calls to the callers fail because of these"
    assert document.fact == "All 6 calls out of namespace maps fail, and none of 4 others"
    assert document.next_step == "Check DNS and egress of namespace maps first."
    assert document.service == ""


def test_a_caller_is_named_and_so_are_its_retries() -> None:
    bad = failing(caller="shop/c")
    document = share(bad)
    assert document.fact == "Calls from shop/c to all 3 callees fail, and none of 8 others"
    step = "Check DNS and egress of shop/c first: what it calls answers others."
    assert (document.next_step, document.service) == (step, "shop/c")
    rates = bad.edge_features.copy()
    rates[bad.edge_index[0] == bad.node_ids.index("shop/c"), EdgeMetric.REQUESTS_PER_SECOND] *= 4
    retries = share(replace(bad, edge_features=rates))
    assert retries.next_step == "Limit the retries of shop/c first: it makes 4.0 times its usual calls."


def test_slow_calls_count_if_hardly_any_fails() -> None:
    def latency(source: str, _: str) -> float:
        return 0.5 if source.startswith("maps/") else 0.02

    document = share(values(none, latency, 2))
    assert document.verb == "are slow"
    assert document.next_step == "Check the network and the nodes of namespace maps first."


@pytest.mark.parametrize(
    ("snapshot", "of"),
    [
        (failing(callee="data/x"), incident()),
        (failing(caller="shop/c"), incident("shop/c", LOSES)),
        (failing(space="maps/"), incident(title="calls out of namespace maps")),
        (failing(space="maps/"), incident(origins=["data/x", "shop/z"])),
    ],
    ids=["callee", "suspect", "namespace", "separate faults"],
)
def test_what_the_incident_says_already_does_not_lead(snapshot: MeshSnapshot, of: IncidentDocument) -> None:
    document = share(snapshot, of)
    assert document.groups
    assert (document.fact, document.next_step, document.service) == ("", "", "")


@pytest.mark.parametrize(
    ("snapshot", "of", "fact"),
    [
        (failing(caller="shop/c"), incident("shop/c"), "Calls from shop/c to all 3 callees fail, and none of 8 others"),
        (failing(caller="shop/c"), incident(caller="shop/c"), "Calls from shop/c to all 3 callees fail, and none of 8"),
        (failing(callee="data/x"), incident(caller="shop/c"), "Calls from all 3 callers of data/x fail, and none of 6"),
        (failing(callee="data/x"), incident("maps/a"), "Calls from all 3 callers of data/x fail, and none of 6 others"),
    ],
    ids=["suspect", "one call from it", "one call to it", "what its victims call"],
)
def test_a_title_that_is_too_narrow_is_replaced(snapshot: MeshSnapshot, of: IncidentDocument, fact: str) -> None:
    assert share(snapshot, of).fact.startswith(fact)


def test_calls_of_another_incident_do_not_count() -> None:
    document = share(failing(space="maps/"), incident(affected=["shop/c", "shop/z"], suspects=[]))
    assert all(group.calls != "calls out of namespace maps" for group in document.groups)


def test_nothing_is_in_common_without_bad_calls_or_without_a_past() -> None:
    assert share(values(none, usual, 2)).groups == []
    assert MapInCommon.model_validate(in_common(failing(space="maps/"), (), incident())).groups == []


def test_calls_that_were_not_made_before_are_no_error() -> None:
    earlier = mesh_of(["maps/a", "data/x"], {("maps/a", "data/x"): 10.0})
    before = [replace(earlier, observed_at=AT - timedelta(seconds=15))]
    document = MapInCommon.model_validate(in_common(failing(space="maps/"), before, incident()))
    assert document.groups[0].calls == "calls out of namespace maps"
