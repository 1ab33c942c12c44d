"""Checks whether the receivers of notifications can be reached, without sending anything to people."""

import asyncio
from collections.abc import Iterator

from serve_app.alerts import receiver_trials
from serve_app.collect.base import Finding
from serve_app.errors import BadSettings
from serve_app.settings import Settings

REMEDY = "start the receiver, or correct its entry in [notify]; until then its notifications wait"


def check_receivers(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each receiver of the settings."""
    try:
        statuses = asyncio.run(receiver_trials.check_receivers(settings))
    except BadSettings as error:
        yield Finding("notify", "problem", str(error), "correct the setting")
        return
    for one in statuses:
        subject = f"receiver {one.kind}"
        if one.failed:
            yield Finding(subject, "problem", f"{one.name} takes no notifications: {one.detail or one.failed}", REMEDY)
        else:
            yield Finding(subject, "ok", f"{one.name} answers; tagae notify test sends a test alert")
