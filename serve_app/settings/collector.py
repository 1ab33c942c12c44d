"""Settings of the collector: which meshes it polls, and how."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import AccessSettings, Address, Location, MeshName, Subject
from serve_app.settings.roles import Role


class QuerySettings(Subject):
    """One query of a mesh whose metrics nobody here knows."""

    promql: str = Field(min_length=1, description="an instant vector; $window stands for the rate window")
    unit: float = Field(1.0, gt=0, description="of its values in 1/s, s or a ratio: 0.001 for milliseconds")


class GenericSettings(Subject):
    """What to ask where none of the known kinds of mesh is there; see `sources/prometheus/dialects.py` for examples."""

    service_labels: tuple[str, ...] = Field(
        ("namespace", "service"), min_length=2, max_length=2, description="of an answer; =text stands for that text"
    )
    call_labels: tuple[str, ...] = Field(
        ("source_namespace", "source", "destination_namespace", "destination"), min_length=4, max_length=4
    )
    services: dict[Role, QuerySettings] = Field(description="by role; requests among them")
    calls: dict[Role, QuerySettings] = Field(description="likewise")
    external: tuple[str, ...] = Field((), description="names of callers that are no services")

    @model_validator(mode="after")
    def _has_requests(self) -> Self:
        for name, queries in (("services", self.services), ("calls", self.calls)):
            if "requests" not in queries:
                raise ValueError(f"{name}: expected a query for requests, came {', '.join(queries) or 'none'}")
        return self


class KubernetesSettings(AccessSettings):
    """An API server whose Events are shown beside incidents. The rights it takes: deploy/kubernetes/events.yaml."""

    url: Address = "https://kubernetes.default.svc"
    bearer_token_file: Location | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    ca_file: Location | None = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    namespace: str = Field("", description="of which alone; empty: all")


class MeshSettings(AccessSettings):
    """A mesh that is collected, and the Prometheus that knows it."""

    prometheus: Address = Field(description="its base URL")
    kubernetes: KubernetesSettings | None = Field(None, description="none: no Events; {} is that of the pod's cluster")
    source: Literal["auto", "istio", "istio-ambient", "opentelemetry", "linkerd", "envoy", "generic"] = "auto"
    generic: GenericSettings | None = Field(None, description="queries, for the source of that name")
    compressed: bool = Field(False, description="gzip from Prometheus: a tenth of the bytes, more work at both ends")

    @model_validator(mode="after")
    def _generic_is_told(self) -> Self:
        if (self.source == "generic") != (self.generic is not None):
            raise ValueError("source = generic needs its queries under generic, and no other source has any")
        return self


class CollectorSettings(Subject):
    """What is collected, and how."""

    meshes: dict[MeshName, MeshSettings] = Field(default_factory=dict, description="by the name that a mesh has here")
    interval_seconds: float = Field(15.0, ge=1, description="between two snapshots; the scrape interval, or more")
    window_seconds: float = Field(60.0, gt=0, description="of rates; four scrape intervals at least")
    deadline_seconds: float = Field(10.0, gt=0, description="of all queries of a snapshot together")
    keep_seconds: float = Field(45.0, ge=0, description="for which last values stand in for a query that failed")
    behind_seconds: float = Field(15.0, ge=0, description="age of the newest instant, so that all targets are in")
    catch_up_snapshots: int = Field(20, ge=1, description="asked for at most after an outage")
    recorded_from_calls: float = Field(
        2000, ge=0, description="calls of a mesh from which on recording rules are read where there are any; inf: never"
    )
    queries_at_once: int = Field(4, ge=1, description="to one Prometheus; it takes 20 of all its users")
