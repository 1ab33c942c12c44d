"""What the service does about a missed target: it steers the admission of pushes, one step at a time.

Each step changes a factor of the limit of admission, within the bounds of the settings:

* While ``p95`` or ``p99`` is missed, it is halved, as often as times are twice too long. If work waits in a queue, the
  wait gets shorter by as much.
* While pushes are refused although they are fast, it is doubled. Bursts then wait a moment and are not refused.

A step is on trial. It stays only if it brings more verdicts on time than it costs verdicts. Otherwise it is taken back,
and its kind rests: a store that is slow without a queue gets no faster by refusing pushes.

Steps are undone one factor of two at a time, when the service could do without: the times would keep the target even
if they doubled, or nothing is refused. With twice the requests under way, a queue is twice as long, so a step back
cannot miss a target which the service keeps by a factor of two. Every change must be wished for a while, so noise
around a target changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, log
from typing import Literal

from serve_app.deployments.sla.recent import RECENT_SECONDS, RecentLevel
from serve_app.settings.sla import SlaSettings

STEP = 2.0
SETTLE_SECONDS = RECENT_SECONDS + 10.0  # after a step, until all that is recent has happened since gates know of it
REST_SECONDS = 300.0  # of a kind of step that did not help; twice as long after each further time
LONGEST_REST_SECONDS = 3600.0
LEAST_PUSHES = 20  # recent ones, to judge times by
SHED_SHARE = 0.01  # of the recent pushes; more are too many
MORE = 1.1  # verdicts on time, as a factor, if a step has helped; less may be chance
Kind = Literal["tighten_admission", "widen_admission"]
TIGHTEN: Kind = "tighten_admission"
WIDEN: Kind = "widen_admission"


class Wish(StrEnum):
    """A change of the factor."""

    TIGHTEN = "tighten"
    WIDEN = "widen"
    UNDO = "undo"  # a factor of two of either


# For which a change must be wished. What a trial is compared with is then all of the time of trouble.
PATIENCE_SECONDS = {Wish.TIGHTEN: RECENT_SECONDS, Wish.WIDEN: RECENT_SECONDS, Wish.UNDO: 2 * RECENT_SECONDS}


@dataclass(frozen=True, slots=True)
class Miss:
    """A target that is missed now.

    Attributes:
        objective: name.
        value: in its unit.
        excess: value by target; 1: it does not miss a target of its own.
    """

    objective: str
    value: float
    excess: float = 1.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What was before the last step, while this is on trial.

    Attributes:
        factor: of the limit of admission.
        level: of the last seconds.
    """

    factor: float
    level: RecentLevel


@dataclass(frozen=True, slots=True)
class Rest:
    """A kind of step that did not help.

    Attributes:
        seconds: length of the rest.
        until: when it may be tried again, s of a monotonic clock.
    """

    seconds: float = REST_SECONDS / 2
    until: float = float("-inf")

    def again(self, clock: float) -> "Rest":
        """The next rest, which begins now."""
        seconds = min(2 * self.seconds, LONGEST_REST_SECONDS)
        return Rest(seconds, clock + seconds)


@dataclass(frozen=True, slots=True)
class Steering:
    """The steps in force.

    Attributes:
        factor: of the limit of admission: below 1, it is tightened; above, widened.
        reason: of the first step; None: the factor is 1.
        changed_at: when the factor last changed, s of a monotonic clock.
        trial: of the last step; None: it is over.
        wish: the change that is wished for.
        wished_at: since when, s of a monotonic clock.
        rests: of kinds of steps that did not help when they were last tried.
    """

    factor: float = 1.0
    reason: Miss | None = None
    changed_at: float = float("-inf")
    trial: Trial | None = None
    wish: Wish | None = None
    wished_at: float = float("-inf")
    rests: Mapping[Kind, Rest] = field(default_factory=dict)

    @property
    def kind(self) -> Kind | None:
        """The kind of the steps in force; None: there are none."""
        if self.factor == 1:
            return None
        return TIGHTEN if self.factor < 1 else WIDEN


def steer(now: Steering, level: RecentLevel, sla: SlaSettings, clock: float) -> Steering:
    """The steps in force from now on: the same, one more, or one less.

    Args:
        now: the steps in force.
        level: of the last seconds.
        sla: targets and bounds.
        clock: s of a monotonic clock.
    """
    if clock - now.changed_at < SETTLE_SECONDS:
        return now
    if now.trial is not None and now.kind is not None:
        others = {kind: rest for kind, rest in now.rests.items() if kind != now.kind}
        if not _has_helped(now.trial.level, level):
            rest = now.rests.get(now.kind, Rest()).again(clock)
            return _change(replace(now, rests={**others, now.kind: rest}), now.trial.factor, clock)
        now = replace(now, trial=None, rests=others)
    wish, reason = _wish(now, level, sla)
    if wish is not now.wish:
        return replace(now, wish=wish, wished_at=clock)
    if wish is None or clock - now.wished_at < PATIENCE_SECONDS[wish]:
        return now
    if wish is Wish.UNDO or (wish is Wish.TIGHTEN and now.factor > 1):
        return _change(now, min(1.0, now.factor * STEP) if now.factor < 1 else max(1.0, now.factor / STEP), clock)
    assert reason is not None
    kind, step = (TIGHTEN, STEP ** -ceil(log(reason.excess, STEP))) if wish is Wish.TIGHTEN else (WIDEN, STEP)
    factor = min(max(now.factor * step, sla.least_admission), sla.most_admission)
    if factor == now.factor or clock < now.rests.get(kind, Rest()).until:
        return now
    return replace(_change(now, factor, clock), trial=Trial(now.factor, level), reason=now.reason or reason)


def _wish(now: Steering, level: RecentLevel, sla: SlaSettings) -> tuple[Wish | None, Miss | None]:
    """The change that the level calls for, and the reason for one more step."""
    miss = _missed_time(level, sla, 1.0)
    if miss is not None:
        return Wish.TIGHTEN, miss
    is_shedding = level.shed > SHED_SHARE * level.pushes
    has_slack = _missed_time(level, sla, 1 / STEP) is None
    if is_shedding and has_slack:
        return (Wish.WIDEN, Miss("requests_per_second", level.served)) if now.factor >= 1 else (Wish.UNDO, None)
    return (None if is_shedding or now.factor == 1 else Wish.UNDO), None


def _missed_time(level: RecentLevel, sla: SlaSettings, share: float) -> Miss | None:
    """The first target of times of which this share is missed; None as well if too little is known."""
    if level.pushes < LEAST_PUSHES:
        return None
    times = (("p95", level.p95, sla.p95_seconds), ("p99", level.p99, sla.p99_seconds))
    return next(
        (Miss(name, at, at / target) for name, at, target in times if at is not None and at > share * target), None
    )


def _has_helped(before: RecentLevel, level: RecentLevel) -> bool:
    """Whether more verdicts are on time, by more than there are fewer in all."""
    gain, loss = level.on_time - before.on_time, before.served - level.served
    return level.on_time >= MORE * before.on_time and gain > 0 and gain >= loss


def _change(now: Steering, factor: float, clock: float) -> Steering:
    reason = None if factor == 1 else now.reason
    return replace(now, factor=factor, reason=reason, changed_at=clock, trial=None, wish=None)
