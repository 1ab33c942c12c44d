"""Settings of the collector: which meshes to poll, and how."""

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from serve_app.settings.base import AccessSettings, Address, Location, MeshName, ServiceId, SettingsGroup
from serve_app.settings.roles import Role

LabelName = Annotated[str, Field(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")]
LabelValues = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
]

SourceName = Literal[
    "auto",
    "istio",
    "istio-ambient",
    "opentelemetry",
    "linkerd",
    "kuma",
    "consul",
    "hubble",
    "envoy",
    "opentelemetry-http",
    "span-metrics",
    "nginx-ingress",
    "traefik",
    "generic",
]


def _known_sources(given: object) -> object:
    """Refuse unknown names in one sentence: the types alone would list every name twice."""
    names = get_args(SourceName)
    unknown = [one for one in (given if isinstance(given, list | tuple) else [given]) if one not in names]
    if unknown:
        raise ValueError(f"expected {', '.join(names)}, or a list of them, got {unknown[0]!r}")
    return given


class QuerySettings(SettingsGroup):
    """One query for a mesh of another kind."""

    promql: str = Field(
        min_length=1,
        description="PromQL of an instant vector; $window stands for the rate window, $match in a selector for the "
        "matchers of `match`",
    )
    unit: float = Field(1.0, gt=0, description="factor to s, 1/s or a ratio: 0.001 for milliseconds")


class GenericSettings(SettingsGroup):
    """Queries for a mesh of another kind; see `serve_app/collect/prometheus/dialects/` for examples."""

    service_labels: tuple[str, ...] = Field(
        ("namespace", "service"),
        min_length=2,
        max_length=2,
        description="labels with namespace and name; =text is a constant",
    )
    call_labels: tuple[str, ...] = Field(
        ("source_namespace", "source", "destination_namespace", "destination"),
        min_length=4,
        max_length=4,
        description="labels with namespace and name of the source, then of the destination",
    )
    services: dict[Role, QuerySettings] = Field(description="queries for services, by role; requests is required")
    calls: dict[Role, QuerySettings] = Field(description="queries for calls, by role; requests is required")
    external: tuple[str, ...] = Field((), description="names of callers that are not services")

    @model_validator(mode="after")
    def _has_requests(self) -> Self:
        for name, queries in (("services", self.services), ("calls", self.calls)):
            if "requests" not in queries:
                raise ValueError(f"{name}: expected a query for requests, came {', '.join(queries) or 'none'}")
        return self


class KubernetesSettings(AccessSettings):
    """The API server whose Events are shown beside incidents. deploy/kubernetes/events.yaml grants the permission."""

    url: Address = Field("https://kubernetes.default.svc", description="URL of the API server")
    bearer_token_file: Location | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    ca_file: Location | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    namespace: str = Field("", description="the only namespace to watch; empty: all")


class OAuth2Settings(SettingsGroup):
    """Client credentials (OAuth 2.0): a token is fetched, kept until shortly before it ends, and then replaced."""

    token_url: Address = Field(description="where tokens are issued")
    client_id: str = Field(min_length=1, description="name of this client")
    client_secret_file: Location = Field(description="file with its secret, read again for each token")
    scopes: tuple[str, ...] = Field((), description="requested scopes")
    parameters: dict[str, str] = Field(
        default_factory=dict, description="further parameters of the request for a token, for example audience"
    )
    ca_file: Location | None = Field(None, description="certificates to trust there (PEM); none: the system's")


class MeshSettings(AccessSettings):
    """A mesh to collect, and its Prometheus."""

    prometheus: Address = Field(description="base URL of the Prometheus")
    oauth2: OAuth2Settings | None = Field(
        None, description="client credentials for Prometheus, instead of basic auth or a bearer token"
    )
    google: bool = Field(
        False, description="Google's application default credentials for Prometheus; pip install 'tagae[google]'"
    )
    harmless_warnings: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="parts of warnings of Prometheus that do not make an answer incomplete; hints are known"
    )
    kubernetes: KubernetesSettings | None = Field(
        None, description="API server for Events; none: no Events; {}: the cluster of the pod"
    )
    source: Annotated[SourceName | tuple[SourceName, ...], BeforeValidator(_known_sources)] = Field(
        "auto",
        description="kind of mesh, or several: an ingress controller in front, a service graph beside span metrics. "
        "What two of them measure is read from the first, but from an ingress controller last",
    )
    generic: GenericSettings | None = Field(None, description="queries for source = generic")
    match: dict[LabelName, LabelValues] = Field(
        default_factory=dict,
        description="series of this mesh, where a store has more than one: value by label, literal, or a list of them; "
        'for example {cluster = "prod"}',
    )
    cluster_label: LabelName | Literal[""] = Field(
        "",
        description="label whose value is a part of each namespace, for one mesh of several clusters: prod.shop/cart",
    )
    queues: dict[str, ServiceId] = Field(
        default_factory=dict,
        description="service that reads a queue, by queue or consumer group; others go to the service of their name",
    )
    queue_query: str = Field(
        "",
        description="PromQL of the depth of further queues, whose label `queue` has the name; $window and $match as "
        "elsewhere",
    )
    compressed: bool = Field(
        False, description="ask Prometheus for gzip: a tenth of the bytes, more CPU time at both ends"
    )

    @property
    def sources(self) -> tuple[SourceName, ...]:
        """All kinds of mesh in the order of the settings."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @model_validator(mode="after")
    def _sources_fit_together(self) -> Self:
        if not self.sources:
            raise ValueError('source: expected at least one, got none; use "auto" to look for them')
        if len(set(self.sources)) < len(self.sources):
            raise ValueError(f"source: expected each once, got {', '.join(self.sources)}")
        if "auto" in self.sources and len(self.sources) > 1:
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
        given = [name for name, is_given in ways.items() if is_given]
        if len(given) > 1:
            raise ValueError(f"expected one of {', '.join(ways)}, got {' and '.join(given)}")
        return self

    @model_validator(mode="after")
    def _generic_has_queries(self) -> Self:
        if ("generic" in self.sources) != (self.generic is not None):
            raise ValueError("generic: expected queries if and only if source = generic")
        return self


class CollectorSettings(SettingsGroup):
    """Which meshes to collect, and how."""

    meshes: dict[MeshName, MeshSettings] = Field(default_factory=dict, description="meshes by name")
    replicas: int = Field(
        1,
        ge=1,
        description="collectors; each mesh is collected by one of them, and another takes over within 12 s if it ends; "
        "more than one needs a store in Redis",
    )
    interval_seconds: float = Field(15.0, ge=1, description="time between two snapshots; at least the scrape interval")
    window_seconds: float = Field(
        60.0,
        gt=0,
        description="window of rates; at least four scrape intervals; where it is not set, longer for rarer scrapes",
    )
    deadline_seconds: float = Field(10.0, gt=0, description="deadline of all queries of a snapshot together")
    keep_seconds: float = Field(45.0, ge=0, description="how long the last values stand in for a failed query")
    behind_seconds: float = Field(
        15.0,
        ge=0,
        description="age of the newest snapshot, so that all targets have been scraped; where it is not set, more for "
        "data that arrive late",
    )
    catch_up_snapshots: int = Field(20, ge=1, description="missed snapshots that are collected at most after an outage")
    recorded_from_calls: float = Field(
        2000,
        ge=0,
        description="number of calls in a mesh from which recording rules are read, if they exist; inf: never",
    )
    queries_at_once: int = Field(
        4, ge=1, description="concurrent queries to one Prometheus, which runs at most 20 for all its users by default"
    )
