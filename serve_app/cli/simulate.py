"""``tagae simulate``: a recording of a mesh that never was."""

from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.console import for_people, progress
from serve_app.sources.faults import KINDS, incidents, plan_scenario
from serve_app.sources.simulator import Simulator
from serve_app.sources.topology import MeshSpec


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="New folder for the recording.")],
    services: Annotated[
        int, typer.Option(metavar="N", help="Services of the mesh; 20 to 6,000 are what it is made for.")
    ] = 60,
    namespaces: Annotated[
        int | None, typer.Option(metavar="N", help="Namespaces; drawn from the seed by default.")
    ] = None,
    calls_per_service: Annotated[float, typer.Option(metavar="X", help="Mean calls of a service.")] = 4.0,
    snapshots: Annotated[int, typer.Option(metavar="N", min=1, help="How many to record.")] = 480,
    interval: Annotated[float, typer.Option(metavar="S", help="Seconds between two snapshots.")] = 15.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of everything random: same seed, same recording.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="KIND", help=f"{', '.join(KINDS)}. Repeatable; all by default."),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults/--no-faults", help="Inject faults at all.")] = True,
    first_fault: Annotated[int, typer.Option(metavar="N", min=0, help="No fault before this snapshot.")] = 160,
    churn_per_hour: Annotated[
        float, typer.Option(metavar="X", min=0, help="Deploys and scalings an hour, all benign.")
    ] = 6.0,
) -> None:
    """Record a simulated mesh, with labelled faults and benign deploys and scalings.

    Latency and errors emerge from load, queues, timeouts and retries; a fault is set at one service and spreads.
    The labels go to incidents.parquet, the benign actions to events.parquet.

    \b
    Example:
      tagae simulate out/shop --services 60 --seed 7
      tagae simulate out/quiet --no-faults --snapshots 2000
      tagae simulate out/storm --fault retry_storm --first-fault 100
    """
    from serve_app.recording import LabelledIncident, RecordingWriter

    for kind in fault or ():
        if kind not in KINDS:
            raise typer.BadParameter(f"expected one of {', '.join(KINDS)}, came {kind!r}", param_hint="--fault")
    try:
        spec = MeshSpec(services, namespaces, calls_per_service, interval_seconds=interval, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    kinds = [kind for kind in KINDS if faults and (not fault or kind in fault)]
    injected, changes = plan_scenario(
        spec, kinds, seed, snapshots=snapshots, first=first_fault, churn_per_hour=churn_per_hour
    )
    simulator = Simulator(spec, injected, changes, snapshots)
    meta = {"source": "tagae simulate", "services": services, "seed": seed}
    with RecordingWriter(folder, interval, meta) as writer:
        for snapshot in progress(simulator.snapshots(), "simulating", snapshots):
            writer.write(snapshot)
        for row in incidents(injected, spec):
            known = {name: row.pop(name) for name in LabelledIncident.__dataclass_fields__ if name in row}
            writer.add_incident(LabelledIncident(**known, details=row))
    for_people().print(
        f"{folder}: {services} services, {simulator.calls.shape[1]} calls, {snapshots} snapshots, "
        f"faults: {len(injected)}, benign changes: {len(changes)}"
    )
