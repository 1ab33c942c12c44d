"""``tagae simulate``: a recording of a mesh that never was."""

from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.console import for_people, progress
from serve_app.sources.faults import KINDS, LEVELS
from serve_app.sources.labels import Comparison, compared, incidents
from serve_app.sources.scenario import plan_scenario
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
    severity: Annotated[
        list[str] | None,
        typer.Option("--severity", metavar="LEVEL", help=f"{', '.join(LEVELS)}. Repeatable; all by default."),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults/--no-faults", help="Inject faults at all.")] = True,
    first_fault: Annotated[int, typer.Option(metavar="N", min=0, help="No fault before this snapshot.")] = 160,
    churn_per_hour: Annotated[
        float, typer.Option(metavar="X", min=0, help="Deploys and scalings an hour, all benign.")
    ] = 6.0,
    mute_churn: Annotated[
        bool, typer.Option("--mute-churn", help="Same mesh, plan and faults with every benign action left out.")
    ] = False,
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

    for option, given, known in (("--fault", fault, KINDS), ("--severity", severity, LEVELS)):
        for value in given or ():
            if value not in known:
                raise typer.BadParameter(f"expected one of {', '.join(known)}, came {value!r}", param_hint=option)
    try:
        spec = MeshSpec(services, namespaces, calls_per_service, interval_seconds=interval, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    kinds = [kind for kind in KINDS if faults and (not fault or kind in fault)]
    injected, changes = plan_scenario(
        spec,
        kinds,
        seed,
        snapshots=snapshots,
        first=first_fault,
        churn_per_hour=churn_per_hour,
        levels=[level for level in LEVELS if not severity or level in severity],
    )
    simulator = Simulator(spec, injected, changes, snapshots, mute_churn=mute_churn)
    comparison = Comparison(spec, simulator.mesh, injected)
    source = simulator.snapshots()
    if injected:  # labels tell what a fault did, so the same mesh runs a second time without any
        without = Simulator(spec, (), changes, snapshots, mute_churn=mute_churn)
        source = compared(source, without.snapshots(), comparison)
    meta = {"source": "tagae simulate", "services": services, "seed": seed, "mute_churn": mute_churn}
    with RecordingWriter(folder, interval, meta) as writer:
        for snapshot in progress(source, "simulating", snapshots):
            writer.write(snapshot)
        for row in incidents(injected, spec, simulator.mesh, comparison.effects()):
            columns = {name: row.pop(name) for name in LabelledIncident.__dataclass_fields__ if name in row}
            writer.add_incident(LabelledIncident(**columns, details=row))
    for_people().print(
        f"{folder}: {services} services, {simulator.calls.shape[1]} calls, {snapshots} snapshots, "
        f"faults: {len(injected)}, benign changes: {len(changes)}"
    )
