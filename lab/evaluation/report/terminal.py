"""The results as tables for a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.evaluation.measures.intervals import Difference
from lab.evaluation.report.tables import Block, blocks, by_kind, difference, headline, headline_words
from lab.evaluation.run import Pool

MOST_ROWS = 30  # recordings and notes


def print_results(found: Sequence[Pool], reference: str, console: Console) -> None:
    """Print all figures by form, then the main figures of each recording."""
    for pool in found:
        _print_pool(pool, console)
        compared = pool.compare_with(reference)
        if compared:
            _print_compared(reference, compared, console)


def _print_pool(pool: Pool, console: Console) -> None:
    results = list(pool.metrics.values())
    first = results[0]
    services = (
        f"{first.services[0]}" if len(set(first.services)) == 1 else f"{first.services[0]} to {first.services[1]}"
    )
    what = pool.sheets[0].name if len(pool.sheets) == 1 else f"{len(pool.sheets)} recordings"
    console.print(
        f"\n[bold]{escape(what)}[/] ({pool.form}): {first.incidents} incidents, {first.snapshots} snapshots, "
        f"{services} services"
    )
    for name, one in pool.metrics.items():
        console.print(f"  {escape(name)}: " + ", ".join(f"{n} {status}" for status, n in one.status.items()))
        for note in one.notes[:MOST_ROWS]:
            console.print(f"  [yellow]{escape(name)}: {escape(note)}[/]")
    console.print(_table(blocks(results), list(pool.metrics)))
    if kinds := by_kind(results):
        console.print(_table(kinds, list(pool.metrics), "by kind"))
    if len(pool.sheets) > 1:
        console.print(_recordings(pool))
        if len(pool.sheets) > MOST_ROWS:
            console.print(f"and {len(pool.sheets) - MOST_ROWS} more; --json has all")


def _table(content: Sequence[Block], names: Sequence[str], title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in names:
        table.add_column(escape(name), justify="right", no_wrap=True)
    for block in content:
        table.add_row(f"[dim]{escape(block.title)}[/]", *[""] * len(names))
        for row in block.rows:
            cells = (f"[bold green]{c}[/]" if i in row.best else c for i, c in enumerate(map(escape, row.cells)))
            table.add_row(f"  {escape(row.name)}", *cells)
    return table


def _recordings(pool: Pool) -> Table:
    words = headline_words(next(iter(pool.metrics.values())))
    table = Table(title=f"by recording: {words}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in pool.metrics:
        table.add_column(escape(name), justify="right", no_wrap=True)
    for sheet in pool.sheets[:MOST_ROWS]:
        table.add_row(f"  {escape(sheet.name)}", *(headline(one) for one in sheet.metrics.values()))
    return table


def _print_compared(reference: str, compared: dict[str, dict[str, Difference]], console: Console) -> None:
    table = Table(title=f"{escape(reference)} minus", title_justify="left", box=None, pad_edge=False)
    for name in ("", "", "difference", f"only {reference}", "only the other"):
        table.add_column(escape(name), justify="left" if not name else "right", no_wrap=True)
    for other, differences in compared.items():
        for i, (name, apart) in enumerate(differences.items()):
            table.add_row(
                f"  {escape(other)}" if not i else "",
                name.replace("top", "top-"),
                difference(apart),
                str(apart.only_first),
                str(apart.only_second),
            )
    console.print(table)
