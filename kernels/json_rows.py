"""Compiled reader of a snapshot's JSON document, from rows to columns.

It gives up on any document that is not plainly right, with no reason. ``serve_app.api.codec`` defines the format, and
its other decoder names mistakes. That one runs where the library does not.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.library import choose_json, read_setting

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
SHORTEST_SERVICE = len('{"namespace":"a","name":"b"}')
SHORTEST_CALL = len('{"source":"a/b","destination":"a/b"}')
_SPANS = ("observed_at", "changes", "policies")


class _Rows(ctypes.Structure):
    """``JsonRows`` of ``csrc/json_rows.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "most_services", "most_calls", "slots", "services", "calls")),
        ("largest", ctypes.c_double),
        *((name, ctypes.c_char_p) for name in ("body", "keys")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("spans", "ids", "id_starts", "places", "metrics", "signals"),
                *("sources", "destinations", "call_metrics"),
            )
        ),
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of numbers, in the order of their columns: of a service's metrics and signals, and of a call."""

    metrics: tuple[str, ...]
    signals: tuple[str, ...]
    call: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a document has: N services, E calls.

    Attributes:
        ids: ``namespace/name`` of each service, in UTF-8 if the document is, each with a line break after it.
        metrics, signals: ``[N, keys]``, NaN where missing or null.
        edge_index: ``[2, E]``, positions of the services.
        call_metrics: ``[E, keys]``, as ``metrics``.
        observed_at, changes, policies: in JSON, still encoded and not checked; the last two are empty if missing.
    """

    ids: bytes
    metrics: Floats
    signals: Floats
    edge_index: Integers
    call_metrics: Floats
    observed_at: bytes
    changes: bytes
    policies: bytes


_BACKEND = choose_json(read_setting())


def read_rows(
    body: bytes, keys: Keys, largest: float, most_services: int | None, most_calls: int | None
) -> Columns | None:
    """Read a document.

    Args:
        body: the document in JSON.
        keys: of its numbers.
        largest: value of a number.
        most_services, most_calls: it may have; None: any number.

    Returns:
        None where the reader gives up, and where the library does not run.
    """
    if _BACKEND.library is None:
        return None
    services, calls = len(body) // SHORTEST_SERVICE + 1, len(body) // SHORTEST_CALL + 1
    services = services if most_services is None else min(services, most_services)
    calls = calls if most_calls is None else min(calls, most_calls)
    # The system provides a page of these arrays only when it is written.
    arrays: dict[str, NDArray[Any]] = {
        "spans": np.zeros((len(_SPANS), 2), np.int64),
        "ids": np.empty(len(body) + 1, np.uint8),
        "id_starts": np.zeros(services + 1, np.int64),
        "places": np.empty(1 << (2 * services).bit_length(), np.int32),
        "metrics": np.empty((services, len(keys.metrics)), np.float32),
        "signals": np.empty((services, len(keys.signals)), np.float32),
        "sources": np.empty(calls, np.int64),
        "destinations": np.empty(calls, np.int64),
        "call_metrics": np.empty((calls, len(keys.call)), np.float32),
    }
    rows = _Rows(
        length=len(body),
        most_services=services,
        most_calls=calls,
        slots=len(arrays["places"]),
        largest=largest,
        body=body,
        keys=_encode(keys),
        **{name: array.ctypes.data for name, array in arrays.items()},
    )
    if not _BACKEND.library.tagae_read_rows(ctypes.byref(rows)):
        return None
    services, calls = rows.services, rows.calls
    length = int(arrays["id_starts"][services])
    return Columns(
        ids=arrays["ids"][:length].tobytes(),
        metrics=arrays["metrics"][:services],
        signals=arrays["signals"][:services],
        edge_index=np.stack([arrays["sources"][:calls], arrays["destinations"][:calls]]),
        call_metrics=arrays["call_metrics"][:calls],
        **{name: body[start:stop] for name, (start, stop) in zip(_SPANS, arrays["spans"].tolist(), strict=True)},
    )


@cache
def _encode(keys: Keys) -> bytes:
    """The keys of all objects, as ``csrc/json_rows.h`` describes them."""
    document = ("observed_at", "services", "calls", "changes", "policies", "version")
    service = ("namespace", "name", "metrics", "signals")
    objects = (document, service, keys.metrics, keys.signals, ("source", "destination", *keys.call))
    return "\n".join("".join(f'{key}"' for key in names) for names in objects).encode()
