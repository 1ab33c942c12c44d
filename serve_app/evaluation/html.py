"""Judgements as one page of HTML with pictures and without anything from elsewhere: to be read, sent, printed."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from html import escape

from model.evaluate.intervals import Difference
from model.evaluate.judged import RecordingResult
from model.evaluate.located import outcomes
from model.evaluate.series import VerdictSeries
from model.evaluate.truth import Form, GroundTruth
from serve_app.evaluation import charts as plots
from serve_app.evaluation.measures import Block, blocks, by_kind, difference, headline, headline_words
from serve_app.evaluation.run import Pool, Sheet
from serve_app.evaluation.words import NOTHING
from serve_app.web import html
from serve_app.web.html import figure, key

STYLE = """
:root { --missed: #e9b7b0; --alarm: #0b62a8; --false: #c2410c; --idle: #c9ced4; --best: #06632f; --first: #0b62a8;
  --third: #7fb2dc; --fifth: #cfe1f1 }
@media screen and (prefers-color-scheme: dark) { :root { --missed: #6b2f2a; --alarm: #6cb6f5; --false: #ff8a4c;
  --idle: #4a525b; --best: #6fcf97; --first: #8cc8ff; --third: #3f79ab; --fifth: #24435f } }
.several { display: flex; flex-wrap: wrap; gap: 1.5rem } .several figure { width: 300px; margin: 0 }
.several svg { display: block; width: 100%; height: auto }
table { border-collapse: collapse; font-size: .9rem }
th, td { padding: .1rem .7rem; white-space: pre; text-align: left }
.figures td, .figures thead th { text-align: right } td { font-variant-numeric: tabular-nums }
th { font-weight: 400 } thead th { border-bottom: 1px solid var(--soft); font-weight: 600 }
tr.block th { color: var(--soft); padding-top: .7rem } td.best { font-weight: 700; color: var(--best) }
tr.missed { color: var(--false) }
svg .incident.missed, .key.missed { fill: var(--missed); background: var(--missed) }
svg text.missed { fill: var(--false); font-weight: 700 }
svg .alarm, .key.alarm { fill: var(--alarm); background: var(--alarm) }
svg .alarm.false, .key.false { fill: var(--false); background: var(--false) }
svg .unknown, .key.unknown { fill: var(--idle); background: var(--idle) }
svg .page { fill: var(--alarm); stroke: var(--alarm) } svg .page.false { fill: none; stroke: var(--false) }
svg .doubt, .key.doubt { fill: var(--rule); background: var(--rule); fill-opacity: .5 }
svg .stem { stroke: var(--score) }
svg .dot { fill: var(--score); fill-opacity: .55; stroke: var(--score) }
svg .first, .key.first { fill: var(--first); background: var(--first) }
svg .third, .key.third { fill: var(--third); background: var(--third) }
svg .fifth, .key.fifth { fill: var(--fifth); background: var(--fifth) }
svg .culprit { fill: none; stroke: var(--false); stroke-width: 1.4 }
.key.culprit { border: 1.5px solid var(--false) }
.true-page { color: var(--alarm) } .false-page { color: var(--false) }
"""


def page(found: Sequence[Pool], reference: str) -> str:
    """The whole document."""
    body = "".join(_pool(pool, reference) for pool in found)
    return document("How the detectors did", _summary(found) + body)


def document(title: str, body: str) -> str:
    """A page with our style and nothing else."""
    return html.document(title, f"<h1>{escape(title)}</h1>{body}", STYLE)


def drawn(detector: str, truth: GroundTruth, series: VerdictSeries, judged: RecordingResult) -> str:
    """The pictures of one detector on one recording, with how to read them."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{truth.name}-{detector}".lower())
    figures = [figure(plots.scores(truth, series, judged, name), _of_scores(truth, judged))]
    figures += [figure(svg, _OF_SUSPECTS) for svg in plots.suspects(truth, series, judged, name)]
    return "".join(figures)


def table(told: Sequence[Block], names: Sequence[str]) -> str:
    """Measures in rows, detectors in columns, the best ones marked."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for block in told:
        body += f'<tr class="block"><th colspan="{len(names) + 1}">{escape(block.title)}</th></tr>'
        for row in block.rows:
            cells = "".join(
                f"<td{' class=best' if i in row.best else ''}>{escape(cell)}</td>" for i, cell in enumerate(row.cells)
            )
            body += f"<tr><th>{escape(row.name)}</th>{cells}</tr>"
    return _table("figures", f"<tr><th></th>{head}</tr>", body)


def _summary(found: Sequence[Pool]) -> str:
    """What one looks at first."""
    rows = "".join(
        f"<tr><th>{escape(_name(pool))}</th><td>{escape(name)}</td><td>{headline(one)}</td>"
        f"<td>{escape(headline_words(one))}</td></tr>"
        for pool in found
        for name, one in pool.figures.items()
    )
    return _table("summary", "<tr><th>recordings</th><th>detector</th><th></th><th></th></tr>", rows)


def _pool(pool: Pool, reference: str) -> str:
    told, names = list(pool.figures.values()), list(pool.figures)
    first = told[0]
    mesh = " to ".join(f"{services:,}" for services in dict.fromkeys(first.services))
    about = f"{first.incidents} incidents in {first.snapshots:,} snapshots of {mesh} services: "
    about += ", ".join(sheet.name for sheet in pool.sheets)
    said = [f"{name}: {note}" for name, one in pool.figures.items() for note in one.notes]
    notes = "".join(f"<p>{escape(one)}</p>" for one in said)
    kinds = by_kind(told)
    parts = [
        f'<h2>{escape(_name(pool))}</h2><p class="about">{escape(about)}</p>{notes}{table(blocks(told), names)}',
        f"<h3>By kind of incident</h3>{table(kinds, names)}" if kinds else "",
        _compared(reference, pool.compared(reference)),
        reliabilities(pool),
        *(_sheet(sheet) for sheet in pool.sheets),
    ]
    return "".join(parts)


def _name(pool: Pool) -> str:
    return f"{pool.sheets[0].name if len(pool.sheets) == 1 else f'{len(pool.sheets)} recordings'} ({pool.form})"


def _compared(reference: str, compared: dict[str, dict[str, Difference]]) -> str:
    rows = "".join(
        f"<tr><th>{escape(other)}</th><td>{name.replace('top', 'top-')}</td><td>{difference(apart)}</td>"
        f"<td>{apart.only_first}</td><td>{apart.only_second}</td></tr>"
        for other, told in compared.items()
        for name, apart in told.items()
    )
    head = f"<tr><th></th><th></th><th>difference</th><th>only {escape(reference)}</th><th>only the other</th></tr>"
    return f"<h3>{escape(reference)} minus, incident by incident</h3>{_table('summary', head, rows)}" if rows else ""


def reliabilities(pool: Pool) -> str:
    """How the probabilities of each detector came true; empty where there was no incident, or nobody said any."""
    drawn = [
        figure(
            plots.reliability(one.forecast, f"Reliability of {name}", re.sub(r"\W+", "-", f"{pool.form}-{name}")),
            f"<b>{escape(name)}</b>: Brier score {one.forecast.brier:.3f}; the base rate alone has "
            f"{one.forecast.brier_of_base_rate:.3f}.",
            "",
        )
        for name, one in pool.figures.items()
        if one.forecast is not None and one.forecast.base_rate > 0
    ]
    if not drawn:
        return ""
    told = (
        "A dot is a tenth of the range of <code>probability</code>, as large as its share of the snapshots: rightwards "
        "what was said, upwards how often it was so. On the dashed line the probability means what it says; above it "
        "there was more trouble than it said, below it less."
    )
    return f'<h3>Does probability come true?</h3><p class="about">{told}</p><div class="several">{"".join(drawn)}</div>'


def _sheet(sheet: Sheet) -> str:
    parts = [f"<h3>{escape(sheet.name)}</h3>"]
    for name, judged in sheet.judged.items():
        drawn = sheet.pictures[name]
        parts.append(f"<h4>{escape(name)}</h4>{drawn}{_incidents(judged)}" if drawn else "")
    return "".join(parts) if any(sheet.pictures.values()) else ""


def _incidents(judged: RecordingResult) -> str:
    """One row for each incident: what was wrong, how late it was told, at which place the culprit was named."""
    columns = ("", "from (UTC)", "for", "kind", "culprit", "found", "culprit named")
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = ""
    for i, (begin, length, kind, culprit, found, place) in enumerate(_rows(judged), 1):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (begin, length, kind, culprit, found, place))
        rows += f"<tr{' class=missed' if found == 'no' else ''}><th>{i}</th>{cells}</tr>"
    return _table("incidents", f"<tr>{head}</tr>", rows) if rows else ""


def _rows(judged: RecordingResult) -> Iterable[tuple[str, ...]]:
    if judged.form is Form.LOCATED and judged.watch is not None:
        for told in outcomes(judged.watch):
            fault = told.fault
            kind = f"{fault.kind}, {fault.effect:.0f} sigmas" if fault.effect == fault.effect else fault.kind
            found = "no" if told.delay is None else f"after {told.delay.total_seconds():.0f} s"
            length = _length(fault.end - fault.start)
            yield f"{fault.start:%d %b %H:%M:%S}", length, kind, fault.culprit, found, _place(told.place)
        return
    for outcome in judged.outcomes:
        span = outcome.span
        found = "no" if outcome.delay is None else f"in snapshot {outcome.delay + 1}"
        yield (
            f"{span.start:%d %b %H:%M:%S}", _length(span.end - span.start), span.kind, span.culprit or "unknown", found,
            _place(outcome.place),
        )  # fmt: skip


def _length(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _place(place: int | None) -> str:
    return NOTHING if place is None else f"no. {place}"


def _table(class_: str, head: str, body: str) -> str:
    return f'<div class="wide"><table class="{class_}"><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _of_scores(truth: GroundTruth, judged: RecordingResult) -> str:
    """How to read the scores."""
    told = [
        f"{key('line')} the strangest thing in the mesh at each snapshot, {key('dashed')} the threshold then.",
        f"{key('incident')} incidents by number, {key('missed')} those that were not found."
        if judged.outcomes
        else "No incident.",
        f"Below, {key('alarm')} the detector said anomalous"
        + (f", {key('false')} so where nothing was wrong" if truth.form is not Form.LOCATED else "")
        + f"; {key('unknown')} it was warming up. {key('doubt')} Not judged.",
    ]
    if truth.form is Form.STREAM:
        told.append("What follows the last incident is drawn closer together.")
    if judged.watch is not None:
        told.append(
            '<span class="true-page">▼</span> a page about an incident, <span class="false-page">▽</span> about '
            "nothing. The threshold is shown, it pages nobody."
        )
    return " ".join(told)


_OF_SUSPECTS = (
    "A column is an incident by its number, with its time running to the right; a row is a service, culprits on top. "
    f"{key('first')} ranked first, {key('third')} second or third, {key('fifth')} fourth or fifth; "
    f"{key('culprit')} the culprit. The more of a frame is filled with the first shade, the better."
)
