"""Native histograms: the same queries for a Prometheus that stores a histogram as one series instead of buckets.

Prometheus 3 and OpenTelemetry's exponential histograms write ``x`` where there were ``x_bucket``, ``x_count`` and
``x_sum``. Queries for buckets become quantiles that Prometheus computes. Where both forms exist, buckets are read.
"""

import re
from dataclasses import replace
from typing import Any

from serve_app.collect.prometheus.query import BRACES, TEXT, Dialect, Query
from serve_app.settings.roles import SHARES, Role

SUFFIX = "-native"  # of the dialect's name
_BUCKETS = re.compile(rf"(\w+)_bucket({BRACES})")
_BOUND = re.compile(r"[{, ]le(=|!)")  # a matcher for the bound of a bucket
_GROUPING = re.compile(r"\b(by|on) \(([^()]*)\)")


def native(dialect: Dialect) -> Dialect:
    """The dialect with queries for native histograms. Queries for single buckets find none."""
    metrics = tuple(dict.fromkeys(metric for metric, _ in _histograms(dialect)))

    def convert_all(queries: Any) -> dict[Role, Query]:
        native_queries: dict[Role, Query] = {}
        for role, query in queries.items():
            if role == "buckets":
                native_queries |= {name: _quantile(query, share, metrics) for name, share in SHARES.items()}
            else:
                native_queries[role] = replace(query, promql=_convert(query.promql, metrics))
        return native_queries

    signature = tuple(_convert(series, metrics) for series in dialect.signature)
    return replace(
        dialect,
        name=f"{dialect.name}{SUFFIX}",
        services=convert_all(dialect.services),
        calls=convert_all(dialect.calls),
        signature=signature,
        beside=tuple(native(part) for part in dialect.beside),
    )


def count_buckets(dialect: Dialect) -> Query | None:
    """Return the query for the number of a mesh's buckets; None: the dialect reads none."""
    texts = [f"count({metric}_bucket{selector})" for metric, selector in _histograms(dialect)]
    return Query(" or ".join(texts), ()) if texts else None


def count_native(dialect: Dialect) -> Query:
    """Return the query for the number of native histograms. A Prometheus without them refuses it."""
    texts = (f"count(histogram_count({metric}{selector}))" for metric, selector in _histograms(dialect))
    return Query(" or ".join(texts), ())


def _histograms(dialect: Dialect) -> list[tuple[str, str]]:
    """Return the metrics and selectors of the buckets that are read; services come first."""
    texts = (query.promql for queries in (dialect.services, dialect.calls) for query in queries.values())
    return list(dict.fromkeys(pair for text in texts for pair in _BUCKETS.findall(text)))


def _quantile(query: Query, share: float, metrics: tuple[str, ...]) -> Query:
    views = query.views or ((query.promql, 1.0),)
    texts = []
    for promql, unit in views:
        histogram = _convert(promql, metrics)
        histogram = _GROUPING.sub(lambda match: f"{match[1]} ({_without_bounds(match[2])})", histogram)
        quantile = f"histogram_quantile({share:g}, {histogram})"
        texts.append(quantile if unit == 1 else f"{quantile} * {unit:g}")
    return Query(" or ".join(texts), query.labels, query.unit, joined_by="max")


def _without_bounds(labels: str) -> str:
    return ", ".join(label for label in labels.split(", ") if label != "le")


def _convert(promql: str, metrics: tuple[str, ...]) -> str:
    for metric in metrics:
        for part in ("count", "sum"):
            of_part = rf"rate\({metric}_{part}({BRACES})(\[\$\w+\])\)"
            promql = re.sub(of_part, rf"histogram_{part}(rate({metric}\1\2))", promql)
        promql = re.sub(rf"\b{metric}_(bucket|count|sum)({BRACES})", _whole_histogram, promql)
    return promql


def _whole_histogram(match: re.Match[str]) -> str:
    text, part, selector = match[0], match[1], match[2]
    if _BOUND.search(re.sub(TEXT, '""', selector)):
        return text  # a single bucket is not part of it
    return f"{text.removesuffix(f'_{part}{selector}')}{selector}"
