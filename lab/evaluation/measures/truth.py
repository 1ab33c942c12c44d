"""A recording's ground truth: a label for each snapshot, and incidents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from lab.evaluation.measures.located import GRACE, LocatedFault

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

FAULT, NORMAL, UNSCORED, TAIL = 1, 0, -1, -2  # labels; the tail follows the last incident and is not labelled
GUARD = timedelta(minutes=2)  # after a stream's incident: an alarm there counts as found, no alarm is no error
TICK = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Form(StrEnum):
    """A recording's form, which decides what can be measured.

    ``STREAM``: one application, incidents in continuous time. ``SEGMENTS``: pieces whose first snapshot is normal, the
    second ambiguous and the others faulty; detection there proves nothing. ``LOCATED``: incidents that name the
    affected services. ``NORMAL``: no incident.
    """

    STREAM = "stream"
    SEGMENTS = "segments"
    LOCATED = "located"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Span:
    """A labelled incident.

    Attributes:
        start, end: first and last instant with it.
        culprit: node id; None if unknown.
        symptom: metric that shows it; empty if unknown.
        segment: first and last instant of its piece, only for ``SEGMENTS``.
        guarded_until: end of its guard; None: the usual guard after ``end``.
    """

    start: datetime
    end: datetime
    kind: str
    culprit: str | None
    symptom: str = ""
    segment: tuple[datetime, datetime] | None = None
    guarded_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """An incident's snapshots, by index: ``inside`` it, and ``wide``, in which an alarm finds it."""

    span: Span
    inside: Ints
    wide: Ints


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """A recording with its labels.

    Attributes:
        times: of the snapshots, microseconds since 1970, int64 ``[T]``.
        step: usual time between two snapshots.
        labels: int64 ``[T]``: ``FAULT``, ``NORMAL``, ``UNSCORED`` or ``TAIL``.
        windows: of the incidents, by start.
        first_rows: the normal snapshot of each segment.
        faults: only for ``LOCATED``.
        silent: bool ``[T]``; whether telemetry is missing by plan, or was until ``GRACE`` ago.
        begin: earlier snapshots are not evaluated.
    """

    name: str
    form: Form
    times: Ints
    step: timedelta
    services: frozenset[str]
    labels: Ints
    windows: tuple[Window, ...] = ()
    first_rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    faults: tuple[LocatedFault, ...] = ()
    silent: Flags = field(default_factory=lambda: np.empty(0, np.bool_))
    begin: datetime = _EPOCH

    @property
    def breaks(self) -> Flags:
        """Whether time jumps by more than one and a half steps before each snapshot; ``[T]``."""
        return np.diff(self.times, prepend=self.times[:1]) > 1.5 * self.step / TICK

    def instant(self, index: int) -> datetime:
        return _EPOCH + timedelta(microseconds=int(self.times[index]))


def ground_truth(
    name: str,
    form: Form,
    times: Sequence[datetime],
    step: timedelta,
    services: Iterable[str],
    spans: Sequence[Span] = (),
    *,
    guard: timedelta = timedelta(0),
    unscored: Sequence[tuple[datetime, datetime]] = (),
    faults: Sequence[LocatedFault] = (),
    silences: Sequence[tuple[datetime, datetime]] = (),
    begin: datetime = _EPOCH,
) -> GroundTruth:
    """Label every snapshot of a recording.

    Args:
        guard: after each incident, cut short by the next one.
        unscored: first and last instants of spans with doubtful labels.
        silences: first instant without some telemetry, and the first with it again.
        begin: earlier incidents and snapshots are left out, for example because the detectors learn from them.

    Raises:
        ValueError: a segment has fewer than three snapshots.
    """
    at = np.array([microseconds(time) for time in times], np.int64)
    spans = sorted((span for span in spans if span.start >= begin), key=lambda span: span.start)
    labels = np.full(len(at), UNSCORED if form is Form.SEGMENTS else NORMAL, np.int64)
    windows = [
        _piece(span, at) if form is Form.SEGMENTS else _window(span, after, at, guard)
        for span, after in zip(spans, [*spans[1:], None], strict=False)
    ]
    for window in windows:
        labels[window.wide] = np.where(labels[window.wide] == FAULT, FAULT, UNSCORED)
        labels[window.inside] = FAULT
    first = np.array([_within(at, *span.segment)[0] for span in spans if span.segment], np.int64)
    labels[first] = NORMAL
    if form is Form.STREAM and spans:
        labels[at > microseconds(max(span.end for span in spans) + guard)] = TAIL
    for first_doubt, last_doubt in [*unscored, (_EPOCH, begin - TICK)]:
        rows = _within(at, first_doubt, last_doubt)
        labels[rows] = np.where(labels[rows] == FAULT, FAULT, UNSCORED)
    evaluated_faults = tuple(fault for fault in faults if fault.start >= begin)
    silent = np.zeros(len(at), np.bool_)
    for begin_of_silence, back in silences:
        silent[_within(at, begin_of_silence, back - TICK + GRACE)] = True
    return GroundTruth(
        name, form, at, step, frozenset(services), labels, tuple(windows), first, evaluated_faults, silent, begin
    )


def microseconds(time: datetime) -> int:
    return (time - _EPOCH) // TICK


def _within(at: Ints, begin: datetime, end: datetime) -> Ints:
    return np.flatnonzero((at >= microseconds(begin)) & (at <= microseconds(end)))


def _window(span: Span, after: Span | None, at: Ints, guard: timedelta) -> Window:
    stop = span.guarded_until or span.end + guard
    if after is not None and stop >= after.start:  # the next one begins inside the guard
        stop = max(span.end, after.start - TICK)
    return Window(span, _within(at, span.start, span.end), _within(at, span.start, stop))


def _piece(span: Span, at: Ints) -> Window:
    begin, end = span.segment or (span.start, span.end)
    rows = _within(at, begin, end)
    if len(rows) < 3:
        raise ValueError(
            f"segment {begin.isoformat()} to {end.isoformat()}: expected a normal snapshot, an ambiguous one and "
            f"faulty ones, got {len(rows)} snapshots; correct segment_start and segment_end"
        )
    return Window(span, rows[2:], rows[2:])
