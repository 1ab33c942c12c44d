"""Options of the receivers that settings choose by kind: PagerDuty, Opsgenie, an app of Slack."""

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import AccessSettings, Address, Location, SettingsGroup


class PagerDutySettings(AccessSettings):
    """A service of PagerDuty with an integration of the kind Events API v2."""

    url: Address = Field(
        "https://events.pagerduty.com/v2/enqueue",
        description="where events are posted; in the European region https://events.eu.pagerduty.com/v2/enqueue",
    )
    routing_key_file: Location = Field(description="file with the integration key, read again for each event")
    notices: bool = Field(True, description="whether to send notices too, with the severity info")

    @model_validator(mode="after")
    def _logs_in_with_its_key(self) -> Self:
        if self.username or self.bearer_token_file:
            raise ValueError("expected routing_key_file alone, got username or bearer_token_file too; remove it")
        return self


class Responder(SettingsGroup):
    """Someone whom Opsgenie notifies."""

    type: Literal["team", "user", "escalation", "schedule"] = Field(description="what it is")
    id: str = Field("", description="its id; or its name")
    name: str = Field("", description="its name; of a user the e-mail address")

    @model_validator(mode="after")
    def _has_one_name(self) -> Self:
        if bool(self.id) == bool(self.name):
            raise ValueError(f"expected id or name, got {'both' if self.id else 'neither'}")
        return self

    def document(self) -> dict[str, str]:
        """Return it as Opsgenie takes it."""
        name = "username" if self.type == "user" else "name"
        return {"type": self.type, **({"id": self.id} if self.id else {name: self.name})}


class OpsgenieSettings(AccessSettings):
    """An integration of Opsgenie of the kind API."""

    url: Address = Field(
        "https://api.opsgenie.com",
        description="base URL of the API; in the European region https://api.eu.opsgenie.com, with Jira Service "
        "Management https://api.atlassian.com/jsm/ops/integration",
    )
    api_key_file: Location = Field(description="file with the integration's API key, read again for each request")
    responders: tuple[Responder, ...] = Field(
        (), max_length=50, description="whom an alert is routed to; none: as the integration says"
    )
    tags: tuple[str, ...] = Field((), max_length=15, description="further tags of each alert")
    notices: bool = Field(True, description="whether to send notices too, with the priority P5")

    @model_validator(mode="after")
    def _logs_in_with_its_key(self) -> Self:
        if self.username or self.bearer_token_file:
            raise ValueError("expected api_key_file alone, got username or bearer_token_file too; remove it")
        return self


class SlackSettings(AccessSettings):
    """A channel of Slack, and an app that may write there."""

    url: Address = Field("https://slack.com/api", description="base URL of the Web API")
    bearer_token_file: Location = Field(description="file with the app's bot token (xoxb-...)")
    channel: str = Field(pattern="^[CG][A-Z0-9]{6,20}$", description="id of the channel, from its details in Slack")
    notices: bool = Field(True, description="whether to send notices too")
    pictures: bool = Field(True, description="whether to add the picture of an incident; it needs tagae[pictures]")
