"""In common: the caller, callee or namespace that the calls of an incident share, which fail or are slow."""

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

BEFORE = 5  # snapshots before the incident, of which the median is usual
MIN_CALLS = 3  # that fail or are slow, from which they have something in common
MIN_ERRORS = 0.02  # rise of the share of requests that fail, from which a call fails
SLOWER, MIN_SLOWER = 2.0, 0.01  # times its usual p99 latency, and seconds above it, from which a call is slow
MORE_CALLS = 1.5  # times the usual requests, from which a caller retries too much
MIN_FIT = 0.5  # of a group that is listed
LEADING_FIT = 0.8  # of a group that explains more than a suspect
MAX_GROUPS = 3
RATE, ERROR, P99 = EdgeMetric.REQUESTS_PER_SECOND, EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Bad:
    """The calls of a snapshot that fail or are slow, bool ``[E]``.

    Attributes:
        verb: what they do.
        rates: requests/s of all calls, usually and now, ``[2, E]``; NaN: unknown.
        of_incident: bad calls from or to the incident's services.
        origins: the ones among them whose callee makes no bad call; others follow from these.
        ignored: those that say nothing about a group that does not have them: they follow from others, or are of
            another incident.
    """

    verb: str
    rates: Values
    of_incident: BoolArray
    origins: BoolArray
    ignored: BoolArray


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
        """``calls from shop/web``, ``calls out of namespace shop``."""
        return f"calls {self.way} {'' if self.way in ('from', 'to') else 'namespace '}{self.end}"


def in_common(snapshot: MeshSnapshot, before: Sequence[MeshSnapshot], incident: IncidentDocument) -> dict[str, Any]:
    """Return a ``MapInCommon``; it has no groups if the calls share nothing.

    Args:
        snapshot: of the moment.
        before: snapshots before it, oldest first.
        incident: open at the moment.
    """
    earlier = [one for one in before if one.observed_at < incident.since][-BEFORE:]
    if not earlier:
        return {"verb": "", "groups": [], "fact": "", "next_step": "", "service": ""}
    bad = _find_bad_calls(snapshot, earlier, incident)
    groups = sorted(_groups(snapshot, bad), key=lambda one: -one.fit)[:MAX_GROUPS]
    listed = [{"calls": one.calls, **one.counts} for one in groups if one.fit >= MIN_FIT]
    found: dict[str, Any] = {"verb": bad.verb, "groups": listed, "fact": "", "next_step": "", "service": ""}
    if not groups or not _explains_more(groups[0], incident):
        return found
    best, counts = groups[0], groups[0].counts
    others = f"{counts['others_bad'] or 'none'} of {counts['others']:,} others"
    return found | {
        "fact": f"{_subject(best)} {bad.verb}, and {others}",
        "next_step": f"{_next_step(best, bad.verb)}.",
        "service": best.end if best.way in ("from", "to") else "",
    }


def _explains_more(best: _Group, incident: IncidentDocument) -> bool:
    """Whether a group tells more than the title: it is wider than the calls from one caller, or fits well and is
    about something else."""
    if best.way == "into" or best.end == incident.title.rpartition("namespace ")[2] or len(incident.origins) > 1:
        return False  # calls into a namespace may fail one because of the other; separate faults share nothing
    if incident.caller and best.end in (incident.caller, incident.first_suspect):
        return best.fit >= MIN_FIT
    says = {reason.metric for one in incident.suspects[:1] for reason in (*one.reasons, *one.context)}
    is_said = best.end == incident.first_suspect and (best.way == "to" or says & {LOSES, WAITS, SENT})
    return best.fit >= LEADING_FIT and not is_said


def _subject(best: _Group) -> str:
    """``Calls from 7 of 16 callers of shop/db``, ``Calls from shop/web to all 3 callees``."""
    bad, total = best.counts["bad"], best.counts["total"]
    share = f"{bad:,} of {total:,}" if bad < total else f"all {total:,}"
    if best.way == "from":
        return f"Calls from {best.end} to {share} callees"
    return f"Calls from {share} callers of {best.end}" if best.way == "to" else f"{share.capitalize()} {best.calls}"


def _next_step(best: _Group, verb: str) -> str:
    who, bad = best.end, best.counts["bad"]
    if best.way == "out of":
        what = "DNS and egress" if verb == "fail" else "the network and the nodes"
        return f"Check {what} of namespace {who} first"
    if best.way == "to":
        if bad == best.counts["total"]:
            return f"Look at {who} itself first: the calls of all its callers {verb}"
        return f"Check the network and the policies between {who} and the {bad:,} callers whose calls {verb}"
    if best.times >= MORE_CALLS:
        return f"Limit the retries of {who} first: it makes {times_text(best.times)} times its usual calls"
    what = "DNS and egress" if verb == "fail" else "the network, the node and the proxy"
    return f"Check {what} of {who} first{'' if best.counts['others_bad'] else ': what it calls answers others'}"


def _find_bad_calls(snapshot: MeshSnapshot, earlier: Sequence[MeshSnapshot], incident: IncidentDocument) -> _Bad:
    """Return the calls that fail; if hardly any does, those that are slow."""
    now, usual = _metrics(snapshot, earlier)
    rise = now - np.nan_to_num(usual)
    failing = rise[:, ERROR] >= MIN_ERRORS
    slow = (now[:, P99] >= SLOWER * usual[:, P99]) & (rise[:, P99] >= MIN_SLOWER)
    verb, bad = ("fail", failing) if failing.sum() >= MIN_CALLS else ("are slow", slow)
    source, destination = snapshot.edge_index
    makes_bad = np.zeros(snapshot.num_nodes, bool)
    makes_bad[source[bad & (source != destination)]] = True
    is_involved = mark_services(snapshot.node_ids, incident.services)[snapshot.edge_index].any(axis=0)
    of_incident = bad & is_involved
    origins = of_incident & ~makes_bad[destination]
    rates = np.stack([usual[:, RATE], now[:, RATE]])
    return _Bad(verb, rates, of_incident, origins if origins.any() else of_incident, bad & ~origins)


def _metrics(snapshot: MeshSnapshot, earlier: Sequence[MeshSnapshot]) -> tuple[Values, Values]:
    """Return the metrics ``[E, 4]`` of the calls of a snapshot, and their medians over earlier ones; NaN: unknown."""
    rows = NumberedRows.of([snapshot, *earlier])
    _, tables = metric_tables([snapshot, *earlier], rows, range(1 + len(earlier)))
    now, *before = tables[:, rows.edges[0]].astype(np.float64)
    known = np.isfinite(before).any(axis=0)
    usual = np.full(now.shape, np.nan)
    usual[known] = np.nanmedian(np.stack(before)[:, known], axis=0)
    return now, usual


def _groups(snapshot: MeshSnapshot, bad: _Bad) -> Iterator[_Group]:
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
        for end in _frequent(ends[bad.of_incident]):
            inside = ends == end
            if not inside.all():  # else it tells nothing apart
                yield _group(way, names[end], inside, bad)


def _frequent(values: IntArray) -> list[int]:
    found, counts = np.unique(values, return_counts=True)
    frequent: list[int] = found[counts >= MIN_CALLS].tolist()
    return frequent


def _group(way: str, end: str, inside: BoolArray, bad: _Bad) -> _Group:
    own, total = int((bad.of_incident & inside).sum()), int(inside.sum())
    others = ~inside & ~bad.ignored
    precision, recall = own / total, float((bad.origins & inside).sum() / bad.origins.sum())
    fit = 2 * precision * recall / (precision + recall)
    counts = {"bad": own, "total": total, "others_bad": int((bad.origins & others).sum()), "others": int(others.sum())}
    usual, now = np.nansum(bad.rates[:, inside], axis=1)
    return _Group(way, end, fit, float(now / usual) if usual else 1.0, counts)
