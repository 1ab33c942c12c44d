"""Finds services of a mesh by a part of their names. Returns JSON."""

from collections.abc import Sequence

import msgspec

from model.snapshot import MeshSnapshot


def find_services(window: Sequence[MeshSnapshot], text: str, limit: int) -> bytes:
    """Return JSON of a ``ServicesDocument``: services of the snapshots whose names contain the text, in any case.

    The service of exactly this name comes first, then names that begin with the text, with or without namespace.
    """
    distinct = {id(snapshot.node_ids): snapshot.node_ids for snapshot in window}  # most snapshots share them
    wanted = text.casefold()
    found = [name for name in {name for names in distinct.values() for name in names} if wanted in name.casefold()]

    def rank(name: str) -> tuple[bool, bool, str]:
        whole = name.casefold()
        return name != text, not (whole.startswith(wanted) or whole.partition("/")[2].startswith(wanted)), name

    return msgspec.json.encode({"services": sorted(found, key=rank)[:limit], "total": len(found)})
