"""``tagae simulate``: records a simulated mesh."""

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
    """The command; its help lists the simulator's faults and changes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from lab.simulator.events.faults import CATALOGUE
        from lab.simulator.events.operations import REASONS

        faults = _format_kinds({kind: known.words for kind, known in CATALOGUE.items()})
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
        int | None, typer.Option(metavar="N", help="Namespaces; drawn from the seed by default.")
    ] = None,
    calls_per_service: Annotated[float, typer.Option(metavar="X", help="Mean number of calls per service.")] = 4.0,
    snapshots: Annotated[int, typer.Option(metavar="N", min=1, help="Number of snapshots.")] = 480,
    interval: Annotated[float, typer.Option(metavar="S", help="Seconds between two snapshots.")] = 15.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed; the same seed makes the same recording.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="KIND", help="Kind of fault, from the list above. Repeatable; all by default."),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option("--severity", metavar="LEVEL", help="minor, major or critical. Repeatable; all by default."),
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

    Latency and errors emerge from load, queues, timeouts and retries; a fault changes one thing at one place and
    spreads. incidents.parquet labels each fault by its effect, measured against a second run of the same mesh without
    faults. events.parquet has the benign changes as they were announced.

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

    for option, given, known in (("--fault", fault, KINDS), ("--severity", severity, LEVELS)):
        for value in given or ():
            if value not in known:
                raise typer.BadParameter(f"expected one of {', '.join(known)}, got {value!r}", param_hint=option)
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
        injected, changes = plan_scenario(
            spec,
            kinds,
            seed,
            snapshots=snapshots,
            first=first_fault,
            churn_per_hour=churn_per_hour,
            levels=[level for level in LEVELS if not severity or level in severity],
        )
        simulator = Simulator(spec, injected, changes, snapshots)
        comparison = Comparison(spec, simulator.mesh, injected)
    if faults and not injected:
        print_note(_explain_no_fault(first_fault, snapshots))
    source = simulator.snapshots()
    if injected:  # the labels compare with a second run without faults
        without = Simulator(spec, (), changes, snapshots)
        source = compare_runs(source, without.snapshots(), comparison)
    silences = plan_silences(spec, simulator.node_ids, snapshots)
    meta = {
        "source": "tagae simulate",
        "services": services,
        "seed": seed,
        "silences": [one.to_json(spec) for one in silences],
    }
    with RecordingWriter(folder, interval, meta) as writer:
        for snapshot in progress(source, "simulating", snapshots):
            writer.write(snapshot)
        for row in incidents(injected, spec, simulator.mesh, comparison.effects()):
            columns = {name: row.pop(name) for name in LabelledIncident.__dataclass_fields__ if name in row}
            writer.add_incident(LabelledIncident(**columns, details=row))
    print_note(
        f"{folder}: {services} services, {simulator.calls.shape[1]} calls, {snapshots} snapshots, "
        f"faults: {len(injected)}, benign changes: {len(changes)}, silences: {len(silences)}"
    )


def _explain_no_fault(first: int, snapshots: int) -> str:
    """Explain why a run has no fault although faults are wanted, and what to change."""
    from lab.simulator.scenario import latest_end

    needed = latest_end(first)
    if snapshots < needed:
        return (
            f"warning: no fault in this recording: the first one can begin after snapshot {first} and end as late as "
            f"snapshot {needed}, but the recording has {snapshots}; use --snapshots {needed} or a smaller --first-fault"
        )
    return (
        "warning: no fault in this recording: none of these kinds and levels is possible in this mesh; use other "
        "--fault and --severity values, or more --services"
    )
