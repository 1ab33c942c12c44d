"""Services that share the traffic of another one: a canary, a second version, or a replacement.

A canary takes a share of its service's calls, then all of them, and gives them back. The callers decide nothing by
this: the sum of their calls to both does not change. So a fall of the calls to one of them, or its end, is not a fault.
"""

import re
from collections.abc import Iterable

import numpy as np

from model.features import Array
from model.ordering import largest_of_rows
from model.snapshot import BoolArray, IntArray, namespace_of
from model.state.filters import SEEN
from model.state.mesh_state import MeshState

ESTABLISHED = 240.0  # snapshots after which traffic that moves to a service is no longer its roll-out
MOST_OF_TIME = 0.8  # of a mesh's snapshots
KEPT = 0.7  # of the usual calls to all versions, from which callers miss none
_VERSION = re.compile(r"-(canary|stable|primary|baseline|preview|experiment|next|new|old|blue|green|rc\d*|v\d+[\w.]*)$")


def stem(service: str) -> str:
    """Return ``shop/cart`` for ``shop/cart-canary`` and ``shop/cart-v2``: the name that all versions share."""
    return _VERSION.sub("", service)


def find_versions(names: Iterable[str], services: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each of ``services`` that has other versions among ``names``, those versions."""
    stems: dict[str, list[str]] = {}
    prefixes = {service: stem(service) for service in services}
    stem_names = tuple(set(prefixes.values()))
    for name in names:
        if name.startswith(stem_names):
            stems.setdefault(stem(name), []).append(name)
    versions = {service: [name for name in stems.get(of, ()) if name != service] for service, of in prefixes.items()}
    return {service: names for service, names in versions.items() if names}


def new_services(state: MeshState) -> BoolArray:
    """Return which services ``[N]`` came while the mesh was known, and not long ago."""
    return largest_of_rows(state.node_filters[SEEN]) < min(ESTABLISHED, MOST_OF_TIME * state.learned)


def relatives(state: MeshState, rows: IntArray) -> list[IntArray]:
    """Return, for each of k services, the rows of the services with which it may share its traffic.

    These are its other versions by name, and new services of its namespace that its callers began to call.
    """
    if not len(rows):
        return []
    names = state.node_ids
    versions = find_versions(names, [names[row] for row in rows.tolist()])
    version_names = {name for family in versions.values() for name in family}
    row_of = {name: i for i, name in enumerate(names) if name in version_names} if version_names else {}
    source, destination = state.edge_index
    to_new = np.flatnonzero(new_services(state)[destination])
    families = []
    for row in rows.tolist():
        family_rows = {row_of[name] for name in versions.get(names[row], ())}
        if len(to_new):
            callers = source[destination == row]
            began = destination[to_new[np.isin(source[to_new], callers)]]
            space = namespace_of(names[row])
            family_rows |= {i for i in began.tolist() if i != row and namespace_of(names[i]) == space}
        families.append(np.array(sorted(family_rows), np.int64))
    return families


def shares_traffic(state: MeshState, calls: IntArray, now: Array, usual: Array) -> BoolArray:
    """Return for which of k calls the fall is not a fault: another version gets the traffic, or may get it.

    While a canary is new, the usual calls to it and to its service follow the traffic at different speeds. So a service
    that has a new relative, or is new itself, is not examined. For versions that have existed for long, the sum of the
    caller's calls counts.

    Args:
        calls: ``[k]`` rows of calls.
        now, usual: ``[E]`` requests of all calls, 1/s.
    """
    shares = np.zeros(len(calls), bool)
    if not len(calls):
        return shares
    new, (source, destination) = new_services(state), state.edge_index
    ends = destination[calls]
    rows, place = np.unique(ends, return_inverse=True)
    families = relatives(state, rows)
    for i, (call, at) in enumerate(zip(calls.tolist(), place.tolist(), strict=True)):
        if new[ends[i]] or new[families[at]].any():
            shares[i] = True
        elif len(families[at]):
            family = (source == source[call]) & np.isin(destination, [ends[i], *families[at]])
            shares[i] = family.sum() > 1 and now[family].sum() >= KEPT * usual[family].sum()
    return shares


def is_absorbed(state: MeshState, gone: BoolArray, now: Array, usual: Array) -> BoolArray:
    """Return which services ``[N]`` are gone without harm: their callers make their calls to other versions.

    Args:
        now, usual: ``[E]`` requests of all calls, 1/s.
    """
    absorption = np.zeros(len(gone), bool)
    rows = np.flatnonzero(gone)
    source, destination = state.edge_index
    for row, versions in zip(rows.tolist(), relatives(state, rows), strict=True):
        if not len(versions):
            continue
        callers = source[destination == row]
        family = np.isin(source, callers) & np.isin(destination, [row, *versions])
        others_called = now[family & (destination != row)].sum() > 0
        absorption[row] = others_called and now[family].sum() >= KEPT * usual[family].sum()
    return absorption


def moves_between_versions(state: MeshState, young: BoolArray) -> BoolArray:
    """Return which young calls ``[E]`` go to another version of a service that the same caller calls, too."""
    between = np.zeros(len(young), bool)
    source, destination = state.edge_index
    calls = np.flatnonzero(young)
    ends = np.unique(destination[calls])
    versions = find_versions(state.node_ids, [state.node_ids[row] for row in ends.tolist()]) if len(ends) else {}
    for call in calls.tolist() if versions else ():
        other_versions = versions.get(state.node_ids[destination[call]], ())
        callees = destination[source == source[call]]
        between[call] = any(state.node_ids[row] in other_versions for row in callees.tolist())
    return between
