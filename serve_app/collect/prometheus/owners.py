"""Owners of services, from labels and annotations of their workloads and namespaces that kube-state-metrics exports."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from model.snapshot import Owner, ServicePolicy
from serve_app.api.schemas.base import LONGEST_CONTACT, LONGEST_TEAM, UNPRINTABLE
from serve_app.collect.prometheus.frames import OPTIONAL, Column, Key
from serve_app.collect.prometheus.kubernetes import WORKLOAD, ServiceMapping, by_name
from serve_app.collect.prometheus.query import Query

OWNERS_OF_SERVICES = "service_owners"  # role of the query
CONTACT_LABELS = ("tagae.io/contact", "contact", "a8r.io/chat")  # name the place at which to reach a team
_WORKLOADS = {kind: kind for kind in ("deployment", "statefulset", "daemonset", "cronjob")} | {"job": "job_name"}


@dataclass(frozen=True, slots=True)
class OwnerLabels:
    """Which labels or annotations name an owner; of each tuple, the first that is present counts.

    Attributes:
        team, contact: their names in Kubernetes.
    """

    team: tuple[str, ...] = ()
    contact: tuple[str, ...] = ()

    def query(self) -> Query:
        """Query the workloads and namespaces. Its keys are a namespace, a workload (empty for the namespace itself),
        and the values of :meth:`exported_labels`."""
        kinds = [
            by_name(f"kube_{kind}_{of}{{$match}}", label)
            for kind, label in _WORKLOADS.items()
            for of in ("labels", "annotations")
        ]
        series = " or ".join((*kinds, "kube_namespace_labels{$match}", "kube_namespace_annotations{$match}"))
        labels = (*WORKLOAD, *self.exported_labels())
        optional = (labels[0], *(f"{OPTIONAL}{label}" for label in labels[1:]))
        return Query(f"group by ({', '.join(labels)}) ({series})", optional, joined_by="max")

    def exported_labels(self) -> tuple[str, ...]:
        """The names that kube-state-metrics gives to all of them."""
        return tuple(dict.fromkeys((*_exported(self.team), *_exported(self.contact))))

    def read(self, values: Mapping[str, str]) -> Owner | None:
        """The owner that these values of :meth:`exported_labels` name; None if they name none."""
        team, contact = (
            next((values[label] for label in _exported(names) if values.get(label)), "")
            for names in (self.team, self.contact)
        )
        return Owner(team[:LONGEST_TEAM], contact[:LONGEST_CONTACT]) if team or contact else None


def read_owners(column: Column, labels: OwnerLabels, serving: ServiceMapping) -> dict[str, Owner]:
    """Return the owners of services, by id, and of whole namespaces, by ``namespace/*``.

    Args:
        column: of the query of ``labels``.
        labels: name an owner.
        serving: which workload serves which service. If several do, the first by name counts.
    """
    found: dict[Key, dict[str, str]] = {}  # labels and annotations of a workload are two series
    for namespace, workload, *values in sorted(column.keys):
        given = {
            name: text for name, value in zip(labels.exported_labels(), values, strict=True) if (text := _clean(value))
        }
        found.setdefault((namespace, workload), {}).update(given)
    owners: dict[str, Owner] = {}
    for (namespace, workload), given in found.items():
        if (owner := labels.read(given)) is not None:
            for service in serving.services_of((namespace, workload)) if workload else [(namespace, "*")]:
                owners.setdefault("/".join(service), owner)
    return owners


def with_owners(policies: Iterable[ServicePolicy], owners: Mapping[str, Owner]) -> list[ServicePolicy]:
    """Return the policies with these owners, and one more for each other service that has an owner."""
    known = {one.service: one for one in policies}
    known |= {name: replace(known.get(name, ServicePolicy(name)), owner=owner) for name, owner in owners.items()}
    return list(known.values())


def _exported(names: Iterable[str]) -> list[str]:
    """``label_team`` and ``annotation_team`` for ``team``. kube-state-metrics writes ``a8r.io/ownerName`` as
    ``a8r_io_owner_name``."""
    words = (re.sub("([a-z0-9])([A-Z])", r"\1_\2", re.sub("[^a-zA-Z0-9_]", "_", name)).lower() for name in names)
    return [f"{of}_{word}" for word in words for of in ("label", "annotation")]


def _clean(text: str) -> str:
    """A value as one line of printable text."""
    return " ".join(UNPRINTABLE.sub(" ", text).split())
