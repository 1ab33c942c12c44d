"""The report: one page of HTML without external files, with every measure of every detector."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from lab.comparison.parts import Part
from lab.comparison.rows import label
from lab.contenders import NAMES, contender
from lab.evaluation.report.html import document, reliabilities, table
from lab.evaluation.report.tables import blocks, by_kind


def page(parts: Sequence[Part]) -> str:
    """Return the whole document."""
    about = "".join(
        f"<dt>{escape(contender(name).LABEL)}</dt><dd>{escape(contender(name).SUMMARY)}</dd>" for name in NAMES
    )
    body = "".join(map(_section, parts))
    return document("Detection", f"{body}<h2>Contenders</h2><dl>{about}</dl>")


def write(path: Path, parts: Sequence[Part]) -> None:
    """Write the report to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(parts), encoding="utf-8")


def _section(part: Part) -> str:
    metrics = part.pool.metrics
    columns, names = list(metrics.values()), [label(name) for name in metrics]
    first, size = columns[0], columns[0].services
    mesh = f"{size[0]:,}" if size[0] == size[1] else f"{size[0]:,} to {size[1]:,}"
    count = f"{first.snapshots:,} snapshots, {first.incidents} incidents"
    about = f"{len(part.pool.sheets)} recordings of {mesh} services: {count}"
    tables = table(blocks(columns), names) + "".join(
        f"<h3>By kind</h3>{table(kinds, names)}" for kinds in [by_kind(columns)] if kinds
    )
    return f'<h2>{escape(part.name)}</h2><p class="about">{about}</p>{tables}{reliabilities(part.pool)}'
