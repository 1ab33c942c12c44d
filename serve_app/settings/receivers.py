"""Options for each kind of receiver."""

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import AccessSettings, Address, Location


class WebhookSettings(AccessSettings):
    """An HTTP endpoint that receives incidents as JSON. Its URL is used unchanged."""

    url: Address = Field(description="URL of the endpoint")
    secret_file: Location | None = Field(
        None, description="file with the key that signs each request (HMAC-SHA256); none: unsigned"
    )
    format: Literal["event", "slack"] = Field(
        "event", description="event: the whole event as JSON; slack: a message for Slack's incoming webhooks"
    )


class GrafanaSettings(AccessSettings):
    """A Grafana that shows incidents as annotations."""

    url: Address = Field(description="its base URL")


class PagerDutySettings(AccessSettings):
    """A PagerDuty service with an Events API v2 integration."""

    url: Address = Field(
        "https://events.pagerduty.com/v2/enqueue",
        description="where events are posted; in the European region https://events.eu.pagerduty.com/v2/enqueue",
    )
    routing_key_file: Location = Field(description="file with the integration key, read again for each event")

    @model_validator(mode="after")
    def _logs_in_with_its_key(self) -> Self:
        if self.username or self.bearer_token_file:
            raise ValueError("expected routing_key_file alone, got username or bearer_token_file too; remove it")
        return self


class SlackSettings(AccessSettings):
    """A Slack channel, and an app that may write there."""

    url: Address = Field("https://slack.com/api", description="base URL of the Web API")
    bearer_token_file: Location = Field(description="file with the app's bot token (xoxb-...)")
    channel: str = Field(pattern="^[CG][A-Z0-9]{6,20}$", description="id of the channel, from its details in Slack")
