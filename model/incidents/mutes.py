"""Who pages nobody for a while, and who pages sooner or later than others.

A :class:`Mute` lies beside what was learned, as feedback does: a muted service is scored as ever, is no part of an
incident, and may be suspected of somebody else's. What is heeded is made anew with every snapshot, from mutes that
people gave, from settings and from what the snapshot itself says of its services.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from model.features import Array
from model.snapshot import BoolArray, Sensitivity, ServicePolicy, namespace_of
from model.verdict import MuteInForce, MuteOrigin

# Decades by which a service's page level rises: what pages is ten times as improbable, or a third.
LEVELS = {Sensitivity.LOW: 1.0, Sensitivity.NORMAL: 0.0, Sensitivity.HIGH: -0.5}
EVERY = "*"  # service of the mesh
OF_NAMESPACE = "/*"  # end of what names all services of a namespace


@dataclass(frozen=True, slots=True)
class Mute:
    """Services that page nobody for a time; a maintenance window where it is the whole mesh.

    Attributes:
        id: by which it is taken back.
        services: node ids and ``namespace/*``; none: the whole mesh.
        start, end: of the snapshots that it holds for, the end left out.
        reason: for people.
        given_at: the mesh's clock when it was given: its newest snapshot.
    """

    id: str
    services: tuple[str, ...]
    start: datetime
    end: datetime
    reason: str
    given_at: datetime


@dataclass(frozen=True, slots=True)
class ActiveMutes:
    """What is heeded with one snapshot.

    Attributes:
        mutes: in force.
        levels: decades by which page levels rise, by node id and ``namespace/*``; a node id counts first.
    """

    mutes: tuple[MuteInForce, ...] = ()
    levels: dict[str, float] = field(default_factory=dict)

    def is_muted(self, names: Sequence[str]) -> BoolArray:
        """``[N]``: which of these services page nobody."""
        if not self.mutes:
            return np.zeros(len(names), bool)
        return matches((pattern for mute in self.mutes for pattern in patterns(mute)), names)

    def level_shifts(self, names: Sequence[str]) -> Array:
        """``[N]`` decades by which page levels rise; below 0: fall."""
        if not self.levels:
            return np.zeros(len(names), np.float32)
        levels = self.levels
        of_namespace = {key.removesuffix(OF_NAMESPACE): v for key, v in levels.items() if key.endswith(OF_NAMESPACE)}
        found = (levels.get(name, of_namespace.get(namespace_of(name), 0.0)) for name in names)
        return np.fromiter(found, np.float32, len(names))

    def with_hidden(self, hidden: Sequence[str]) -> tuple[MuteInForce, ...]:
        """The mutes, each with those of these services that it hides."""
        if not hidden:
            return self.mutes
        which = [matches(patterns(mute), hidden).tolist() for mute in self.mutes]
        return tuple(
            replace(mute, hides=tuple(sorted(name for name, hides in zip(hidden, by, strict=True) if hides)))
            for mute, by in zip(self.mutes, which, strict=True)
        )


def active_mutes(
    mutes: Iterable[Mute], settings: Iterable[ServicePolicy], snapshot: Iterable[ServicePolicy], at: datetime | None
) -> ActiveMutes:
    """What holds for a snapshot.

    Mutes add up. Of sensitivities the nearest word counts: what settings say of a service by name, what the snapshot
    says of it, what is said of its namespace.

    Args:
        mutes: that people gave.
        settings, snapshot: what either says of services.
        at: the snapshot's time; None: a baseline, which is given to be learned from, so nobody is muted.
    """
    levels: dict[str, float] = {}
    told = {MuteOrigin.SNAPSHOT: tuple(snapshot), MuteOrigin.SETTINGS: tuple(settings)}  # the later counts
    for policies in told.values():
        levels |= {one.service: LEVELS[one.sensitivity] for one in policies if one.sensitivity is not None}
    if at is None:
        return ActiveMutes(levels=levels)
    given = (
        MuteInForce(MuteOrigin.API, mute.services, mute.reason, mute.id, mute.end)
        for mute in mutes
        if mute.start <= at < mute.end
    )
    return ActiveMutes(
        (*given, *(mute for origin, policies in told.items() for mute in _mutes_of(origin, policies))), levels
    )


def patterns(mute: Mute | MuteInForce) -> tuple[str, ...]:
    """What names its services, for :func:`covered`."""
    return mute.services or (EVERY,)


def matches(names_and_patterns: Iterable[str], names: Sequence[str]) -> BoolArray:
    """``[N]``: which of these services are named, by themselves, by ``namespace/*`` or by ``EVERY``."""
    wanted = set(names_and_patterns)
    if EVERY in wanted:
        return np.ones(len(names), bool)
    namespaces = {one.removesuffix(OF_NAMESPACE) for one in wanted if one.endswith(OF_NAMESPACE)}
    if not namespaces:
        return np.fromiter((name in wanted for name in names), bool, len(names))
    return np.fromiter((name in wanted or namespace_of(name) in namespaces for name in names), bool, len(names))


def _mutes_of(origin: MuteOrigin, policies: Iterable[ServicePolicy]) -> list[MuteInForce]:
    """One mute for each reason."""
    services: dict[str, list[str]] = {}
    for one in policies:
        if one.mute:
            services.setdefault(one.mute, []).append(one.service)
    return [MuteInForce(origin, tuple(sorted(set(names))), reason) for reason, names in services.items()]
