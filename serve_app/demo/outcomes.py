"""What became of what was done to the mesh, in words, and whether it is as it should be."""

from dataclasses import dataclass

from serve_app.demo.show import FADING, Show
from serve_app.demo.story import Deed, FaultFinding, ShownIncident, about, begins
from serve_app.simulator.events.faults import Fault

ORDINALS = ("first", "second", "third")  # of the FIRST_SUSPECTS


@dataclass(frozen=True, slots=True)
class DeedOutcome:
    """What came of a deed so far; ``right`` is None as long as nobody can tell."""

    text: str
    right: bool | None = None


def outcome(show: Show, deed: Deed) -> DeedOutcome:
    """What came of a fault, which should page somebody, or of a change, which should not."""
    return _of_fault(show, deed) if isinstance(deed, Fault) else _of_change(show, deed.at)


def is_wrong(show: Show, page: ShownIncident) -> bool:
    """Whether a page is about no fault."""
    return about(page, show.faults, show.interval_seconds) is None


def tally(show: Show) -> str:
    """The faults that are over and the changes that have begun, and what the detector made of them."""
    over = [finding for finding in show.findings if finding.fault.end < show.next_index]
    silent = sum(finding.named is None and not show.is_paged(finding.fault) for finding in over)
    changes = sum(not isinstance(deed, Fault) and deed.at < show.next_index for deed in show.deeds)
    wrong = sum(is_wrong(show, page) for page in show.pages)
    return (
        f"false pages {wrong}; faults over {len(over)}, "
        f"named {sum(finding.named is not None for finding in over)}, unnoticed {silent}; changes {changes}"
    )


def _of_fault(show: Show, fault: Fault) -> DeedOutcome:
    finding = next((finding for finding in show.findings if finding.fault == fault), FaultFinding(fault))
    own = [page.index for page in show.pages if about(page, show.faults, show.interval_seconds) == fault]
    if finding.named is not None and finding.rank is not None:
        who = f"culprit named {ORDINALS[finding.rank - 1]}"
        if own:
            return DeedOutcome(f"paged within {_seconds(show, fault, min(own))}, {who}", True)
        return DeedOutcome(f"{who} within {_seconds(show, fault, finding.named)}, in an incident that was open", True)
    if own:
        return DeedOutcome("paged, but the culprit is not named", False)
    if show.next_index <= fault.end:
        return DeedOutcome("not noticed yet")
    return DeedOutcome("not noticed", False)


def _of_change(show: Show, at: int) -> DeedOutcome:
    if any(at <= page.index <= at + FADING and is_wrong(show, page) for page in show.pages):
        return DeedOutcome("somebody was paged: WRONG", False)
    if show.next_index <= at:
        return DeedOutcome("begins now")
    return DeedOutcome("nobody paged", True)


def _seconds(show: Show, fault: Fault, index: int) -> str:
    """From a fault's begin to a snapshot, in the mesh's time."""
    return f"{(index - begins(fault) + 1) * show.interval_seconds:.0f} s"
