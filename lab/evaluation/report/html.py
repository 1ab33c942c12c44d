"""The results as one page of HTML with charts, in one file that needs no other."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from html import escape

from lab.evaluation.measures.intervals import Difference
from lab.evaluation.measures.located import FaultOutcome, fault_outcomes
from lab.evaluation.measures.recording import RecordingResult
from lab.evaluation.measures.series import VerdictSeries
from lab.evaluation.measures.truth import Form, GroundTruth
from lab.evaluation.report import charts
from lab.evaluation.report.cells import NOTHING
from lab.evaluation.report.tables import Block, blocks, by_kind, difference, headline, headline_words
from lab.evaluation.run import Pool, Sheet
from serve_app.drawing import html
from serve_app.drawing.html import figure

STYLE = """
:root { --missed: #c2410c; --best: #06632f }
@media screen and (prefers-color-scheme: dark) { :root { --missed: #ff8a4c; --best: #6fcf97 } }
figure img { display: block; max-width: 100%; min-width: 640px; background: #fff }
.several { display: flex; flex-wrap: wrap; gap: 1.5rem } .several figure { margin: 0 } .several img { min-width: 0 }
table { border-collapse: collapse; font-size: .9rem }
th, td { padding: .1rem .7rem; white-space: pre; text-align: left }
.figures td, .figures thead th { text-align: right } td { font-variant-numeric: tabular-nums }
th { font-weight: 400 } thead th { border-bottom: 1px solid var(--soft); font-weight: 600 }
tr.block th { color: var(--soft); padding-top: .7rem } td.best { font-weight: 700; color: var(--best) }
tr.missed { color: var(--missed) }
"""


def page(found: Sequence[Pool], reference: str) -> str:
    """Return the whole document."""
    body = "".join(_pool(pool, reference) for pool in found)
    return document("Evaluation of detectors", _summary(found) + body)


def document(title: str, body: str) -> str:
    """Return a page with the style of evaluations."""
    return html.document(title, f"<h1>{escape(title)}</h1>{body}", STYLE)


def draw_charts(truth: GroundTruth, series: VerdictSeries, result: RecordingResult) -> str:
    """Return the charts of one detector on one recording, with how to read them."""
    scores = "The highest anomaly score in the mesh at each snapshot, and the threshold. Below, the status of the mesh."
    if truth.form is Form.LOCATED:
        scores += " Alerts are raised for services; the score of the mesh alone raises none."
    suspects = (
        "A column is an incident, with time running to the right; a row is a service, culprits on top. The more of a "
        "culprit's frame is dark, the better."
    )
    figures = [figure(charts.draw_scores(truth, series, result), scores)]
    figures += [figure(image, suspects) for image in charts.draw_suspects(truth, series, result)]
    return "".join(figures)


def table(content: Sequence[Block], names: Sequence[str]) -> str:
    """Return a table with measures in rows and detectors in columns; the best values are marked."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for block in content:
        body += f'<tr class="block"><th colspan="{len(names) + 1}">{escape(block.title)}</th></tr>'
        for row in block.rows:
            cells = "".join(
                f"<td{' class=best' if i in row.best else ''}>{escape(cell)}</td>" for i, cell in enumerate(row.cells)
            )
            body += f"<tr><th>{escape(row.name)}</th>{cells}</tr>"
    return _table("figures", f"<tr><th></th>{head}</tr>", body)


def _summary(found: Sequence[Pool]) -> str:
    """The main figures."""
    rows = "".join(
        f"<tr><th>{escape(_name(pool))}</th><td>{escape(name)}</td><td>{headline(one)}</td>"
        f"<td>{escape(headline_words(one))}</td></tr>"
        for pool in found
        for name, one in pool.metrics.items()
    )
    return _table("summary", "<tr><th>recordings</th><th>detector</th><th></th><th></th></tr>", rows)


def _pool(pool: Pool, reference: str) -> str:
    results, names = list(pool.metrics.values()), list(pool.metrics)
    first = results[0]
    mesh = " to ".join(f"{services:,}" for services in dict.fromkeys(first.services))
    about = f"{first.incidents} incidents in {first.snapshots:,} snapshots of {mesh} services: "
    about += ", ".join(sheet.name for sheet in pool.sheets)
    notes = "".join(f"<p>{escape(f'{name}: {note}')}</p>" for name, one in pool.metrics.items() for note in one.notes)
    kinds = by_kind(results)
    parts = [
        f'<h2>{escape(_name(pool))}</h2><p class="about">{escape(about)}</p>{notes}{table(blocks(results), names)}',
        f"<h3>By kind of incident</h3>{table(kinds, names)}" if kinds else "",
        _comparison_rows(reference, pool.compare_with(reference)),
        reliabilities(pool),
        *(_sheet(sheet) for sheet in pool.sheets),
    ]
    return "".join(parts)


def _name(pool: Pool) -> str:
    return f"{pool.sheets[0].name if len(pool.sheets) == 1 else f'{len(pool.sheets)} recordings'} ({pool.form})"


def _comparison_rows(reference: str, compared: dict[str, dict[str, Difference]]) -> str:
    rows = "".join(
        f"<tr><th>{escape(other)}</th><td>{name.replace('top', 'top-')}</td><td>{difference(apart)}</td>"
        f"<td>{apart.only_first}</td><td>{apart.only_second}</td></tr>"
        for other, differences in compared.items()
        for name, apart in differences.items()
    )
    head = f"<tr><th></th><th></th><th>difference</th><th>only {escape(reference)}</th><th>only the other</th></tr>"
    return f"<h3>{escape(reference)} minus, incident by incident</h3>{_table('summary', head, rows)}" if rows else ""


def reliabilities(pool: Pool) -> str:
    """Return a chart of the predicted probabilities of each detector; empty without incidents or predictions."""
    images = [
        figure(
            charts.draw_reliability(one.forecast, f"Reliability of {name}"),
            f"<b>{escape(name)}</b>: Brier score {one.forecast.brier:.3f}; the base rate alone has "
            f"{one.forecast.brier_of_base_rate:.3f}.",
        )
        for name, one in pool.metrics.items()
        if one.forecast is not None and one.forecast.base_rate > 0
    ]
    if not images:
        return ""
    about = (
        "A dot is a tenth of the range of <code>probability</code>; its area is its share of the snapshots. Dots on "
        "the dashed line are well calibrated. Above it, incidents were more frequent than predicted; below it, less."
    )
    head = f'<h3>Is the probability calibrated?</h3><p class="about">{about}</p>'
    return f'{head}<div class="several">{"".join(images)}</div>'


def _sheet(sheet: Sheet) -> str:
    parts = [f"<h3>{escape(sheet.name)}</h3>"]
    for name, result in sheet.results.items():
        if sheet.charts[name]:
            parts.append(f"<h4>{escape(name)}</h4>{sheet.charts[name]}{_incidents(result)}")
    return "".join(parts) if any(sheet.charts.values()) else ""


def _incidents(result: RecordingResult) -> str:
    """A table with one row for each incident: its kind, its delay, the rank of its culprit."""
    columns = ("", "start (UTC)", "duration", "kind", "culprit", "found", "rank of the culprit")
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = ""
    for i, (begin, length, kind, culprit, found, rank) in enumerate(_rows(result), 1):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (begin, length, kind, culprit, found, rank))
        rows += f"<tr{' class=missed' if found == 'no' else ''}><th>{i}</th>{cells}</tr>"
    return _table("incidents", f"<tr>{head}</tr>", rows) if rows else ""


def _rows(result: RecordingResult) -> Iterable[tuple[str, ...]]:
    if result.form is Form.LOCATED and result.run is not None:
        notices = fault_outcomes(result.run.with_notices_alone())
        for outcome, noticed in zip(fault_outcomes(result.run), notices, strict=True):
            fault = outcome.fault
            kind = f"{fault.kind}, {fault.effect:.0f} sigmas" if fault.effect == fault.effect else fault.kind
            found = _detection_text(outcome, noticed)
            length = _length(fault.end - fault.start)
            yield f"{fault.start:%d %b %H:%M:%S}", length, kind, fault.culprit, found, _rank(outcome.place)
        return
    for one in result.outcomes:
        span = one.span
        found = "no" if one.delay is None else f"in snapshot {one.delay + 1}"
        yield (
            f"{span.start:%d %b %H:%M:%S}", _length(span.end - span.start), span.kind, span.culprit or "unknown", found,
            _rank(one.place),
        )  # fmt: skip


def _detection_text(outcome: FaultOutcome, noticed: FaultOutcome) -> str:
    if outcome.delay is not None:
        return f"after {outcome.delay.total_seconds():.0f} s"
    return "no" if noticed.delay is None else f"by a notice, after {noticed.delay.total_seconds():.0f} s"


def _length(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _rank(place: int | None) -> str:
    return NOTHING if place is None else str(place)


def _table(class_: str, head: str, body: str) -> str:
    return f'<div class="wide"><table class="{class_}"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
