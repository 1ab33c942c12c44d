"""The detector's response to each fault and change, in words, and whether it was right.

``lab.evaluation`` decides which alerts and notices belong to a fault, and which alerts are false.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from lab.demo.state import CHANGE_SNAPSHOTS, DemoState
from lab.demo.story import FIRST_SUSPECTS, MeshEvent, event_text, name_suspects
from lab.evaluation.measures.located import AlertRecord, FaultOutcome, LocatedRun, false_pages, fault_outcomes
from lab.evaluation.measures.ranking import place, within
from lab.simulator.events.faults import Fault


@dataclass(frozen=True, slots=True)
class EventOutcome:
    """The outcome of an event so far; ``right`` is None while it is open."""

    text: str
    right: bool | None = None


def outcome(state: DemoState, event: MeshEvent) -> EventOutcome:
    """Return the outcome of a fault, which should raise an alert or a notice, or of a change, which should raise no
    alert."""
    return _fault_outcome(state, event) if isinstance(event, Fault) else _change_outcome(state, event.at)


def tally(state: DemoState) -> str:
    """Return the detector's score over all faults that have ended."""
    run = state.run([fault for fault in state.faults if fault.end < state.next_index])
    outcomes = list(zip(fault_outcomes(run), fault_outcomes(run.with_notices_alone()), strict=True))
    diagnoses = sum(within(alert.place, FIRST_SUSPECTS) for alert, _ in outcomes)
    notices = sum(alert.page is None and notice.page is not None for alert, notice in outcomes)
    misses = sum(alert.page is None and notice.page is None for alert, notice in outcomes)
    false = len(false_pages(state.run(state.faults)))
    return (
        f"{len(outcomes)} fault{'s' * (len(outcomes) != 1)}: {diagnoses} diagnosed, "
        f"{f'{notices} noticed, ' if notices else ''}{misses} missed; "
        f"{false} false alert{'s' * (false != 1)}"
    )


def conclude(state: DemoState) -> DemoState:
    """Add the outcome of each fault that ends with the newest snapshot, and judge the story if it does: right if its
    fault raised an alert, and no alert was false."""
    chapter, newest = state.chapter, state.snapshots[-1].index
    endings = [fault for fault in state.faults if fault.end == newest and chapter is None]
    news = (*state.news, *(("ended", f"{event_text(fault)}: {outcome(state, fault).text}") for fault in endings))
    if chapter is None or state.next_index != chapter.end:
        return replace(state, news=news)
    run, result = state.run([chapter.fault]), outcome(state, chapter.fault)
    if false := false_pages(run):
        result = EventOutcome(f"false alert, {_suspects(false[0])}", False)
    elif not run.pages:
        result = EventOutcome("no alert", False)
    judgement = "PASS" if result.right else "FAIL", f"{event_text(chapter.fault)}: {result.text}"
    return replace(state, passed=bool(result.right), chapter=None, news=(*news, judgement))


def _fault_outcome(state: DemoState, fault: Fault) -> EventOutcome:
    """Return a right outcome if each alert on the fault has the culprit among its first suspects, as last shown.
    Further alerts disturb a person again, but do not mislead: the text counts them."""
    if not state.snapshots:
        return EventOutcome("not detected yet")
    run = state.run([fault])
    (alert,), (notice,) = fault_outcomes(run), fault_outcomes(run.with_notices_alone())
    if alert.page is not None:
        false = set(false_pages(run))
        pages = [page for page in run.pages if page not in false]
        for page in pages:
            if not within(place(fault.service, page.suspects), FIRST_SUSPECTS):
                return EventOutcome(f"alert, but {_suspects(page)}", False)
        further = f"; {len(pages) - 1} further alert{'s' * (len(pages) != 2)} on the same fault" if pages[1:] else ""
        return EventOutcome(f"alert within {_delay(run, alert)}, culprit is suspect {alert.place}{further}", True)
    if notice.page is not None:
        return EventOutcome(f"notice within {_delay(run, notice)}, no alert", True)
    if state.next_index <= fault.end:
        return EventOutcome("not detected yet")
    return EventOutcome("missed", False)


def _change_outcome(state: DemoState, at: int) -> EventOutcome:
    if state.next_index <= at:
        return EventOutcome("begins now")
    first, last = state.time_of(at), state.time_of(at + CHANGE_SNAPSHOTS)
    if any(first <= page.begin <= last for page in false_pages(state.run(state.faults))):
        return EventOutcome("FALSE ALERT", False)
    return EventOutcome("no alert", True)


def _suspects(page: AlertRecord) -> str:
    return f"the suspects are {name_suspects(page.suspects)}"


def _delay(run: LocatedRun, fault_outcome: FaultOutcome) -> str:
    """Return the time from a fault's start to a snapshot's end, by the mesh's clock."""
    return f"{((fault_outcome.delay or timedelta()) + run.step).total_seconds():.0f} s"
