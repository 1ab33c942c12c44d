"""Settings for the tools with a mesh's logs and traces."""

from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from serve_app.net.endpoint import Endpoint
from serve_app.net.query_template import check_query
from serve_app.settings.base import AccessSettings, Address

LOGQL = '{namespace="$namespace", service_name="$service"} |~ "(?i)(error|exception|fatal|panic)"'
TRACEQL = (
    '{ resource.service.name = "$service" && (resource.k8s.namespace.name = "$namespace" || '
    'resource.service.namespace = "$namespace") && status = error } | select(span.http.response.status_code, '
    "span.http.status_code, span.rpc.grpc.status_code, statusMessage)"
)


class ToolSettings(AccessSettings):
    """A tool that the page queries when someone looks at a suspect."""

    KINDS: ClassVar[tuple[str, ...]]  # names of the settings with a tool's address

    @property
    def kind(self) -> str | None:
        """The kind of the tool; None: there is none."""
        return next((kind for kind in self.KINDS if getattr(self, kind)), None)

    @property
    def target(self) -> Endpoint:
        """The tool's server, which must be configured."""
        return self.endpoint(getattr(self, str(self.kind)))

    @property
    def name(self) -> str:
        """``Loki at loki.example:3100``."""
        return f"{str(self.kind).capitalize()} at {urlsplit(self.target.url).netloc}"

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        kinds = [kind for kind in self.KINDS if getattr(self, kind)]
        if len(kinds) > 1 or (not kinds and self.model_dump() != type(self).model_construct().model_dump()):
            raise ValueError(f"expected one of {', '.join(self.KINDS)}, got {' and '.join(kinds) or 'none'}")
        return self


class MeshLogSettings(ToolSettings):
    """A mesh's logs: a suspect on the page shows the newest error lines."""

    KINDS = ("loki",)

    loki: Address | None = Field(None, description="base URL of Loki; none: the page shows no log lines")
    query: str = Field(
        LOGQL,
        description="LogQL for a service's error lines; $namespace and $service, inside double quotes, stand for its "
        "names",
    )

    @model_validator(mode="after")
    def _has_a_query(self) -> Self:
        check_query(self.query)
        return self


class MeshTraceSettings(ToolSettings):
    """A mesh's traces: a suspect on the page shows a failed trace."""

    KINDS = ("tempo", "jaeger")

    tempo: Address | None = Field(None, description="base URL of Tempo; none: the page shows no trace")
    jaeger: Address | None = Field(
        None, description="base URL of Jaeger's query service, or of another tool with its API, instead of Tempo"
    )
    query: str = Field(
        "",
        description="TraceQL for a service's failing spans, with the same placeholders. For Jaeger, the service's name "
        f"there, such as $service.$namespace. Empty: `{TRACEQL}`, and for Jaeger $service",
    )

    @property
    def chosen_query(self) -> str:
        return self.query or ("$service" if self.jaeger else TRACEQL)

    @model_validator(mode="after")
    def _has_a_query(self) -> Self:
        check_query(f'"{self.chosen_query}"' if self.jaeger else self.chosen_query)
        return self
