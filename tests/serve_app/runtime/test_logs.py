"""Records of our modules reach the handlers of Serve's logger, at its level."""

import asyncio
import io
import json
import logging
import logging.handlers
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from serve_app.observability.logs import LogContext, log_context, set_log_context
from serve_app.pipeline import run_in_pool
from serve_app.runtime import logs


class Recorded(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name} {record.getMessage()}")


@pytest.fixture
def serve_log() -> Iterator[Recorded]:
    serve, recorded = logging.getLogger("ray.serve"), Recorded()
    before = {package: logging.getLogger(package).level for package in logs.PACKAGES}
    level = serve.level
    serve.addHandler(recorded)
    yield recorded
    serve.removeHandler(recorded)
    serve.setLevel(level)
    for package, old in before.items():
        logger = logging.getLogger(package)
        logger.handlers = [one for one in logger.handlers if not isinstance(one, logs.ToServeLog)]
        logger.setLevel(old)
        logger.propagate = True


def test_records_go_to_the_log_of_serve_at_its_level(serve_log: Recorded) -> None:
    logs.install()
    logs.install()
    logging.getLogger("ray.serve").setLevel(logging.INFO)
    log = logging.getLogger("serve_app.stores.sqlite.store")
    log.debug("too detailed")
    log.info("as set")
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    log.warning("not severe enough")
    logging.getLogger("model.checkpoint").error("severe")
    logging.getLogger("elsewhere").error("of others")
    assert serve_log.texts == ["serve_app.stores.sqlite.store as set", "model.checkpoint severe"]


def test_probes_calls_between_replicas_and_all_routes_are_not_logged(serve_log: Recorded) -> None:
    logs.install()
    serve = logging.getLogger("ray.serve")
    serve.setLevel(logging.INFO)
    for path in ("/healthz", "/metrics", "/v1/meshes"):
        serve.info("GET %s 200 1.2ms", path, extra={"serve_access_log": True})
    serve.info("CALL %s OK 1.2ms", "call", extra={"serve_access_log": True})
    serve.info("Got updated endpoints: {}.")
    serve.info("the path /healthz is logged elsewhere")
    assert serve_log.texts == [
        "ray.serve GET /v1/meshes 200 1.2ms",
        "ray.serve the path /healthz is logged elsewhere",
    ]


@pytest.fixture
def json_lines() -> Iterator[io.StringIO]:
    """The file of Serve's log, as Serve sets it up: a handler that buffers in front of one that writes."""
    serve, written = logging.getLogger("ray.serve"), io.StringIO()
    target = logging.StreamHandler(written)
    target.setFormatter(logging.Formatter("plain %(message)s"))
    buffering = logging.handlers.MemoryHandler(1, target=target)
    serve.addHandler(buffering)
    yield written
    serve.removeHandler(buffering)
    for one in [one for one in serve.filters if isinstance(one, logs.AsJson)]:
        serve.removeFilter(one)


def test_json_lines_name_mesh_and_snapshot_of_ours_and_of_serve(serve_log: Recorded, json_lines: io.StringIO) -> None:
    logs.install()
    logs.write_json("session")
    logs.write_json("ingress")  # in the same process
    logging.getLogger("ray.serve").setLevel(logging.INFO)
    log = logging.getLogger("serve_app.deployments.session.mesh_session")
    with set_log_context("shop", 17):
        log.warning('a "quoted"\nline of %d parts', 3)
        with set_log_context("pay"):
            logging.getLogger("ray.serve").info("ready")
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("failed")
    first, second, third = (json.loads(line) for line in json_lines.getvalue().splitlines())
    assert datetime.fromisoformat(first.pop("time")).tzinfo == UTC
    assert first == {
        "level": "warning",
        "logger": "serve_app.deployments.session.mesh_session",
        "message": 'a "quoted"\nline of 3 parts',
        "component": "session",
        "mesh": "shop",
        "sequence": 17,
        "trace_id": None,
    }
    assert (second["logger"], second["mesh"], second["sequence"]) == ("ray.serve", "pay", None)
    assert (third["mesh"], third["level"]) == (None, "error")
    assert third["exception"].endswith("ValueError: wrong")


def test_work_in_a_pool_keeps_its_mesh() -> None:
    async def name_mesh() -> LogContext:
        return log_context()

    async def work() -> LogContext:
        with ThreadPoolExecutor(1) as pool, set_log_context("shop", 3):
            return await run_in_pool(pool, name_mesh)

    assert asyncio.run(work()) == LogContext("shop", 3)
    assert log_context() == LogContext()
