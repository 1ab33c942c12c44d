"""``tagae sidecar``: one mesh judged in one small process beside a workload."""

import asyncio
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import for_people
from serve_app.cli.live import UNNAMED, Collected, PrometheusUrl, mesh_of


def sidecar(
    prometheus: PrometheusUrl = None,
    mesh: Collected = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback by default.")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port; 0 takes a free one. 9091 by default.")] = None,
    socket: Annotated[Path | None, typer.Option(metavar="PATH", help="A Unix socket for the same.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics for Prometheus; 0 takes a free one. None by default.")
    ] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Judge one mesh in this process, without Ray, and tell verdicts over gRPC until Ctrl-C.

    It polls the mesh's Prometheus; where the settings have none and none is given, snapshots are pushed to it
    (serve_app/sidecar/verdicts.proto). Started again, it goes on where it was (store.path).

    \b
    Example:
      tagae sidecar --prometheus http://127.0.0.1:9090
      TAGAE_WINDOW_SIZE=60 TAGAE_ANOMALY_PERCENTILE=99.5 tagae sidecar --socket /run/tagae/verdicts.sock
    """
    from serve_app.settings import load
    from serve_app.sidecar.process import run

    flags = {"host": host, "port": port, "socket": socket, "metrics_port": metrics_port}
    given = load(config, overrides(settings, **{name: (f"sidecar.{name}", flag) for name, flag in flags.items()}))
    polled = prometheus or given.collector.meshes
    name, asked = mesh_of(given, prometheus, mesh) if polled else (mesh or UNNAMED, None)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("ray.serve").setLevel(logging.INFO)

    def ready(addresses: list[str]) -> None:
        whence = f"polls {asked.prometheus}" if asked else "waits for snapshots"
        for_people().print(f"[bold green]ready[/] at {' and '.join(addresses)}   mesh {name} {whence}", soft_wrap=True)

    with closing(asyncio.new_event_loop()) as loop:  # and not asyncio.run, which would wait for a poll under way
        loop.run_until_complete(run(given, name, asked, ready))
    # All is saved and said. Queries that hang in a Prometheus would hold the interpreter up for as long as they may.
    logging.shutdown()
    os._exit(0)
