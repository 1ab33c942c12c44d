"""A reason from the schedule of regular work of a service."""

from datetime import UTC, datetime

from model.incidents.schedule import Schedule, Work, is_overdue
from model.verdict import OVERDUE, Reason


def overdue_reason(schedule: Schedule, name: str, now: datetime, interval_seconds: float) -> tuple[Reason, ...]:
    """Return why a service has a notice although it uses nothing: its regular work did not run. Empty if it did.

    Args:
        schedule: the snapshot included.
        name: id of the service.
        now: time of the snapshot.
        interval_seconds: between snapshots.
    """
    work = schedule.works.get(name, Work())
    if not is_overdue(work, now.timestamp(), interval_seconds):
        return ()
    return (
        Reason(
            metric=OVERDUE,
            observed=now.timestamp() - work.came,
            expected=work.period,
            since=datetime.fromtimestamp(work.came, UTC),
        ),
    )
