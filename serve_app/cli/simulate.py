"""``tagae simulate``: record a simulated mesh."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from serve_app.cli.console import print_note, progress, spinner
from serve_app.cli.options import blame

BENIGN, LOSSES = "Benign events", "Gaps in the telemetry"


class SimulateCommand(TyperCommand):
    """A command whose help lists the simulator's faults and changes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from lab.simulator.events.faults import CATALOGUE
        from lab.simulator.events.operations import REASONS

        faults = _format_kinds({kind: entry.words for kind, entry in CATALOGUE.items()})
        self.help = (
            f"{inspect.getdoc(simulate)}\n\n\b\nFaults (--fault), at three severities:\n{faults}\n\n\b\n"
            f"Benign changes (--churn-per-hour):\n{_format_kinds(REASONS)}\n"
        )
        super().format_help(ctx, formatter)


def _format_kinds(kinds: Mapping[Any, str]) -> str:
    return "\n".join(f"  {kind}: {words}" for kind, words in kinds.items())


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="New folder for the recording.")],
    services: Annotated[int, typer.Option(metavar="N", help="Services in the mesh, 20 to 100,000.")] = 60,
    namespaces: Annotated[
        int | None, typer.Option(metavar="N", help="Namespaces. Default: drawn from the seed.")
    ] = None,
    calls_per_service: Annotated[float, typer.Option(metavar="X", help="Mean number of calls per service.")] = 4.0,
    snapshots: Annotated[int, typer.Option(metavar="N", min=1, help="Number of snapshots.")] = 480,
    interval: Annotated[float, typer.Option(metavar="S", help="Seconds between two snapshots.")] = 15.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed; the same seed makes the same recording.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="KIND", help="Kind of fault, from the list above. Repeatable. Default: all."),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option("--severity", metavar="LEVEL", help="minor, major or critical. Repeatable. Default: all."),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults/--no-faults", help="Inject faults.")] = True,
    first_fault: Annotated[int, typer.Option(metavar="N", min=0, help="No fault before this snapshot.")] = 160,
    churn_per_hour: Annotated[
        float,
        typer.Option(metavar="X", min=0, help="Benign changes per hour in the whole mesh.", rich_help_panel=BENIGN),
    ] = 6.0,
    silences_per_hour: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0,
            help="Periods per hour without the telemetry of one service, a group, a scrape shard or all. meta.json "
            "lists them.",
            rich_help_panel=LOSSES,
        ),
    ] = 0.0,
) -> None:
    """Record a simulated mesh with labelled faults and benign changes.

    Latency and errors result from load, queues, timeouts and retries; a fault begins at one place and spreads.
    incidents.parquet labels each fault by its effect, measured against a second run of the mesh without faults.
    events.parquet has the benign changes as announced.

    \b
    Example:
      tagae simulate out/shop --services 60 --seed 7
      tagae simulate out/quiet --no-faults --snapshots 2000
      tagae simulate out/storm --fault retry_storm --severity critical --first-fault 100
      tagae simulate out/silent --no-faults --silences-per-hour 10
    """
    from lab.simulator.events.faults import KINDS, LEVELS
    from lab.simulator.labels import Comparison, compare_runs, incidents
    from lab.simulator.mesh.topology import MeshSpec
    from lab.simulator.scenario import plan_scenario
    from lab.simulator.simulator import Simulator
    from lab.simulator.telemetry.silence import plan_silences
    from serve_app.recordings.format import LabelledIncident
    from serve_app.recordings.writer import RecordingWriter

    for option, values, names in (("--fault", fault, KINDS), ("--severity", severity, LEVELS)):
        for value in values or ():
            if value not in names:
                raise typer.BadParameter(f"expected one of {', '.join(names)}, got {value!r}", param_hint=option)
    with blame():
        spec = MeshSpec(
            services,
            namespaces,
            calls_per_service,
            interval_seconds=interval,
            seed=seed,
            silences_per_hour=silences_per_hour,
        )
    kinds = [kind for kind in KINDS if faults and (not fault or kind in fault)]
    with spinner("planning faults and changes"):
        plan, changes = plan_scenario(
            spec,
            kinds,
            seed,
            snapshots=snapshots,
            first=first_fault,
            churn_per_hour=churn_per_hour,
            levels=[level for level in LEVELS if not severity or level in severity],
        )
        simulator = Simulator(spec, plan, changes, snapshots)
        comparison = Comparison(spec, simulator.mesh, plan)
    if faults and not plan:
        print_note(_explain_no_fault(first_fault, snapshots))
    source = simulator.snapshots()
    if plan:  # the labels compare with a second run without faults
        healthy = Simulator(spec, (), changes, snapshots)
        source = compare_runs(source, healthy.snapshots(), comparison)
    silences = plan_silences(spec, simulator.node_ids, snapshots)
    meta = {
        "source": "tagae simulate",
        "services": services,
        "seed": seed,
        "silences": [silence.to_json(spec) for silence in silences],
    }
    with RecordingWriter(folder, interval, meta) as writer:
        for snapshot in progress(source, "simulating", snapshots):
            writer.write(snapshot)
        for row in incidents(plan, spec, simulator.mesh, comparison.effects()):
            columns = {name: row.pop(name) for name in LabelledIncident.__dataclass_fields__ if name in row}
            writer.add_incident(LabelledIncident(**columns, details=row))
    print_note(
        f"{folder}: {services} services, {simulator.calls.shape[1]} calls, {snapshots} snapshots, "
        f"faults: {len(plan)}, benign changes: {len(changes)}, silences: {len(silences)}"
    )


def _explain_no_fault(first: int, snapshots: int) -> str:
    """Explain why a run has no fault although faults were requested, and what to change."""
    from lab.simulator.scenario import latest_end

    required = latest_end(first)
    if snapshots < required:
        return (
            f"warning: no fault in this recording: the first one can begin after snapshot {first} and end at snapshot "
            f"{required}, but the recording has {snapshots}; use --snapshots {required} or a smaller --first-fault"
        )
    return (
        "warning: no fault in this recording: none of these kinds and levels is possible in this mesh; use other "
        "--fault and --severity values, or more --services"
    )
