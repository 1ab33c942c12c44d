"""``tagae export``: write the network for programs in other languages."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from serve_app.cli.console import print_note, spinner
from serve_app.cli.options import Assignments, ConfigFile, read_settings


def export(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, such as OUT.onnx or OUT.pt2.")],
    format: Annotated[
        Literal["onnx", "pt2"] | None,
        typer.Option(help="onnx: for a stock ONNX Runtime; pt2: for torch. Default: by the name of FILE."),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint instead of the configured one.")] = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORDING",
            help="Also write FILE.sample.json: inputs and outputs for the recording's last snapshot, for tests.",
        ),
    ] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Write the network as ONNX or as a torch program, and compare the file with the network.

    ONNX needs [bold]pip install 'tagae\\[export]'[/].

    \b
    Example:
      tagae export out/tagae.onnx
      tagae export out/tagae.pt2 --weights out/mine.safetensors
      tagae export out/tagae.onnx --sample out/shop
    """
    from lab.export.check import require_same
    from lab.export.files import FORMATS
    from lab.export.sample import write_sample
    from model.checkpoint import SHIPPED, load
    from serve_app.errors import BadSettings
    from serve_app.recordings.segments import open_recording

    kind = format or output.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise typer.BadParameter(
            f"expected a name that ends in .onnx or .pt2, or --format, got {output.name}", param_hint="FILE"
        )
    model = read_settings(config, assignments, {"model.weights": weights}).model
    checkpoint = load(model.weights or SHIPPED, network=model.network)
    write, open_file = FORMATS[kind]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with spinner("exporting the network"):
            write(checkpoint, output)
            difference = require_same(checkpoint.network, open_file(output))
    except ModuleNotFoundError as error:
        raise BadSettings(f"tagae export: {error.name} is not installed; run pip install 'tagae[export]'") from None
    print_note(
        f"wrote {output}: model_version {checkpoint.digest}; differs from the network by {difference:.1g} at most"
    )
    if sample is not None:
        target = output.with_name(f"{output.name}.sample.json")
        with spinner("reading the recording"):
            write_sample(checkpoint, open_recording(sample).snapshots(), target)
        print_note(f"wrote {target}")
