"""Settings for the service's own traces and log lines."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from serve_app.settings.base import Address, Location, SettingsGroup

TRACES_PATH = "/v1/traces"  # of OTLP over HTTP


class LogSettings(SettingsGroup):
    """Log lines of all processes."""

    format: Literal["text", "json"] = Field("text", description="json: one JSON object a line")


class TraceSettings(SettingsGroup):
    """Traces of snapshots, with the time of each step."""

    endpoint: Address | None = Field(
        None,
        description="URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; "
        f"without a path, {TRACES_PATH} is added; none: no traces",
    )
    headers_file: Location | None = Field(
        None, description="file with headers for the collector, one `name: value` a line; read again for each request"
    )
    ca_file: Location | None = Field(None, description="CA bundle to use instead of the system store (PEM)")

    @property
    def url(self) -> str:
        """The URL to which spans are posted; empty if there is none."""
        if self.endpoint is None:
            return ""
        bare = self.endpoint.rstrip("/")
        return self.endpoint if urlsplit(bare).path else bare + TRACES_PATH
