"""The service of ``verdicts.proto``, and our errors as gRPC statuses."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc

from serve_app.alerts.annotations import truncate
from serve_app.api.codec import JSON, Limits, decode_snapshot, require_not_ahead
from serve_app.api.codec.limits import MAX_CHANGES, MAX_POLICIES
from serve_app.api.problems import problem
from serve_app.errors import Overloaded, UnknownMesh, answer
from serve_app.metrics import REFUSALS, Instruments
from serve_app.observability.spans import HEADER
from serve_app.settings import Settings
from serve_app.sidecar.detector import Detector
from serve_app.sidecar.generated.verdicts_pb2 import LatestRequest, Snapshot, Verdict, WatchRequest
from serve_app.sidecar.generated.verdicts_pb2_grpc import VerdictsServicer
from serve_app.sidecar.messages import snapshot_document, verdict_message

MOST_LETTERS = 600  # of a status' text: with its encoding it stays below the 8 KiB that a peer takes as metadata
STATUS = {  # of gRPC, by HTTP's
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    421: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    431: grpc.StatusCode.INVALID_ARGUMENT,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
log = logging.getLogger(__name__)


class Verdicts(VerdictsServicer):
    """Answers for one detector.

    Args:
        detector: of the mesh.
        settings: its ``limits`` and ``sidecar.max_watchers``.
    """

    def __init__(self, detector: Detector, settings: Settings) -> None:
        self._detector = detector
        self._limits = settings.limits
        self._free = settings.sidecar.max_watchers

    async def Latest(self, request: LatestRequest, context: Any) -> Verdict:  # noqa: N802 - gRPC's names
        """The newest verdict."""
        async with answer_errors(context, self._detector.instruments):
            if self._detector.newest.verdict is None:
                raise UnknownMesh(
                    f"mesh {self._detector.mesh!r}: has no verdict yet; the first one follows the first snapshot"
                )
            return self._detector.newest.verdict

    async def Watch(self, request: WatchRequest, context: Any) -> AsyncIterator[Verdict]:  # noqa: N802
        """Each newest verdict. A slow watcher delays no other."""
        async with answer_errors(context, self._detector.instruments):
            if self._free == 0:
                raise Overloaded(
                    "sidecar: the maximum number of watchers is reached; close one, or raise sidecar.max_watchers"
                )
            self._free -= 1
            number = 0
            try:
                while True:
                    number, verdict = await self._detector.newest.after(number)
                    yield verdict
            finally:
                self._free += 1

    async def Push(self, request: Snapshot, context: Any) -> Verdict:  # noqa: N802
        """Push a snapshot."""
        async with answer_errors(context, self._detector.instruments):
            limits, document = self._limits, await asyncio.to_thread(snapshot_document, request)
            snapshot = await asyncio.to_thread(
                decode_snapshot,
                document,
                JSON,
                Limits(limits.max_services, limits.max_calls, MAX_CHANGES, MAX_POLICIES),
            )
            require_not_ahead(snapshot.observed_at, datetime.now(UTC), limits.max_ahead_seconds)
            trace = str(dict(context.invocation_metadata() or ()).get(HEADER, ""))
            return verdict_message(await self._detector.push(snapshot, trace))


@asynccontextmanager
async def answer_errors(context: Any, instruments: Instruments) -> AsyncIterator[None]:
    """Answer errors of the block with a status, in the words of the HTTP interface's problems, and count them."""
    try:
        yield
    except Exception as error:
        instruments.count(REFUSALS, code=answer(error).code)
        await abort(context, error)


async def abort(context: Any, error: Exception) -> None:
    """End a call with an error: its status, its text, and the type of the problem in the trailing metadata."""
    document = problem(error)
    code = STATUS[document.status]
    if code is grpc.StatusCode.INTERNAL:
        log.error("a request failed", exc_info=error)
    metadata = (("tagae-problem", document.type), *((("tagae-pointer", document.pointer),) if document.pointer else ()))
    await context.abort(code, truncate(document.detail, MOST_LETTERS), metadata)
