"""In common: the caller, callee or namespace that an incident's failing or slow calls share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.snapshot import BoolArray, EdgeMetric, IntArray, MeshSnapshot, mark_services, namespace_of
from model.verdict import LOSES, SENT, WAITS
from serve_app.api.number_text import times_text
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.stores.numbered import NumberedRows
from serve_app.web.history import metric_tables

BEFORE = 5  # snapshots before the incident; their median is usual
MIN_CALLS = 3  # that fail or are slow, from which they have something in common
MIN_ERRORS = 0.02  # rise of the error rate, from which a call fails
SLOWER, MIN_SLOWER = 2.0, 0.01  # times its usual p99 latency, and seconds above it, from which a call is slow
MORE_CALLS = 1.5  # times the usual requests, from which a caller retries too much
MIN_FIT = 0.5  # of a group that is listed
LEADING_FIT = 0.8  # of a group that explains more than a suspect
MAX_GROUPS = 3
RATE, ERROR, P99 = EdgeMetric.REQUESTS_PER_SECOND, EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _BadCalls:
    """The calls of a snapshot that fail or are slow, bool ``[E]``.

    Attributes:
        verb: what they do.
        rates: requests/s of all calls, usually and now, ``[2, E]``; NaN: unknown.
        of_incident: bad calls from or to the incident's services.
        origins: the calls among them whose callee makes no bad call; others follow from these.
        not_origins: all other bad calls. They follow from others or belong to another incident, so they say nothing
            about a group without them.
    """

    verb: str
    rates: Values
    of_incident: BoolArray
    origins: BoolArray
    not_origins: BoolArray


@dataclass(frozen=True, slots=True)
class _Group:
    """Calls that share an end, or the namespace of an end.

    Attributes:
        way: ``from`` or ``to`` a service, ``out of`` or ``into`` a namespace.
        end: the service or the namespace.
        fit: how well the group tells bad calls from others, 0 to 1.
        times: the requests of its calls, relative to usual.
        counts: as in ``CallGroup``.
    """

    way: str
    end: str
    fit: float
    times: float
    counts: dict[str, int]

    @property
    def calls(self) -> str:
        """Return ``calls from shop/web``, ``calls out of namespace shop``."""
        return f"calls {self.way} {'' if self.way in ('from', 'to') else 'namespace '}{self.end}"


def in_common(snapshot: MeshSnapshot, before: Sequence[MeshSnapshot], incident: IncidentDocument) -> dict[str, Any]:
    """Return a ``MapInCommon`` for an incident open in a snapshot; without groups if its calls share nothing.
    ``before`` has earlier snapshots, oldest first."""
    document: dict[str, Any] = {"verb": "", "groups": [], "fact": "", "next_step": "", "service": ""}
    earlier = [moment for moment in before if moment.observed_at < incident.since][-BEFORE:]
    if not earlier:
        return document
    bad = _find_bad_calls(snapshot, earlier, incident)
    groups = sorted(_groups(snapshot, bad), key=lambda group: -group.fit)[:MAX_GROUPS]
    document["verb"] = bad.verb
    document["groups"] = [{"calls": group.calls, **group.counts} for group in groups if group.fit >= MIN_FIT]
    if groups and _explains_more(groups[0], incident):
        best, counts = groups[0], groups[0].counts
        other_calls = f"{counts['others_bad'] or 'none'} of {counts['others']:,} others"
        document["fact"] = f"{_subject(best)} {bad.verb}, and {other_calls}"
        document["next_step"] = f"{_next_step(best, bad.verb)}."
        document["service"] = best.end if best.way in ("from", "to") else ""
    return document


def _explains_more(best: _Group, incident: IncidentDocument) -> bool:
    """Return whether a group says more than the title: it is wider than the calls from one caller, or fits well and is
    about something else."""
    if best.way == "into" or best.end == incident.title.rpartition("namespace ")[2] or len(incident.origins) > 1:
        return False  # calls into a namespace may fail one because of the other; separate faults share nothing
    if incident.caller and best.end in (incident.caller, incident.first_suspect):
        return best.fit >= MIN_FIT
    metrics = {reason.metric for suspect in incident.suspects[:1] for reason in (*suspect.reasons, *suspect.context)}
    is_known = best.end == incident.first_suspect and (best.way == "to" or metrics & {LOSES, WAITS, SENT})
    return best.fit >= LEADING_FIT and not is_known


def _subject(best: _Group) -> str:
    """Return ``Calls from 7 of 16 callers of shop/db``, ``Calls from shop/web to all 3 callees``."""
    bad, total = best.counts["bad"], best.counts["total"]
    share = f"{bad:,} of {total:,}" if bad < total else f"all {total:,}"
    if best.way == "from":
        return f"Calls from {best.end} to {share} callees"
    return f"Calls from {share} callers of {best.end}" if best.way == "to" else f"{share.capitalize()} {best.calls}"


def _next_step(best: _Group, verb: str) -> str:
    end, bad = best.end, best.counts["bad"]
    if best.way == "out of":
        place = "DNS and egress" if verb == "fail" else "the network and the nodes"
        return f"Check {place} of namespace {end} first"
    if best.way == "to":
        if bad == best.counts["total"]:
            return f"Look at {end} itself first: the calls of all its callers {verb}"
        return f"Check the network and the policies between {end} and the {bad:,} callers whose calls {verb}"
    if best.times >= MORE_CALLS:
        return f"Limit the retries of {end} first: it makes {times_text(best.times)} times its usual calls"
    place = "DNS and egress" if verb == "fail" else "the network, the node and the proxy"
    return f"Check {place} of {end} first{'' if best.counts['others_bad'] else ': what it calls answers others'}"


def _find_bad_calls(snapshot: MeshSnapshot, earlier: Sequence[MeshSnapshot], incident: IncidentDocument) -> _BadCalls:
    """Return the calls that fail; if hardly any does, those that are slow."""
    current, usual = _metrics(snapshot, earlier)
    rise = current - np.nan_to_num(usual)
    failing = rise[:, ERROR] >= MIN_ERRORS
    slow = (current[:, P99] >= SLOWER * usual[:, P99]) & (rise[:, P99] >= MIN_SLOWER)
    verb, bad = ("fail", failing) if failing.sum() >= MIN_CALLS else ("are slow", slow)
    source, destination = snapshot.edge_index
    makes_bad = np.zeros(snapshot.num_nodes, bool)
    makes_bad[source[bad & (source != destination)]] = True
    is_involved = mark_services(snapshot.node_ids, incident.services)[snapshot.edge_index].any(axis=0)
    of_incident = bad & is_involved
    origins = of_incident & ~makes_bad[destination]
    rates = np.stack([usual[:, RATE], current[:, RATE]])
    return _BadCalls(verb, rates, of_incident, origins if origins.any() else of_incident, bad & ~origins)


def _metrics(snapshot: MeshSnapshot, earlier: Sequence[MeshSnapshot]) -> tuple[Values, Values]:
    """Return the metrics of a snapshot's calls ``[E, 4]``, and their medians over earlier ones; NaN: unknown."""
    rows = NumberedRows.of([snapshot, *earlier])
    _, tables = metric_tables([snapshot, *earlier], rows, range(1 + len(earlier)))
    current, *before = tables[:, rows.edges[0]].astype(np.float64)
    is_known = np.isfinite(before).any(axis=0)
    usual = np.full(current.shape, np.nan)
    usual[is_known] = np.nanmedian(np.stack(before)[:, is_known], axis=0)
    return current, usual


def _groups(snapshot: MeshSnapshot, bad: _BadCalls) -> Iterator[_Group]:
    """Yield the groups with at least ``MIN_CALLS`` bad calls."""
    spaces = list(dict.fromkeys(map(namespace_of, snapshot.node_ids)))
    number = {space: i for i, space in enumerate(spaces)}
    space_of = np.array([number[namespace_of(name)] for name in snapshot.node_ids], np.int64)
    source, destination = snapshot.edge_index
    for way, ends, names in (
        ("from", source, snapshot.node_ids),
        ("to", destination, snapshot.node_ids),
        ("out of", space_of[source], spaces),
        ("into", space_of[destination], spaces),
    ):
        for end in _frequent_values(ends[bad.of_incident]):
            inside = ends == end
            if not inside.all():  # else there is nothing to compare it with
                yield _group(way, names[end], inside, bad)


def _frequent_values(values: IntArray) -> list[int]:
    unique, counts = np.unique(values, return_counts=True)
    frequent: list[int] = unique[counts >= MIN_CALLS].tolist()
    return frequent


def _group(way: str, end: str, inside: BoolArray, bad: _BadCalls) -> _Group:
    count, total = int((bad.of_incident & inside).sum()), int(inside.sum())
    outside = ~inside & ~bad.not_origins
    precision, recall = count / total, float((bad.origins & inside).sum() / bad.origins.sum())
    fit = 2 * precision * recall / (precision + recall)
    bad_outside = int((bad.origins & outside).sum())
    counts = {"bad": count, "total": total, "others_bad": bad_outside, "others": int(outside.sum())}
    usual, current = np.nansum(bad.rates[:, inside], axis=1)
    return _Group(way, end, fit, float(current / usual) if usual else 1.0, counts)
