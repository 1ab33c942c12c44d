"""Which series of a store belong to a mesh: the selectors of a query, and matchers for them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TEXT = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""  # PromQL's three kinds of strings
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_BRACES = rf"\{{(?:[^\"'`{{}}]|{_TEXT})*\}}"
_RANGE = re.compile(rf"((?:{_NAME})?{_BRACES}|{_NAME})\[\$window\]")
_MATCHED = re.compile(rf"({_NAME})?\{{\$match ?")


@dataclass(frozen=True, slots=True)
class Match:
    """Matchers of the series of one mesh.

    Attributes:
        values: allowed values by label; literal, never patterns.
        lacking: labels of ``values`` that no series of a metric has, by metric. Such a label would leave nothing of
            the metric, so it does not restrict it.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lacking: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def matchers(self, metric: str = "") -> str:
        """Matchers for a metric, each with a comma behind it: ``cluster="prod",``. Empty without a restriction."""
        without = self.lacking.get(metric, frozenset())
        return "".join(_matcher(label, values) for label, values in self.values.items() if label not in without)

    def apply(self, promql: str) -> str:
        """Replace each ``$match`` with the matchers of its selector's metric."""
        promql = _MATCHED.sub(lambda found: f"{found[1] or ''}{{{self.matchers(found[1] or '')}", promql)
        promql = promql.replace("$match ", self.matchers()).replace("$match", self.matchers())
        return promql.replace("{}", "")


EVERYTHING = Match()


def _matcher(label: str, values: tuple[str, ...]) -> str:
    if len(values) == 1:
        return f'{label}="{escape(values[0])}",'
    return f'{label}=~"{escape("|".join(map(re.escape, values)))}",'


def escape(expression: str) -> str:
    """Escape text for a string in PromQL."""
    return expression.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def range_selectors(promql: str) -> tuple[str, ...]:
    """The selectors of a query whose rates are over ``$window``, each once."""
    return tuple(dict.fromkeys(_RANGE.findall(promql)))


def matched_metrics(promql: str) -> Iterator[str]:
    """Names of the metrics that a query selects with ``$match``."""
    yield from (name for name in _MATCHED.findall(promql) if name)
