"""Explains why nothing is read although Prometheus has a mesh's series: their names or labels are unexpected."""

import json
from collections.abc import Sequence
from datetime import datetime

from serve_app.collect.prometheus.client import Evaluator, QueryAnswer
from serve_app.collect.prometheus.frames import DroppedSeries, read_labels
from serve_app.collect.prometheus.naming import CALLEE
from serve_app.collect.prometheus.query import EVERYTHING, Dialect, Match, escape, matched_metrics, range_selectors

MAX_LABELS = 5  # in an example
MIN_PARTS = 3  # of a name that is recognised without its unit
# Substitutes for an underscore: names in UTF-8 keep their dots, which Prometheus escapes in several ways.
_SEPARATOR = "(?:[._]|__|_dot_|_2e_)"
_UNITS = frozenset({"seconds", "milliseconds", "total"})  # some exporters omit them
_OF_SCRAPES = frozenset({"__name__", "job", "instance", "pod"})
# Metrics that may count requests, metrics of possible meshes, and metrics of the monitoring itself.
_REQUESTS = "(.*_)?(requests?|calls?|rpcs?)_(.+_)?(total|count|status)|.+_rq_.+|.+_handled_total|tcp_open_total"
_OF_MESHES = "(istio|envoy|linkerd|hubble|kuma|traefik|kong|haproxy|nginx|apisix)_.+"
_OF_MONITORING = "(prometheus|promhttp|alertmanager|grafana|thanos|cortex|vm|apiserver|rest_client|etcd|kubelet)_.+"
MAX_OTHERS = 3


def find_other_spellings(evaluator: Evaluator, dialects: Sequence[Dialect], at: datetime, within: float) -> str:
    """Describe metrics of these dialects that are spelled differently, and what to do; empty if there are none, or if
    the query fails."""
    spellings = {
        name: _spellings(name) for dialect in dialects for part in (dialect, *dialect.beside) for name in _metrics(part)
    }
    selector = f'{{__name__=~"{escape("|".join(spellings.values()))}",__name__!~"{"|".join(spellings)}"}}'
    samples = evaluator.ask({"names": f"topk(1, count by (__name__) ({selector}))"}, at, within)["names"].samples
    if not len(samples):
        return ""
    name = read_labels(samples.label_sets[0]).get("__name__", "")
    return (
        f"found {name}, but names with dots (UTF-8), escaped dots or without their unit are not read; set "
        "translation_strategy = UnderscoreEscapingWithSuffixes in the section otlp of Prometheus, or "
        "-opentelemetry.usePrometheusNaming of VictoriaMetrics"
    )


def find_other_requests(evaluator: Evaluator, dialects: Sequence[Dialect], at: datetime, within: float) -> str:
    """Describe metrics that may count requests but that no source reads, or not with these labels; empty if there are
    none, or if a query fails."""
    selector = f'__name__=~"{_REQUESTS}|{_OF_MESHES}",__name__!~".+_(bucket|sum|created)|{_OF_MONITORING}"'
    query = f"topk({MAX_OTHERS}, count by (__name__) ({{{selector}}}))"
    answer = evaluator.ask({"names": query}, at, within)["names"]
    names = sorted(read_labels(label_set).get("__name__", "") for label_set in answer.samples.label_sets)
    readable = [
        (name, text)
        for dialect in dialects
        for text in dialect.signature
        for name in matched_metrics(text)
        if name in names
    ]
    if readable:
        example = _example(evaluator.ask({"example": f"topk(1, {readable[0][0]})"}, at, within)["example"])
        signatures = dict.fromkeys(EVERYTHING.apply(text) for name, text in readable if name == readable[0][0])
        return f"{example or readable[0][0]}, where a source reads {' or '.join(signatures)}"
    return f"{', '.join(names)}, which no source reads" if names else ""


def find_unfit_series(evaluator: Evaluator, dialect: Dialect, at: datetime, within: float, match: Match) -> str:
    """Return the series of a dialect that its selectors leave out, and what to do; empty if they fit, or if a query
    fails."""
    for part in (dialect, *dialect.beside):
        texts = {str(i): f"topk(1, {match.apply(selector)})" for i, selector in enumerate(part.signature)}
        selectors = range_selectors(part.services["requests"].promql)
        texts["read"] = " or ".join(f"count({match.apply(selector)})" for selector in selectors)
        answers = evaluator.ask(texts, at, within) if selectors else {}
        read = answers.pop("read", None)
        example = next(filter(None, map(_example, answers.values())), "")
        if read is not None and not read.failed and not len(read.samples) and example:
            return _explain(part, selectors[0], example)
    return ""


def describe_nameless(dropped_series: DroppedSeries) -> tuple[str, str]:
    """Describe series that name no service, and what to do."""
    example = ", ".join(f'{name}="{value}"' for name, value in sorted(dropped_series.labels.items()))
    missing = " and ".join(label.replace("|", " or ") for label in dropped_series.missing)
    problem = f"{dropped_series.count} of {dropped_series.of} series name no service, for example {{{example}}}"
    return problem, f"they are left out; the scrape configuration must add {missing}"


def _explain(dialect: Dialect, selector: str, example: str) -> str:
    labels = [label.replace("|", " or ") for label in dialect.services["requests"].labels[:2] if label[0] != "="]
    with_labels = f" with the labels {' and '.join(labels)}" if labels and labels != [*CALLEE] else ""
    return (
        f"found {example}, but the source {dialect.name} reads {EVERYTHING.apply(selector)}{with_labels}; "
        "name clusters and labels like this where they are configured, or set source = generic with queries of your own"
    )


def _example(answer: QueryAnswer) -> str:
    """Return one series of an answer, with some of its labels."""
    if not len(answer.samples):
        return ""
    labels = read_labels(answer.samples.label_sets[0])
    matchers = [f"{name}={json.dumps(value)}" for name, value in labels.items() if name not in _OF_SCRAPES]
    return f"{labels.get('__name__', '')}{{{','.join(matchers[:MAX_LABELS])}}}"


def _metrics(dialect: Dialect) -> list[str]:
    texts = (*dialect.signature, dialect.services["requests"].promql)
    return list(dict.fromkeys(name for text in texts for name in matched_metrics(text)))


def _spellings(name: str) -> str:
    """Return a regular expression for other spellings of a metric's name."""
    first, *parts = name.split("_")
    optional = _UNITS if len(parts) >= MIN_PARTS else ()
    endings = (f"(?:{_SEPARATOR}{part})?" if part in optional else f"{_SEPARATOR}{part}" for part in parts)
    return f"(?:U__)?{first}{''.join(endings)}"
