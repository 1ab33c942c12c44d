"""What a person sees of the demo: a show drawn to fit a terminal of any size."""

import math
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from serve_app.api.schemas.verdict import IncidentDocument, SuspectDocument, VerdictDocument
from serve_app.demo.chart import chart
from serve_app.demo.keys import CONTROLS, SURPRISE, Option
from serve_app.demo.lines import clock, number
from serve_app.demo.outcomes import outcome, tally
from serve_app.demo.show import WARM_UP, Show
from serve_app.demo.story import FIRST_SUSPECTS, Deed, begins, deed_text
from serve_app.simulator.events.faults import Fault

BANNER = {"normal": "bold black on green", "anomalous": "bold white on red", "warming_up": "bold black on cyan"}
TWO_COLUMNS = 120  # cells from which on truth and log stand beside the incidents
ROOMY = 24  # lines from which on there is one for the page's address
EASING = 0.5  # probability of an incident below which an open one is easing off
BAR = 8  # cells of a suspect's score
OUTCOMES = {True: "bold green", False: "bold red", None: "yellow"}  # right, wrong, not known yet
DETAIL = ((5, 3), (4, 2), (3, 2), (3, 1), (2, 1), (1, 1))  # suspects and reasons of each, as many as there is room for

Lines = list[Text]


def render(show: Show, width: int, height: int) -> RenderableType:
    """The show in ``height`` lines of ``width`` cells; nothing is wider, and what has no room is left out."""
    lines = (_help if show.controls.help else _picture)(show, width, height)
    fitted = [_fitted(line, width) for line in lines[:height]]
    return Group(*fitted, *(Text() for _ in range(height - len(fitted))))


def _picture(show: Show, width: int, height: int) -> Lines:
    """From the most urgent to the least: what is wrong and where, the score, suspects, truth, log, keys."""
    keys = _menu(show, width, max(2, height // 4)) if show.keys else []
    page = [Text.assemble((" in the browser ", "dim"), (show.page, "bold"))] if show.page and height >= ROOMY else []
    rows = height - len(keys) - len(page) - 3  # the rest, below title, banner and score
    drawn = max(3, min(16, rows // 4))
    below = rows - drawn
    head = [_title(show, width), _banner(show, width), _score(show), *page, *chart(show, width, drawn)]
    if width < TWO_COLUMNS:
        truth = _truth(show, width)[: max(3, below // 4)]
        logged = max(1, (below - len(truth)) // 4)
        found = _incidents(show, width, below - len(truth) - logged)
        logs = _log(show, below - len(truth) - len(found))
        room = below - len(found) - len(truth) - len(logs)  # the keys stay at the bottom, where hands look for them
        return [*head, *found, *truth, *logs, *(Text() for _ in range(room)), *keys]
    half = width * 11 // 20
    truth = [*_truth(show, width - half - 2)[:below], Text()]
    right = [_fitted(line, width - half - 2) for line in (*truth, *_log(show, below - len(truth)))]
    return [*head, *_beside(_incidents(show, half, below), right, half, below), *keys]


def _title(show: Show, width: int) -> Text:
    controls = show.controls
    pace = "paused" if controls.paused else f"{controls.speed:g} times real time" if controls.speed else "at full speed"
    scene = show.scenes[-1] if show.scenes else None
    right = f"snapshot {scene.index}  {clock(scene)} UTC  {pace}" if scene else pace
    left = Text("TAGAE demo  ", "bold").append(show.title, "dim")
    left.truncate(max(0, width - len(right) - 2), overflow="ellipsis", pad=True)
    return left.append(f"  {right}", "bold yellow" if controls.paused else "")


def _banner(show: Show, width: int) -> Text:
    """What is wrong and where, in one line of one colour."""
    if not show.scenes:
        text, style = " waiting for the first verdict", BANNER["warming_up"]
    else:
        verdict = show.scenes[-1].verdict
        text = f" {verdict.status.replace('_', ' ').upper()}  {_news(show, verdict)}"
        style = "" if _is_easing(verdict) else BANNER.get(verdict.status, "")
    line = Text(text, style or "bold black on yellow")
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def _news(show: Show, verdict: VerdictDocument) -> str:
    if verdict.incidents:
        worst, *others = verdict.incidents
        if _is_easing(verdict):
            suspects = next(page.suspects for page in show.pages if page.incident == worst.id)
            return f"easing off; at its worst it was {suspects[0] if suspects else 'nowhere in particular'}"
        more = f" (and {len(others)} more incident{'s' * (len(others) > 1)})" if others else ""
        return f"{_first_suspect(worst)}{more}"
    if show.next_index <= WARM_UP:
        return f"learning what is normal here: {show.next_index} of {WARM_UP} quiet snapshots"
    if verdict.threshold is not None and verdict.mesh_score > verdict.threshold:
        return "nothing to page about: the score alone pages nobody"
    return "no incident is open"


def _is_easing(verdict: VerdictDocument) -> bool:
    """Whether an incident is open only because it has not been quiet for long enough: who leads it now says little."""
    return bool(verdict.incidents) and verdict.probability < EASING


def _first_suspect(incident: IncidentDocument) -> str:
    if not incident.suspects:
        return f"{len(incident.affected)} services are not as usual"
    first = incident.suspects[0]
    return f"{first.service}: {first.reasons[0].text}" if first.reasons else first.service


def _score(show: Show) -> Text:
    if not show.scenes:
        return Text()
    scene = show.scenes[-1]
    verdict = scene.verdict
    above = verdict.threshold is not None and verdict.mesh_score > verdict.threshold
    return Text.assemble(
        (f" score {verdict.mesh_score:.1f}", "bold red" if above else "bold"),
        f", threshold {number(verdict.threshold)}, probability {verdict.probability:.0%}, "
        f"took {scene.milliseconds:.0f} ms",
    )


def _incidents(show: Show, width: int, rows: int) -> Lines:
    """Every open incident with its suspects, in as much detail as there is room for."""
    incidents = show.scenes[-1].verdict.incidents if show.scenes else []
    if not incidents:
        return _calm(show, width)[:rows]
    for suspects, reasons in DETAIL:
        lines = [line for incident in incidents for line in _incident(show, incident, width, suspects, reasons)]
        if len(lines) <= rows:
            break
    return lines[: max(0, rows)]


def _calm(show: Show, width: int) -> Lines:
    """Where no incident is open: who would be suspected, and the last incident."""
    lines = [_heading("nothing is paged", width)]
    suspects = show.scenes[-1].verdict.suspects if show.scenes else []
    if suspects:
        why = f": {suspects[0].reasons[0].text}" if suspects[0].reasons else ""
        lines.append(Text(f" least as usual: {suspects[0].service}{why}", "dim"))
    if show.pages:
        page = show.pages[-1]
        lines.append(Text(f" the last: {page.incident}, suspects {', '.join(page.suspects[:FIRST_SUSPECTS])}", "dim"))
    return lines


def _incident(show: Show, incident: IncidentDocument, width: int, suspects: int, reasons: int) -> Lines:
    open_for = (show.scenes[-1].verdict.observed_at - incident.since).total_seconds()
    head = f"{incident.severity} incident {incident.id}, {_duration(open_for)}"
    lines = [_heading(head, width, "bold red")]
    shown = incident.suspects[:suspects]
    name_width = max((len(suspect.service) for suspect in shown), default=0)
    for rank, suspect in enumerate(shown, 1):
        lines += _suspect(rank, suspect, width, name_width, reasons)
    lines.append(Text(f" affected: {len(incident.affected)}; {_changes(incident)}", "dim"))
    return lines


def _suspect(rank: int, suspect: SuspectDocument, width: int, name_width: int, reasons: int) -> Lines:
    """The reasons stand beside the name where there is room for a sentence, else below it."""
    bar = "█" * round(suspect.score * BAR)
    style = "bold" if rank == 1 else "" if bar else "dim"
    name = Text.assemble(
        (f" {rank} ", "dim"), (f"{suspect.service:<{name_width}}", style), (f" {bar:<{BAR}}", "red")
    ).append(f" {suspect.score:.2f}  ", style)
    texts = [reason.text for reason in suspect.reasons[: reasons if bar else 1]] or ["no reason stands out"]
    if width - len(name) >= 60:
        first, *others = texts
        return [
            name.append(first, "" if bar else "dim"),
            *(Text(" " * (len(name) - len(first)) + text, "dim") for text in others),
        ]
    return [name, *(Text(f"   {text}", "" if bar else "dim") for text in texts)]


def _changes(incident: IncidentDocument) -> str:
    if not incident.changes:
        return "no planned change is near"
    return "; ".join(change.text for change in incident.changes)


def _truth(show: Show, width: int) -> Lines:
    """What is really going on, and how the detector has done so far."""
    deeds = sorted(filter(show.is_under_way, show.deeds), key=lambda deed: (not isinstance(deed, Fault), -begins(deed)))
    hidden = show.controls.hidden
    lines = [line for deed in deeds if not (hidden and isinstance(deed, Fault)) for line in _deed(show, deed, width)]
    if hidden:
        lines.insert(0, Text(" whether a fault acts is hidden; t tells", "bold magenta"))
    elif not lines:
        lines.append(Text(f" nothing is being done to the mesh{_hint(show)}", "dim"))
    return [Text.assemble(("in truth  ", "bold"), (tally(show), "dim")), *lines]


def _hint(show: Show) -> str:
    chapter = show.chapter
    if chapter and chapter.start > show.next_index:
        return f"; the next chapter of the story begins in {chapter.start - show.next_index} snapshots"
    return "; press a key" if show.keys and not chapter else ""


def _deed(show: Show, deed: Deed, width: int) -> Lines:
    since = show.next_index - begins(deed)
    what = f" {show.mark(deed)} {deed_text(deed)}"
    came = outcome(show, deed)
    if not isinstance(deed, Fault):
        return [Text.assemble((what, "cyan"), f", {_ago(since)}: ", (came.text, OUTCOMES[came.right]))]
    lasts = deed.end - deed.start
    line = Text.assemble((what, "bold yellow"), f", snapshot {min(since, lasts)} of {lasts}")
    told = (came.text, OUTCOMES[came.right])
    if len(line) + len(came.text) + 2 > width:
        return [line, Text.assemble("   ", told)]
    return [line.append(": ").append(*told)]


def _log(show: Show, rows: int) -> Lines:
    """The newest events last."""
    events = [event for event in show.events if not (event.secret and show.controls.hidden)]
    newest = events[-rows:] if rows > 0 else []
    return [
        Text.assemble((f" {clock(event.scene)} ", "dim"), (f"{event.mark or ' '} ", "bold"), (event.text, event.style))
        for event in newest
    ]


def _menu(show: Show, width: int, rows: int) -> Lines:
    """The keys: with the service of each where there is room, else what they do, else the letters alone."""
    notice = show.notice or ("the story tells itself; a key below takes over" if show.controls.story else "")
    line = Text("keys ", "bold").append(notice, "bold cyan")
    foot = _controls()
    for words in (_with_service, _with_words):
        cells = [words(show, option) for option in show.menu]
        grid = _grid(cells, width)
        if len(grid) + 2 <= rows:
            return [line, *grid, foot]
    return [_letters(show, width), Text(show.notice, "bold cyan") if show.notice else foot]


def _with_service(show: Show, option: Option) -> Text:
    return _with_words(show, option).append(
        f" {option.service(show.controls.turn, show.taken, show.spent) or 'none left'}", "dim"
    )


def _with_words(_: Show, option: Option) -> Text:
    return Text.assemble((f" {option.key}", "bold yellow" if option.is_fault else "bold cyan"), f" {option.words}")


def _letters(show: Show, width: int) -> Text:
    """The keys of the menu in one line; without blanks between them where there is no room for blanks."""
    for blank in (" ", ""):
        faults = blank.join(option.key for option in show.menu if option.is_fault)
        changes = blank.join(option.key for option in show.menu if not option.is_fault)
        line = Text.assemble(
            ("?", "bold"), " help  faults ", (faults, "bold yellow"), "  changes ", (changes, "bold cyan")
        )
        if len(line) <= width:
            break
    return line


def _controls() -> Text:
    short = {"\t": "other services", SURPRISE: "surprise", "t": "truth", "a": "story", " ": "pause", ".": "step"}
    line = Text()
    for key in ("?", "q", *short, "+", "-"):
        name, words, _ = CONTROLS[key]
        line.append(f" {name}", "bold").append(f" {short.get(key, 'help' if key == '?' else words)} ")
    return line


def _help(show: Show, width: int, height: int) -> Lines:
    """All keys, and where the next press of each begins."""
    faults = [option for option in show.menu if option.is_fault]
    changes = [option for option in show.menu if not option.is_fault]
    controls = [Text.assemble((f" {name}", "bold"), f" {words}") for name, words, _ in CONTROLS.values()]
    detail: Callable[[Show, Option], Text] = _with_service
    if len(show.menu) + len(controls) + 4 > height:
        detail = _with_words
    return [
        Text("Faults: somebody should be paged, the culprit named", "bold yellow"),
        *_grid([detail(show, option) for option in faults], width),
        Text("Benign changes: nobody should be paged", "bold cyan"),
        *_grid([detail(show, option) for option in changes], width),
        Text("Else", "bold"),
        *_grid(controls, width),
        Text("Below the score: the key of what began, ═ while a fault acts. Red bars: an incident is open.", "dim"),
    ]


def _grid(cells: Sequence[Text], width: int) -> Lines:
    """Cells in columns of one width, in reading order, column after column."""
    cell = max((len(text) for text in cells), default=0) + 1
    columns = max(1, width // cell)
    rows = math.ceil(len(cells) / columns)
    lines = [Text() for _ in range(rows)]
    for i, text in enumerate(cells):
        text.pad_right(cell - len(text))
        lines[i % rows].append_text(text)
    return lines


def _beside(left: Lines, right: Lines, width: int, rows: int) -> Lines:
    lines = []
    for i in range(rows):
        line = Text().append_text(_fitted(left[i], width) if i < len(left) else Text())
        line.pad_right(width - line.cell_len)
        lines.append(line.append("│ ", "dim").append_text(right[i] if i < len(right) else Text()))
    return lines


def _fitted(line: Text, width: int) -> Text:
    fitted = line.copy()
    fitted.truncate(width, overflow="ellipsis")
    fitted.no_wrap, fitted.overflow = True, "crop"
    return fitted


def _heading(text: str, width: int, style: str = "bold") -> Text:
    return Text.assemble((text, style)).append(" " + "─" * max(0, width - len(text) - 2), "dim")


def _duration(seconds: float) -> str:
    return f"open for {seconds / 60.0:.0f} min" if seconds >= 60 else f"open for {seconds:.0f} s"


def _ago(snapshots: int) -> str:
    return "begins now" if snapshots <= 0 else f"{snapshots} snapshot{'s' * (snapshots > 1)} ago"
