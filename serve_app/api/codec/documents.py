"""Snapshot documents as a client sends them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, Owner, Sensitivity, ServicePolicy

ENDS = ("source", "destination")  # of a call


def snapshot_document(snapshot: MeshSnapshot) -> dict[str, Any]:
    """A snapshot's JSON document as a client sends it. Numbers have the minimum digits that read back as the same
    float32; unobserved values are omitted."""
    document: dict[str, Any] = {
        "observed_at": snapshot.observed_at.isoformat(),
        "services": service_documents(snapshot),
        "calls": call_documents(snapshot),
    }
    if snapshot.changes:
        document["changes"] = [asdict(change) for change in snapshot.changes]
    if snapshot.policies:
        document["policies"] = [_policy_document(policy) for policy in snapshot.policies]
    return document


def service_documents(snapshot: MeshSnapshot) -> list[dict[str, Any]]:
    metrics = _metric_dicts(NODE_METRICS, snapshot.node_features, snapshot.node_observed)
    documents: list[dict[str, Any]] = [
        dict(zip(("namespace", "name"), name.split("/", 1), strict=True), metrics=of_service)
        for name, of_service in zip(snapshot.node_ids, metrics, strict=True)
    ]
    if snapshot.signals:
        of_name = dict(zip(snapshot.node_ids, documents, strict=True))
        for signal in snapshot.signals:
            of_name[signal.service].setdefault("signals", {})[signal.kind.value] = signal.value
    return documents


def call_documents(snapshot: MeshSnapshot) -> list[dict[str, Any]]:
    metrics = _metric_dicts(EDGE_METRICS, snapshot.edge_features, snapshot.edge_observed)
    return [
        {"source": snapshot.node_ids[source], "destination": snapshot.node_ids[destination], **of_call}
        for (source, destination), of_call in zip(snapshot.edge_index.T.tolist(), metrics, strict=True)
    ]


def _metric_dicts(
    names: Sequence[str], values: NDArray[np.float32], observed: NDArray[np.bool_]
) -> list[dict[str, float]]:
    # As text and back: 0.1, not 0.10000000149011612. Both read back as the same float32.
    short = pa.array(values.ravel()).cast(pa.string()).cast(pa.float64()).to_numpy().reshape(values.shape)
    return [
        {name: value for name, value, present in zip(names, row, mask, strict=True) if present}
        for row, mask in zip(short.tolist(), observed.tolist(), strict=True)
    ]


def _policy_document(policy: ServicePolicy) -> dict[str, str]:
    fields = {
        "service": policy.service,
        "sensitivity": policy.sensitivity and policy.sensitivity.value,
        "mute": policy.mute,
    }
    if policy.owner is not None:
        fields |= {"team": policy.owner.team, "contact": policy.owner.contact}
    return {name: value for name, value in fields.items() if value is not None}


def policy(service: str, sensitivity: str | None, mute: str, team: str = "", contact: str = "") -> ServicePolicy:
    """Build a policy. Raises ``ValueError`` for an unknown sensitivity."""
    owner = Owner(team, contact) if team or contact else None
    return ServicePolicy(service, None if sensitivity is None else Sensitivity(sensitivity), mute, owner)
