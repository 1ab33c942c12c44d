"""Memory of a hostile body: below ten times its size and 50 MB, in every form and route.

Each body is decoded in its own process, which reports the growth of its peak.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from serve_app.actions.feedback import decode_feedback
from serve_app.api.codec import ARROW, JSON, Limits, decode_snapshot
from serve_app.api.schemas.actions import MuteDocument
from serve_app.deployments.http.bodies import schema_decoder
from serve_app.errors import ServeError
from tests.serve_app.api.bodies import FACTOR, JSONS, SPARE, cell, one_name, services, stream

LIMITS = Limits(20_000, 200_000, 1000, 20_000)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc"),
]


MANY = 2**26
ARROWS: dict[str, Callable[[int], bytes]] = {
    "changes without width": lambda _: stream(services=services(), changes=cell(pa.nulls(MANY))),
    "a version of empty structs": lambda _: stream(
        services=services(), version=cell(pa.StructArray.from_buffers(pa.struct([]), 2**20, [None]))
    ),
    "a version of nulls": lambda _: stream(services=services(), version=cell(pa.nulls(2**20))),
    "one long change for all": lambda _: stream(
        services=services(), changes=cell(pa.StructArray.from_arrays([one_name(999)] * 2, ["kind", "service"]))
    ),
    "services with one long metric": lambda _: stream(
        services=cell(
            pa.StructArray.from_arrays(
                [pa.array(["n"] * 60), pa.array(["b"] * 60), one_name(60)], ["namespace", "name", "metrics"]
            )
        )
    ),
    "wrong calls": lambda size: stream(
        services=services(),
        calls=cell(
            pa.StructArray.from_arrays(
                [pa.array(["n/x"] * (size // 24)), pa.array(["n/y"] * (size // 24)), pa.array(np.ones(size // 24))],
                ["source", "destination", "requests_per_second"],
            )
        ),
    ),
    "text": lambda size: b"x" * size,
}


def measure_growth(body: bytes, read: Callable[[bytes], object]) -> int:
    """Return the growth of a process's peak in bytes while it reads a body."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if not child:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current memory
            before = _peak()
            with suppress(ServeError):
                read(body)
            os.write(outlet, json.dumps(_peak() - before).encode())
        finally:
            os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet, "rb") as pipe:
        report = pipe.read()
    os.waitpid(child, 0)
    return int(json.loads(report))


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("size", [2**20, 2**23], ids=["1 MiB", "8 MiB"])
@pytest.mark.parametrize(
    ("media_type", "case"),
    [(kind, case) for kind, cases in ((JSON, JSONS), (ARROW, ARROWS)) for case in cases],
)
def test_memory_is_in_proportion_to_the_body(media_type: str, case: str, size: int) -> None:
    body = {JSON: JSONS, ARROW: ARROWS}[media_type][case](size)
    most = measure_growth(body, lambda body: decode_snapshot(body, media_type, LIMITS))
    assert most < FACTOR * len(body) + SPARE, (len(body), most)


@pytest.mark.parametrize("decode", [decode_feedback, schema_decoder(MuteDocument)], ids=["feedback", "mute"])
@pytest.mark.parametrize("case", JSONS)
def test_memory_of_actions_is_in_proportion_too(case: str, decode: Callable[[bytes], object]) -> None:
    body = JSONS[case](2**20)
    assert measure_growth(body, decode) < FACTOR * len(body) + SPARE
