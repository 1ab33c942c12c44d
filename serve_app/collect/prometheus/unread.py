"""Why nothing is read although a Prometheus has series of a mesh: their names or labels are not those expected."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from serve_app.collect.base import Role
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.frames import DroppedSeries, read_labels
from serve_app.collect.prometheus.naming import CALLEE
from serve_app.collect.prometheus.query import (
    EVERYTHING,
    Dialect,
    Match,
    escape,
    matched_metrics,
    range_selectors,
)

MAX_LABELS = 5  # shown of an example
FEWEST_PARTS = 3  # of a name that is known without its unit
# What may stand for an underscore: names in UTF-8 keep their dots, and Prometheus has several ways to escape these.
_SEPARATOR = "(?:[._]|__|_dot_|_2e_)"
_UNITS = frozenset({"seconds", "milliseconds", "total"})  # which some exporters leave out
_OF_SCRAPES = frozenset({"__name__", "job", "instance", "pod"})
# Metrics that may count requests, metrics of systems that may be a mesh, and metrics of the monitoring itself.
_REQUESTS = "(.*_)?(requests?|calls?|rpcs?)_(.+_)?(total|count|status)|.+_rq_.+|.+_handled_total|tcp_open_total"
_OF_MESHES = "(istio|envoy|linkerd|hubble|kuma|traefik|kong|haproxy|nginx|apisix)_.+"
_OF_MONITORING = "(prometheus|promhttp|alertmanager|grafana|thanos|cortex|vm|apiserver|rest_client|etcd|kubelet)_.+"
MAX_OTHERS = 3
LATEST_SECONDS = 3600  # of the search for samples that are older than the lookback of Prometheus


def explain_unknown(
    prometheus: Prometheus,
    answers: Mapping[Role, QueryAnswer],
    origin: str,
    at: datetime,
    within: float,
    match: Match,
) -> str:
    """Why the kind of a mesh is not known, and what to do; ``answers``: of its detection."""
    if failed := next((answer for answer in answers.values() if answer.failed), None):
        reach = "cannot reach Prometheus" if failed.failed == "unreachable" else f"{failed.failed}: Prometheus"
        return f"{reach} at {origin}: {failed.detail}"
    known = [*KNOWN.values()]
    found = _find_other_spellings(prometheus, known, at, within) or _find_late(prometheus, known, at, within, match)
    if found:
        return found
    names = dict.fromkeys(name for one in known for series in one.signature[:1] for name in matched_metrics(series))
    others = _find_other_requests(prometheus, known, at, within)
    return (
        f"expected the metrics of a mesh, found none of {', '.join(names)}{f', but {others}' if others else ''}; check "
        f"that this Prometheus scrapes the mesh{', correct match' if match else ''}, or set source = generic with "
        "queries of your own"
    )


def explain_empty(
    prometheus: Prometheus,
    dialect: Dialect,
    nameless: DroppedSeries | None,
    at: datetime,
    within: float,
    match: Match,
) -> list[str]:
    """Why no requests are read with a dialect, and what to do; empty: nothing is known. ``nameless``: series of
    requests that name no service."""
    found = _find_other_spellings(prometheus, [dialect], at, within)
    found = found or _find_unfit_series(prometheus, dialect, at, within, match)
    return [found] if found else [*describe_nameless(nameless)] if nameless else []


def _find_late(prometheus: Prometheus, dialects: Sequence[Dialect], at: datetime, within: float, match: Match) -> str:
    """Series whose samples have ended, or arrive so late that they are behind the lookback of Prometheus, and what to
    do; empty if there are none in the last hour, or if the query fails."""
    texts = {
        one.signature[0]: " or ".join(
            f"time() - max(max_over_time(timestamp({match.apply(series)})[{LATEST_SECONDS}s:1m]))"
            for series in one.signature
        )
        for one in dialects
    }
    for series, answer in prometheus.ask(texts, at, within).items():
        if len(answer.samples):
            minutes = int(answer.samples.values.min() // 60)
            return (
                f"the newest sample of {match.apply(series)} is {minutes} minutes old; check what scrapes the mesh, or "
                f"set behind_seconds = {60 * (minutes + 2)} if data always arrive that late"
            )
    return ""


def _find_other_spellings(prometheus: Prometheus, dialects: Sequence[Dialect], at: datetime, within: float) -> str:
    """Metrics of these dialects whose names are spelled in another way, and what to do; empty if there are none, or if
    the query fails."""
    of_names = {name: _spellings(name) for one in dialects for part in (one, *one.beside) for name in _metrics(part)}
    selector = f'{{__name__=~"{escape("|".join(of_names.values()))}",__name__!~"{"|".join(of_names)}"}}'
    found = prometheus.ask({"names": f"topk(1, count by (__name__) ({selector}))"}, at, within)["names"].samples
    if not len(found):
        return ""
    name = read_labels(found.label_sets[0]).get("__name__", "")
    return (
        f"found {name}, but names with dots (UTF-8), escaped dots or without their unit are not read; set "
        "translation_strategy = UnderscoreEscapingWithSuffixes in the section otlp of Prometheus, or "
        "-opentelemetry.usePrometheusNaming of VictoriaMetrics"
    )


def _find_other_requests(prometheus: Prometheus, dialects: Sequence[Dialect], at: datetime, within: float) -> str:
    """Metrics that may count requests and that no source reads, or none with these labels; empty if there are none, or
    if a query fails."""
    names = f'__name__=~"{_REQUESTS}|{_OF_MESHES}",__name__!~".+_(bucket|sum|created)|{_OF_MONITORING}"'
    query = f"topk({MAX_OTHERS}, count by (__name__) ({{{names}}}))"
    answer = prometheus.ask({"names": query}, at, within)["names"]
    found = sorted(read_labels(one).get("__name__", "") for one in answer.samples.label_sets)
    read = [
        (name, text) for one in dialects for text in one.signature for name in matched_metrics(text) if name in found
    ]
    if read:
        example = _example(prometheus.ask({"example": f"topk(1, {read[0][0]})"}, at, within)["example"])
        signatures = dict.fromkeys(EVERYTHING.apply(text) for name, text in read if name == read[0][0])
        return f"{example or read[0][0]}, where a source reads {' or '.join(signatures)}"
    return f"{', '.join(found)}, which no source reads" if found else ""


def _find_unfit_series(prometheus: Prometheus, dialect: Dialect, at: datetime, within: float, match: Match) -> str:
    """Series of a dialect that its selectors leave out, and what to do; empty if they fit, or if a query fails."""
    for part in (dialect, *dialect.beside):
        texts = {str(i): f"topk(1, {match.apply(one)})" for i, one in enumerate(part.signature)}
        selectors = range_selectors(part.services["requests"].promql)
        texts["read"] = " or ".join(f"count({match.apply(one)})" for one in selectors)
        answers = prometheus.ask(texts, at, within) if selectors else {}
        read = answers.pop("read", None)
        example = next(filter(None, map(_example, answers.values())), "")
        if read is not None and not read.failed and not len(read.samples) and example:
            return _explain(part, selectors[0], example)
    return ""


def describe_nameless(dropped: DroppedSeries) -> tuple[str, str]:
    """What series are that name no service, and what to do."""
    example = ", ".join(f'{name}="{value}"' for name, value in sorted(dropped.labels.items()))
    missing = " and ".join(label.replace("|", " or ") for label in dropped.missing)
    found = f"{dropped.count} of {dropped.of} series name no service, for example {{{example}}}"
    return found, f"they are left out; the scrape configuration must add {missing}"


def _explain(dialect: Dialect, selector: str, example: str) -> str:
    labels = [one.replace("|", " or ") for one in dialect.services["requests"].labels[:2] if one[0] != "="]
    with_labels = f" with the labels {' and '.join(labels)}" if labels and labels != [*CALLEE] else ""
    return (
        f"found {example}, but the source {dialect.name} reads {EVERYTHING.apply(selector)}{with_labels}; "
        "name clusters and labels like this where they are configured, or set source = generic with queries of your own"
    )


def _example(answer: QueryAnswer) -> str:
    """One series of an answer, with some of its labels."""
    if not len(answer.samples):
        return ""
    labels = read_labels(answer.samples.label_sets[0])
    shown = [f"{name}={json.dumps(value)}" for name, value in labels.items() if name not in _OF_SCRAPES][:MAX_LABELS]
    return f"{labels.get('__name__', '')}{{{','.join(shown)}}}"


def _metrics(dialect: Dialect) -> list[str]:
    texts = (*dialect.signature, dialect.services["requests"].promql)
    return list(dict.fromkeys(name for text in texts for name in matched_metrics(text)))


def _spellings(name: str) -> str:
    """A regular expression for other spellings of a metric's name."""
    first, *rest = name.split("_")
    is_long = len(rest) >= FEWEST_PARTS
    more = (f"(?:{_SEPARATOR}{part})?" if part in _UNITS and is_long else f"{_SEPARATOR}{part}" for part in rest)
    return f"(?:U__)?{first}{''.join(more)}"
