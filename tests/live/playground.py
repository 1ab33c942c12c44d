"""A mesh to watch and to break by hand. ``make mesh`` starts it, and it runs until it is stopped.

It is in tests/ because it uses helpers of the tests, which are not shipped.
"""

import argparse
import signal
import socket
import sys
import tempfile
from pathlib import Path
from threading import Event

from tests.live.mesh import NEEDS, LiveMesh
from tests.live.programs import LOOPBACK, missing_programs
from tests.live.topology import NAMESPACE, SHOP

PROMETHEUS_PORT, CONTROL_PORT = 9090, 9095  # the first is the port in README
LOAD_SECONDS = 3600.0  # duration of one load, before the next one begins
POLL_SECONDS = 1.0


def main() -> int:
    """Run the mesh. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.playground", description=__doc__)
    parser.add_argument("--prometheus-port", type=int, default=PROMETHEUS_PORT)
    parser.add_argument("--control-port", type=int, default=CONTROL_PORT)
    parser.add_argument("--scrape-seconds", type=_positive, default=1.0, help="between two scrapes of a sidecar")
    parser.add_argument("--requests-per-second", type=float, default=40.0)
    parser.add_argument("--folder", type=Path, default=Path("out/mesh"), help="for tagae.toml")
    args = parser.parse_args()
    if missing := missing_programs(*NEEDS):
        print(f"make mesh: not installed: {'; '.join(missing)}", file=sys.stderr)
        return 1
    for port, option in ((args.prometheus_port, "PORT"), (args.control_port, "CONTROL")):
        if not _is_free(port):
            print(
                f"make mesh: port {port} is in use, perhaps by another Prometheus or another mesh; stop it, or choose "
                f"another port: make mesh {option}=19090",
                file=sys.stderr,
            )
            return 1
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    print("Starting seven services, their Envoys and a Prometheus", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="tagae-mesh-") as folder,
        LiveMesh(
            Path(folder),
            scrape_seconds=args.scrape_seconds,
            prometheus_port=args.prometheus_port,
            control_port=args.control_port,
        ) as mesh,
    ):
        settings = _write_settings(args.folder, mesh.prometheus)
        print(_instructions(mesh, settings, args.scrape_seconds), flush=True)
        while not ended.is_set():
            if not mesh.loaded:
                mesh.load(args.requests_per_second, LOAD_SECONDS)
            ended.wait(POLL_SECONDS)
        print("Stopping", flush=True)
    return 0


def _positive(text: str) -> float:
    """A number of seconds, for argparse.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expected a positive number of seconds, got {text!r}; try make mesh SCRAPE=30"
        )
    return seconds


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((LOOPBACK, port)) != 0


def _write_settings(folder: Path, prometheus: str) -> Path:
    """Write the settings of a service that watches the mesh, and return their path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tagae.toml"
    path.write_text(
        f"""# Written by `make mesh`.
[meshes.{NAMESPACE}]
prometheus = "{prometheus}"

[store]
path = "{(folder / "state").resolve()}"
""",
        encoding="utf-8",
    )
    return path


def _instructions(mesh: LiveMesh, settings: Path, scrape_seconds: float) -> str:
    tagae = Path(sys.executable).with_name("tagae")
    if tagae.is_relative_to(Path.cwd()):
        tagae = tagae.relative_to(Path.cwd())
    faults = f"{mesh.control}/faults"
    return f"""
The mesh is ready.
  Prometheus  {mesh.prometheus}, scrapes every {scrape_seconds:g} s
  services    {", ".join(service.name for service in SHOP)}
  settings    {settings}

Watch it, in a second terminal:
  {tagae} doctor --config {settings} --source {NAMESPACE}
  {tagae} serve --config {settings}
The mesh appears after two scrapes. The first verdict that can raise an alert comes after ten snapshots, or two and a
half minutes.

Break it, in a third terminal: payment is 0.2 s slower, half of its requests fail, or it is down.
  curl -X PUT {faults}/payment -d '{{"delay_seconds": 0.2}}'
  curl -X PUT {faults}/payment -d '{{"error_share": 0.5}}'
  curl -X PUT {faults}/payment -d '{{"dead": true}}'
End all faults:
  curl -X DELETE {faults}

The mesh runs until you stop it with Ctrl-C.
"""


if __name__ == "__main__":
    sys.exit(main())
