"""Settings of the audit log."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class AuditSettings(SettingsGroup):
    """The audit log, in the store: who changed what, and who signed in."""

    keep_days: float = Field(365.0, gt=0, le=36_500, description="days for which a record is kept")
