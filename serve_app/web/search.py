"""Finds services of a mesh by a part of their names. Returns JSON."""

from collections.abc import Sequence

import msgspec

from model.names import readable
from model.snapshot import MeshSnapshot


def find_services(window: Sequence[MeshSnapshot], text: str, limit: int) -> bytes:
    """Return JSON of a ``ServicesDocument``: services of the snapshots whose ids or original names contain the text, in
    any case.

    The service of exactly this name comes first, then names that begin with the text, with or without namespace.
    """
    distinct = {id(snapshot.node_ids): snapshot.node_ids for snapshot in window}  # most snapshots share them
    wanted = text.casefold()
    services = {name for names in distinct.values() for name in names}
    found = [name for name in services if wanted in name.casefold() or wanted in readable(name).casefold()]

    def rank(name: str) -> tuple[bool, bool, str]:
        spellings = name.casefold(), readable(name).casefold()
        begins = any(one.startswith(wanted) or one.partition("/")[2].startswith(wanted) for one in spellings)
        return text not in (name, readable(name)), not begins, name

    return msgspec.json.encode({"services": sorted(found, key=rank)[:limit], "total": len(found)})
