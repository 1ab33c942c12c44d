"""The detector's response to each fault and each change, in words, and whether it was right."""

from dataclasses import dataclass

from lab.demo.state import CHANGE_SNAPSHOTS, DemoState, is_false_alert
from lab.demo.story import FIRST_SUSPECTS, FaultFinding, MeshEvent, find_cause
from lab.simulator.events.faults import Fault

ORDINALS = ("first", "second", "third")  # rank of the culprit


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
    """Return the score of the detector over all faults that have ended."""
    ended = [finding for finding in state.findings if finding.fault.end < state.next_index]
    diagnosed = sum(finding.named_at is not None for finding in ended)
    undiagnosed = [
        finding.fault for finding in ended if finding.named_at is None and not _incidents_of(state, finding.fault)
    ]
    noticed = sum(bool(_notices_of(state, fault)) for fault in undiagnosed)
    false = sum(is_false_alert(state, raised) for raised in state.raised)
    return (
        f"{len(ended)} fault{'s' * (len(ended) != 1)}: {diagnosed} diagnosed, "
        f"{f'{noticed} noticed, ' if noticed else ''}{len(undiagnosed) - noticed} missed; "
        f"{false} false alert{'s' * (false != 1)}"
    )


def _incidents_of(state: DemoState, fault: Fault) -> list[int]:
    """Snapshots in which incidents about a fault began."""
    return [one.index for one in state.raised if find_cause(one, state.faults, state.interval_seconds) == fault]


def _notices_of(state: DemoState, fault: Fault) -> list[int]:
    """Snapshots in which notices at the culprit of a fault began."""
    return [
        one.index
        for one in state.noticed
        if fault.service in one.suspects[:FIRST_SUSPECTS]
        and find_cause(one, [fault], state.interval_seconds) is not None
    ]


def _fault_outcome(state: DemoState, fault: Fault) -> EventOutcome:
    finding = next((finding for finding in state.findings if finding.fault == fault), FaultFinding(fault))
    own = _incidents_of(state, fault)
    if finding.named_at is not None and finding.rank is not None:
        rank = f"culprit ranked {ORDINALS[finding.rank - 1]}"
        if own:
            return EventOutcome(f"alert within {_delay(state, fault, min(own))}, {rank}", True)
        return EventOutcome(f"{rank} within {_delay(state, fault, finding.named_at)}, in an open incident", True)
    if own:
        return EventOutcome("alert, but the culprit was not named", False)
    if noticed := _notices_of(state, fault):
        return EventOutcome(f"notice within {_delay(state, fault, min(noticed))}, no alert", True)
    if state.next_index <= fault.end:
        return EventOutcome("not detected yet")
    return EventOutcome("missed", False)


def _change_outcome(state: DemoState, at: int) -> EventOutcome:
    if any(at <= one.index <= at + CHANGE_SNAPSHOTS and is_false_alert(state, one) for one in state.raised):
        return EventOutcome("FALSE ALERT", False)
    if state.next_index <= at:
        return EventOutcome("begins now")
    return EventOutcome("no alert", True)


def _delay(state: DemoState, fault: Fault, index: int) -> str:
    """From the start of a fault to the end of a snapshot, in the mesh's time."""
    return f"{(index - fault.start + 1) * state.interval_seconds:.0f} s"
