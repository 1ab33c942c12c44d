"""Settings for a mesh's source: its Prometheus, dialects and queries."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from serve_app.net.endpoint import Endpoint
from serve_app.plugins import SOURCES
from serve_app.settings.base import AccessSettings, Address, Location, ServiceId, SettingsGroup
from serve_app.settings.roles import Role

LabelName = Annotated[str, Field(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")]
KubernetesLabel = Annotated[str, Field(pattern="^([a-z0-9.-]+/)?[A-Za-z0-9][A-Za-z0-9_.-]*$")]
LabelValues = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(lambda values: (values,) if isinstance(values, str) else values),
]

PromQL = Annotated[str, Field(min_length=1)]

AUTO, GENERIC = "auto", "generic"


def _known_sources(sources: object) -> object:
    """Refuse unknown names in one sentence: the types alone would list every name twice."""
    names = (AUTO, *SOURCES.own, GENERIC)
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if source in names:
            continue
        plugins = [name for name in SOURCES.names() if name not in names]
        if source not in plugins:
            raise ValueError(f"expected {', '.join((*names, *plugins))}, or a list of them, got {source!r}")
        SOURCES.check_name(str(source))
    return sources


class GenericSettings(SettingsGroup):
    """Queries for a mesh of another kind; see `serve_app/collect/prometheus/dialects/` for examples."""

    service_labels: tuple[str, ...] = Field(
        ("namespace", "service"),
        min_length=2,
        max_length=2,
        description="labels for namespace and name; =text is a constant",
    )
    call_labels: tuple[str, ...] = Field(
        ("source_namespace", "source", "destination_namespace", "destination"),
        min_length=4,
        max_length=4,
        description="labels for the source's namespace and name, then the destination's",
    )
    services: dict[Role, PromQL] = Field(
        description="PromQL for an instant vector of services, by role; requests is required. $window stands for the "
        "rate window, $match in a selector for the matchers of `match`"
    )
    calls: dict[Role, PromQL] = Field(description="the same for calls")
    bucket_unit: float = Field(1.0, gt=0, description="unit of bucket bounds, s: 0.001 for milliseconds")

    @model_validator(mode="after")
    def _has_requests(self) -> Self:
        for name, queries in (("services", self.services), ("calls", self.calls)):
            if "requests" not in queries:
                raise ValueError(f"{name}: expected a query for requests, got {', '.join(queries) or 'none'}")
        return self


class KubernetesSettings(SettingsGroup):
    """The API server whose Events are shown beside incidents. deploy/kubernetes/events.yaml grants the permission."""

    url: Address = Field("https://kubernetes.default.svc", description="URL of the API server")
    bearer_token_file: Location | None = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"), description="file with the service account's token"
    )
    ca_file: Location | None = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"),
        description="CA bundle to use instead of the system store (PEM)",
    )
    namespace: str = Field("", description="the only namespace to watch; empty: all")

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, bearer_token_file=self.bearer_token_file, ca_file=self.ca_file)


class OAuth2Settings(SettingsGroup):
    """Client credentials (OAuth 2.0): a token is fetched, kept until shortly before it expires, and then replaced."""

    token_url: Address = Field(description="where tokens are issued")
    client_id: str = Field(min_length=1, description="name of this client")
    client_secret_file: Location = Field(description="file with the client secret, read again for each token")
    parameters: dict[str, str] = Field(
        default_factory=dict, description="further parameters of the request for a token, such as scope or audience"
    )
    ca_file: Location | None = Field(None, description="CA bundle to use instead of the system store (PEM)")


class SourceSettings(AccessSettings):
    """Where a mesh's snapshots come from: its Prometheus, or clients that push them."""

    prometheus: Address | None = Field(
        None, description="base URL of its Prometheus, which is polled; none: clients push its snapshots"
    )
    oauth2: OAuth2Settings | None = Field(
        None, description="client credentials for Prometheus, instead of basic auth or a bearer token"
    )
    google: bool = Field(
        False, description="Google's application default credentials for Prometheus; pip install 'tagae[google]'"
    )
    harmless_warnings: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="texts in warnings of Prometheus that do not mean an incomplete answer; hints are recognized "
        "anyway",
    )
    kubernetes: KubernetesSettings | None = Field(
        None, description="API server for Events; none: no Events; {}: the cluster of the pod"
    )
    source: Annotated[str | tuple[str, ...], BeforeValidator(_known_sources)] = Field(
        "auto",
        description="kind of mesh, or several, such as an ingress controller in front or a service graph beside span "
        "metrics. A metric that several have is read from the first, and from an ingress controller last. Or the kind "
        "of an installed package's source, instead of Prometheus",
    )
    source_options: dict[str, Any] = Field(
        default_factory=dict, description="options of another package's source, which depend on its kind"
    )
    generic: GenericSettings | None = Field(None, description="queries for source = generic")
    match: dict[LabelName, LabelValues] = Field(
        default_factory=dict,
        description="selects the series of this mesh if the store has several: label and literal value, or a list of "
        'values; for example {cluster = "prod"}',
    )
    cluster_label: LabelName | Literal[""] = Field(
        "",
        description="label whose value is prefixed to each namespace, for one mesh of several clusters: prod.shop/cart",
    )
    team_labels: tuple[KubernetesLabel, ...] = Field(
        ("tagae.io/team", "team", "owner", "a8r.io/owner"),
        description="labels or annotations that name the team of a workload, or of its namespace; the first that is "
        "present counts. kube-state-metrics must export them",
    )
    queues: dict[str, ServiceId] = Field(
        default_factory=dict,
        description="service that reads a queue, by queue or consumer group; other queues belong to the service with "
        "their name",
    )
    queue_query: str = Field(
        "",
        description="PromQL for the depth of further queues, whose label `queue` has the name; $window and $match as "
        "elsewhere",
    )

    @property
    def prometheus_url(self) -> str:
        """Base URL of a collected mesh's Prometheus.

        Raises:
            ValueError: the mesh has none, because its snapshots are pushed.
        """
        if self.prometheus is None:
            raise ValueError("prometheus: expected a URL of a mesh that is collected, got none")
        return self.prometheus

    @property
    def sources(self) -> tuple[str, ...]:
        """All kinds of mesh in the settings' order."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def other_source(self) -> str | None:
        """The kind of another package's source; None: the mesh is read from a Prometheus, or pushed."""
        (first, *_) = self.sources or (AUTO,)
        return None if first in (AUTO, GENERIC, *SOURCES.own) else first

    @property
    def is_collected(self) -> bool:
        """Whether the collector polls the mesh. If not, clients push its snapshots."""
        return self.prometheus is not None or self.other_source is not None

    @field_validator("source_options")
    @classmethod
    def _are_of_the_kind(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        kind = info.data.get("source")  # None if it is wrong
        if isinstance(kind, str) and kind not in (AUTO, GENERIC, *SOURCES.own):
            SOURCES.check_options(kind, options)
        elif options and kind is not None:
            raise ValueError("expected none: options are for another package's source")
        return options

    @model_validator(mode="after")
    def _is_read_from_prometheus(self) -> Self:
        names = self._source_settings()
        if self.other_source is not None:
            conflicts = [name for name in names if name not in ("source", "source_options", "kubernetes")]
            if conflicts or len(self.sources) > 1:
                raise ValueError(
                    f"source: expected {self.other_source} alone, which is not read from a Prometheus, got "
                    f"{', '.join(conflicts or self.sources)} too; remove it"
                )
        elif self.prometheus is None and names:
            raise ValueError(f"prometheus is missing, which {', '.join(names)} need; without it a mesh is pushed")
        return self

    @model_validator(mode="after")
    def _sources_fit_together(self) -> Self:
        if not self.sources:
            raise ValueError('source: expected at least one, got none; use "auto" to look for them')
        if len(set(self.sources)) < len(self.sources):
            raise ValueError(f"source: expected each once, got {', '.join(self.sources)}")
        if AUTO in self.sources and len(self.sources) > 1:
            raise ValueError('source: expected "auto" alone, because it looks for all sources; remove it or the others')
        if {"istio", "istio-ambient"} <= set(self.sources):
            raise ValueError("source: expected istio or istio-ambient, which read the same metrics, got both")
        return self

    @model_validator(mode="after")
    def _has_one_token(self) -> Self:
        ways = {
            "username": bool(self.username),
            "bearer_token_file": self.bearer_token_file is not None,
            "oauth2": self.oauth2 is not None,
            "google": self.google,
        }
        credentials = [name for name, is_given in ways.items() if is_given]
        if len(credentials) > 1:
            raise ValueError(f"expected one of {', '.join(ways)}, got {' and '.join(credentials)}")
        return self

    @model_validator(mode="after")
    def _generic_has_queries(self) -> Self:
        if (GENERIC in self.sources) != (self.generic is not None):
            raise ValueError("generic: expected queries if and only if source = generic")
        return self

    def _source_settings(self) -> list[str]:
        """The source settings that differ from their defaults."""
        fields = SourceSettings.model_fields.items()
        return [name for name, field in fields if getattr(self, name) != field.get_default(call_default_factory=True)]
