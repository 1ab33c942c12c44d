"""Services that raise no alerts for a while, and services that raise them sooner or later than others.

Like feedback, a :class:`Mute` does not change what was learned. A muted service is scored as always. It is not part of
incidents, but can be a suspect of an incident elsewhere. The active mutes are computed with every snapshot, from mutes
that people set, from settings, and from the policies in the snapshot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from model.features import Array
from model.snapshot import BoolArray, Sensitivity, ServicePolicy, namespace_of
from model.verdict import MuteInForce, MuteOrigin

# Decades by which a service's page level rises: alerts need a deviation ten times as improbable, or a third.
LEVELS = {Sensitivity.LOW: 1.0, Sensitivity.NORMAL: 0.0, Sensitivity.HIGH: -0.5}
EVERY = "*"  # pattern for all services of the mesh
OF_NAMESPACE = "/*"  # end of the pattern for all services of a namespace


@dataclass(frozen=True, slots=True)
class Mute:
    """Services that raise no alerts for a time. A mute of the whole mesh is a maintenance window.

    Attributes:
        services: node ids and ``namespace/*``; empty: the whole mesh.
        start, end: of the snapshots that it applies to, ``end`` excluded.
        given_at: the mesh's clock when it was set: its newest snapshot.
        given_by: name of the user or token; empty: unknown.
    """

    id: str
    services: tuple[str, ...]
    start: datetime
    end: datetime
    reason: str
    given_at: datetime
    given_by: str = ""


@dataclass(frozen=True, slots=True)
class ActiveMutes:
    """The mutes and sensitivities that apply to one snapshot.

    Attributes:
        levels: decades by which page levels rise, by node id and ``namespace/*``; a node id takes precedence.
    """

    mutes: tuple[MuteInForce, ...] = ()
    levels: dict[str, float] = field(default_factory=dict)

    def is_muted(self, names: Sequence[str]) -> BoolArray:
        if not self.mutes:
            return np.zeros(len(names), bool)
        return matches((pattern for mute in self.mutes for pattern in patterns(mute)), names)

    def drop_muted(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name, is_muted in zip(names, self.is_muted(names).tolist(), strict=True) if not is_muted)

    def level_shifts(self, names: Sequence[str]) -> Array:
        """Return the decades by which page levels rise, ``[N]``; negative: fall."""
        if not self.levels:
            return np.zeros(len(names), np.float32)
        levels = self.levels
        of_namespace = {key.removesuffix(OF_NAMESPACE): v for key, v in levels.items() if key.endswith(OF_NAMESPACE)}
        shifts = (levels.get(name, of_namespace.get(namespace_of(name), 0.0)) for name in names)
        return np.fromiter(shifts, np.float32, len(names))

    def with_hidden(self, hidden_services: Sequence[str]) -> tuple[MuteInForce, ...]:
        """Return the mutes, each with the services among these that it hides."""
        if not hidden_services:
            return self.mutes
        masks = [matches(patterns(mute), hidden_services).tolist() for mute in self.mutes]
        return tuple(
            replace(mute, hides=tuple(sorted(name for name, hides in zip(hidden_services, by, strict=True) if hides)))
            for mute, by in zip(self.mutes, masks, strict=True)
        )


def active_mutes(
    mutes: Iterable[Mute], settings: Iterable[ServicePolicy], snapshot: Iterable[ServicePolicy], at: datetime | None
) -> ActiveMutes:
    """Compute the mutes and sensitivities that apply to a snapshot.

    Mutes add up. For the sensitivity, the most specific value counts: the setting for the service, then the snapshot's
    policy for it, then the namespace.

    Args:
        at: the snapshot's time; None: a warm-up snapshot, in which no service is muted because baselines learn from it.
    """
    levels: dict[str, float] = {}
    by_origin = {
        MuteOrigin.SNAPSHOT: tuple(snapshot),
        MuteOrigin.SETTINGS: tuple(settings),
    }  # the latter takes precedence
    for policies in by_origin.values():
        levels |= {policy.service: LEVELS[policy.sensitivity] for policy in policies if policy.sensitivity is not None}
    if at is None:
        return ActiveMutes(levels=levels)
    from_api = (
        MuteInForce(MuteOrigin.API, mute.services, mute.reason, mute.id, mute.end)
        for mute in mutes
        if mute.start <= at < mute.end
    )
    return ActiveMutes(
        (*from_api, *(mute for origin, policies in by_origin.items() for mute in _mutes_of(origin, policies))), levels
    )


def patterns(mute: Mute | MuteInForce) -> tuple[str, ...]:
    return mute.services or (EVERY,)


def matches(names_and_patterns: Iterable[str], names: Sequence[str]) -> BoolArray:
    """Return which of these services a pattern matches, ``[N]``: a node id, ``namespace/*`` or ``EVERY``."""
    pattern_set = set(names_and_patterns)
    if EVERY in pattern_set:
        return np.ones(len(names), bool)
    namespaces = {pattern.removesuffix(OF_NAMESPACE) for pattern in pattern_set if pattern.endswith(OF_NAMESPACE)}
    if not namespaces:
        return np.fromiter((name in pattern_set for name in names), bool, len(names))
    return np.fromiter((name in pattern_set or namespace_of(name) in namespaces for name in names), bool, len(names))


def _mutes_of(origin: MuteOrigin, policies: Iterable[ServicePolicy]) -> list[MuteInForce]:
    """Build one mute for each reason."""
    services: dict[str, list[str]] = {}
    for policy in policies:
        if policy.mute:
            services.setdefault(policy.mute, []).append(policy.service)
    return [MuteInForce(origin, tuple(sorted(set(names))), reason) for reason, names in services.items()]
