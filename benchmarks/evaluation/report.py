"""One page of HTML without anything from elsewhere: every measure of every detector, part by part."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from benchmarks.contenders import NAMES, contender
from benchmarks.evaluation.judging import Part
from benchmarks.evaluation.measures import label
from serve_app.evaluation.measures import Block, blocks, by_kind

STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 2rem } th, td { padding: .15rem .7rem; white-space: pre }
td { text-align: right; font-variant-numeric: tabular-nums } th { text-align: left; font-weight: 600 }
thead th { border-bottom: 1px solid #999; text-align: right } tr.block th { color: #777; padding-top: .7rem }
tbody th { font-weight: 400 }
td.best { font-weight: 700; color: #06632f }
dt { font-weight: 600 } .wide { overflow-x: auto }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } td.best { color: #6fcf97 }
}
"""


def page(parts: Sequence[Part]) -> str:
    """The whole document."""
    about = "".join(
        f"<dt>{escape(contender(name).LABEL)}</dt><dd>{escape(contender(name).SUMMARY)}</dd>" for name in NAMES
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Detection</title>'
        f"<style>{STYLE}</style><h1>Detection</h1>{''.join(map(_section, parts))}"
        f"<h2>Contenders</h2><dl>{about}</dl></html>\n"
    )


def write(path: Path, parts: Sequence[Part]) -> None:
    """To a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(parts), encoding="utf-8")


def _section(part: Part) -> str:
    figures = part.pool.figures
    told, names = list(figures.values()), [label(name) for name in figures]
    first, size = told[0], told[0].services
    mesh = f"{size[0]:,}" if size[0] == size[1] else f"{size[0]:,} to {size[1]:,}"
    count = f"{first.snapshots:,} snapshots, {first.incidents} incidents"
    about = f"{len(part.pool.sheets)} recordings of {mesh} services: {count}"
    tables = _table(blocks(told), names) + "".join(
        f"<h3>by kind</h3>{_table(kinds, names)}" for kinds in [by_kind(told)] if kinds
    )
    return f"<h2>{escape(part.name)}</h2><p>{about}</p>{tables}"


def _table(told: Sequence[Block], names: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for block in told:
        body += f'<tr class="block"><th colspan="{len(names) + 1}">{escape(block.title)}</th></tr>'
        for row in block.rows:
            cells = "".join(
                f"<td{' class=best' if i in row.best else ''}>{escape(cell)}</td>" for i, cell in enumerate(row.cells)
            )
            body += f"<tr><th>{escape(row.name)}</th>{cells}</tr>"
    return f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
