"""Views of a mesh and its model: plan, graph and model documents.

The deviations of services and calls are stored with their verdict, one byte each: a sixteenth of a decade is finer than
any picture shows, and a window of them is small compared to its snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from model.features import SCHEMA, Array
from model.snapshot import BoolArray, IntArray, MeshSnapshot, mark_services, namespace_of
from partitioning import Partition, PartitionPlan
from serve_app.api.codec import call_documents, service_documents
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.schemas.views import (
    ChannelDocument,
    FeatureSchemaDocument,
    ModelDocument,
    PartDocument,
    PlanDocument,
    PlanQuality,
)

if TYPE_CHECKING:  # these import torch, which the ingress does not need
    from model.checkpoint import Checkpoint
    from model.scoring.surprises import Surprises
    from model.state.mesh_state import MeshState

STEPS_A_DECADE = 16
UNKNOWN = 255  # not scored; the largest value, 15 decades, is 240


@dataclass(frozen=True, slots=True, eq=False)
class Deviations:
    """Deviations of a snapshot's services and calls, in its order: decades of improbability, NaN if not scored.

    Attributes:
        services: float32 ``[N]``, the strongest surprise among a service's series, without what neighbours explain.
        calls: float32 ``[E]``, the strongest surprise among a call's series.
    """

    services: Array
    calls: Array

    @classmethod
    def of(cls, state: MeshState, is_scored: BoolArray, surprise: Surprises, snapshot: MeshSnapshot) -> Self:
        """The deviations in the snapshot's order, from the services that were scored (bool ``[N]``) and the surprise of
        every series, both in the state's order."""
        services = np.where(is_scored, surprise.node.max(axis=1), np.float32(np.nan))
        caller = is_scored[state.edge_index[0]]  # a call is scored with its source
        calls = np.where(caller, surprise.edge.max(axis=1), np.float32(np.nan))
        node_rows, edge_rows = _rows(state, snapshot)
        return cls(services[node_rows], calls[edge_rows])

    def pack(self) -> bytes:
        """Pack to one byte each, services first."""
        values = np.concatenate([self.services, self.calls])
        steps = np.rint(values * STEPS_A_DECADE).clip(0, UNKNOWN - 1)
        return np.where(np.isnan(values), UNKNOWN, steps).astype(np.uint8).tobytes()

    @staticmethod
    def take_packed(packed: bytes, snapshot: MeshSnapshot, services: IntArray, calls: IntArray) -> bytes:
        """The packed deviations of some services and calls, by their rows in the snapshot."""
        steps: NDArray[np.uint8] = _read_steps(packed, snapshot)[np.concatenate([services, snapshot.num_nodes + calls])]
        return steps.tobytes()

    @classmethod
    def unpack(cls, packed: bytes, snapshot: MeshSnapshot) -> Self:
        """Read what :meth:`pack` wrote for this snapshot. All are unknown if the size does not match."""
        steps = _read_steps(packed, snapshot)
        values = np.where(steps == UNKNOWN, np.float32(np.nan), steps.astype(np.float32) / STEPS_A_DECADE)
        return cls(values[: snapshot.num_nodes], values[snapshot.num_nodes :])


def _read_steps(packed: bytes, snapshot: MeshSnapshot) -> NDArray[np.uint8]:
    """The packed deviations of a snapshot; all are unknown if the size does not match."""
    steps: NDArray[np.uint8] = np.frombuffer(packed, np.uint8)
    count = snapshot.num_nodes + snapshot.num_edges
    return steps if len(steps) == count else np.full(count, UNKNOWN, np.uint8)


def graph_document(
    snapshot: MeshSnapshot, deviations: Deviations, verdict: VerdictDocument, around: Collection[str] | None = None
) -> dict[str, Any]:
    """A ``GraphDocument``: a snapshot's services and calls, each with its result in the verdict; with ``around``, only
    these services with their callers, callees and calls. ``msgspec`` writes NaN as null."""
    missing = ({suspect.service for suspect in verdict.suspects} | incident_services(verdict)) - set(snapshot.node_ids)
    if around is not None:
        missing &= set(around)
        services, calls = _find_neighbours(snapshot, around)
        snapshot = snapshot.take(services, calls)
        deviations = Deviations(deviations.services[services], deviations.calls[calls])
    suspicion = {suspect.service: suspect.score for suspect in verdict.suspects}
    incident = {service: i.id for i in reversed(verdict.incidents) for service in i.services}
    return {
        "observed_at": verdict.observed_at,
        "status": verdict.status,
        "services": [
            service | {"deviation": deviation, "suspicion": suspicion.get(name), "incident": incident.get(name)}
            for name, service, deviation in zip(
                snapshot.node_ids, service_documents(snapshot), deviations.services.tolist(), strict=True
            )
        ],
        "calls": [
            call | {"deviation": deviation}
            for call, deviation in zip(call_documents(snapshot), deviations.calls.tolist(), strict=True)
        ],
        "vanished": sorted(missing),
    }


def incident_services(verdict: VerdictDocument) -> set[str]:
    """The suspected and affected services of the open incidents."""
    return {service for incident in verdict.incidents for service in incident.services}


def _find_neighbours(snapshot: MeshSnapshot, names: Collection[str]) -> tuple[IntArray, IntArray]:
    near = mark_services(snapshot.node_ids, set(names))
    calls = np.flatnonzero(near[snapshot.edge_index].any(axis=0))
    near[snapshot.edge_index[:, calls]] = True
    return np.flatnonzero(near), calls


def plan_document(plan: PartitionPlan, state: MeshState, *, members: bool) -> PlanDocument:
    """The partition of a mesh; ``members`` adds the names of each part's services."""
    assert state.observed_at is not None  # a mesh with a plan has a verdict
    return PlanDocument(
        observed_at=state.observed_at,
        services=len(state.node_ids),
        calls=state.edge_index.shape[1],
        crossing_calls=len(plan.crossing),
        quality=PlanQuality.from_object(plan.quality),
        parts=[_part(index, part, state, members=members) for index, part in enumerate(plan.parts)],
    )


def model_document(checkpoint: Checkpoint, meshes: Mapping[str, str]) -> ModelDocument:
    """The weights in use and their provenance; ``meshes``: digests of the weights of meshes that have their own."""
    return ModelDocument(
        digest=checkpoint.digest,
        schema_version=SCHEMA.version,
        features=feature_schema_document(),
        architecture=asdict(checkpoint.network.config),
        parameters=sum(p.numel() for module in (checkpoint.network, checkpoint.meta) for p in module.parameters()),
        provenance=checkpoint.provenance,
        meshes=dict(meshes),
    )


def feature_schema_document() -> FeatureSchemaDocument:
    services, calls = (
        [ChannelDocument.from_object(channel) for channel in channels] for channels in (SCHEMA.node, SCHEMA.edge)
    )
    return FeatureSchemaDocument(services=services, calls=calls)


def _rows(state: MeshState, snapshot: MeshSnapshot) -> tuple[IntArray, IntArray]:
    """The rows of the snapshot's services and calls in the state's tables, which contain all of them."""
    if state.node_ids == snapshot.node_ids and np.array_equal(state.edge_index, snapshot.edge_index):
        return np.arange(snapshot.num_nodes), np.arange(snapshot.num_edges)
    row = {name: i for i, name in enumerate(state.node_ids)}
    node_rows = np.fromiter((row[name] for name in snapshot.node_ids), np.int64, snapshot.num_nodes)
    keys = state.edge_index[0] * len(row) + state.edge_index[1]
    ends = node_rows[snapshot.edge_index]
    order = np.argsort(keys)
    return node_rows, order[np.searchsorted(keys, ends[0] * len(row) + ends[1], sorter=order)]


def _part(index: int, part: Partition, state: MeshState, *, members: bool) -> PartDocument:
    names = [state.node_ids[i] for i in part.core]
    return PartDocument(
        part=index,
        services=len(part.core),
        halo=len(part.halo),
        calls=len(part.owned_edges),
        calls_read=len(part.edges),
        namespaces=sorted({namespace_of(name) for name in names}),
        members=names if members else None,
    )
