"""Groups of services that deviate and call each other.

Services above the level and affected services that call each other form a group. A group with a confirmed service is an
incident.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.snapshot import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Group:
    """Services that deviate and call each other, as rows of the candidates, and whether one of them is confirmed."""

    rows: IntArray
    confirmed: bool


def groups(member: BoolArray, confirmed: BoolArray, calls: IntArray) -> list[Group]:
    """Return the connected components of the members along direct calls, those with a confirmed service first.

    Args:
        member: ``[M]`` candidates above their level or affected.
        confirmed: ``[M]``.
        calls: ``[2, C]`` rows of candidates that call each other.
    """
    root = np.arange(len(member))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = int(root[i])
        return i

    for a, b in calls[:, member[calls].all(axis=0)].T:
        root[find(int(a))] = find(int(b))
    rows: dict[int, list[int]] = {}
    for i in np.flatnonzero(member):
        rows.setdefault(find(int(i)), []).append(int(i))
    found = [Group(np.array(r), bool(confirmed[r].any())) for r in rows.values()]
    return sorted(found, key=lambda g: not g.confirmed)


def split_muted(found: Sequence[Group], confirmed: BoolArray, muted: BoolArray) -> tuple[list[Group], IntArray]:
    """Remove the muted services from groups.

    Muted services still connect a group, so that one fault is one incident.

    Args:
        found: groups of candidates.
        confirmed, muted: ``[M]`` candidates.

    Returns:
        The groups that remain, and the muted rows of groups that raise an alert or would.
    """
    left = [group.rows[~muted[group.rows]] for group in found]
    remaining = [Group(rows, bool(confirmed[rows].any())) for rows in left if len(rows)]
    hidden = [group.rows[muted[group.rows]] for group in found if group.confirmed]
    return sorted(remaining, key=lambda g: not g.confirmed), np.concatenate([np.zeros(0, np.int64), *hidden])


def join_groups(one: Group, other: Group) -> Group:
    return Group(np.union1d(one.rows, other.rows), one.confirmed or other.confirmed)
