"""``tagae sidecar``: scores one mesh in one small process beside a workload."""

import asyncio
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import print_state, write_json
from serve_app.cli.mesh_options import UNNAMED, Collected, PrometheusUrl, select_mesh
from serve_app.observability.log_context import set_log_context
from serve_app.observability.logs import stderr_handler


def sidecar(
    prometheus: PrometheusUrl = None,
    mesh: Collected = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: loopback.")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port; 0 takes a free one. Default: 9091.")] = None,
    socket: Annotated[Path | None, typer.Option(metavar="PATH", help="Unix socket for gRPC, in addition.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics for Prometheus; 0 takes a free one. Default: no port.")
    ] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Score one mesh in this process, without Ray, and serve the verdicts over gRPC until Ctrl-C.

    It polls the Prometheus of the mesh. Without one, clients push snapshots (serve_app/sidecar/verdicts.proto). After
    a restart it resumes from the stored state (store.path).

    \b
    Example:
      tagae sidecar --prometheus http://127.0.0.1:9090
      TAGAE_WINDOW_SIZE=60 TAGAE_ANOMALY_PERCENTILE=99.5 tagae sidecar --socket /run/tagae/verdicts.sock
    """
    from serve_app.settings import load
    from serve_app.sidecar.process import run

    flags = {"host": host, "port": port, "socket": socket, "metrics_port": metrics_port}
    given = overrides(settings, **{name: (f"sidecar.{name}", flag) for name, flag in flags.items()})
    loaded = load(config, given)
    polled = prometheus or loaded.collected
    name, selected = select_mesh(loaded, prometheus, mesh) if polled else (mesh or UNNAMED, None)
    if loaded.logs.format == "json":
        logging.basicConfig(handlers=[stderr_handler("sidecar")])
        write_json("sidecar")
    else:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    for package in ("serve_app", "model"):
        logging.getLogger(package).setLevel(logging.INFO)

    def print_ready(addresses: list[str]) -> None:
        source = f"polls {selected.prometheus}" if selected else "waits for snapshots"
        print_state("ready", f"at {' and '.join(addresses)}   mesh {name} {source}", "bold green")

    with (
        set_log_context(name),
        closing(asyncio.new_event_loop()) as loop,
    ):  # asyncio.run would wait for a poll under way
        loop.run_until_complete(run(loaded, name, selected, print_ready))
    # All state is saved. A query that hangs would delay the end of the interpreter.
    logging.shutdown()
    os._exit(0)
