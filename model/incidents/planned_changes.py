"""Planned changes by their effect: which of them delete a service, and which only change its replicas."""

DELETIONS = frozenset({"delete", "deletion", "retire", "retirement"})
SCALINGS = frozenset({"scale_out", "scale_in"})
