"""Settings for links to other tools."""

from typing import Annotated

from pydantic import AfterValidator, Field

from serve_app.net.link_template import check_template, check_trace_template
from serve_app.settings.base import SettingsGroup

LinkTemplate = Annotated[str, AfterValidator(check_template)]
TraceLinkTemplate = Annotated[str, AfterValidator(check_trace_template)]


class LinkSettings(SettingsGroup):
    """URL templates of links to other tools, on the page, in reports and in alerts.

    The placeholders are {cluster}, {mesh}, {namespace}, {service} (name without namespace), {start_ms} and {end_ms}
    (Unix time), {incident} and {kind}. A link that needs an unknown value is omitted.
    """

    dashboard: LinkTemplate | None = Field(None, description="dashboard of a service")
    traces: LinkTemplate | None = Field(None, description="traces of a service")
    logs: LinkTemplate | None = Field(None, description="logs of a service")
    trace: TraceLinkTemplate | None = Field(
        None, description="one trace on the card of a suspect; {trace} stands for its id, which this link must have"
    )
    runbook: LinkTemplate | None = Field(None, description="runbook for a service, an incident or its kind")
