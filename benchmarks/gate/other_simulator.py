"""Recordings of a simulator by other people, which shares no code with ours."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OTHER_SIMULATOR = Path("../shared/other_mesh/generate.py")


def other_recording(seed: int, options: Sequence[str], folder: Path) -> Path:
    """Run the other simulator unless its recording exists, and write its labels in our columns.

    Returns:
        The folder of the recording.

    Raises:
        subprocess.CalledProcessError: the other simulator failed; its message is on stderr.
    """
    path = folder / str(seed)
    if not (path / "converted").exists():
        command = [sys.executable, str(OTHER_SIMULATOR), *options, "--seed", str(seed), "--out", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        labels = path / "incidents.parquet"
        nodes = pq.read_table(path / "nodes.parquet", columns=["service", "namespace"])
        pq.write_table(
            _our_labels(pq.read_table(labels), nodes.group_by(["service", "namespace"]).aggregate([])), labels
        )
        (path / "converted").touch()
    return path


def _our_labels(labels: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the labels with lists of node ids in place of JSON texts with names; each name exists once in a mesh."""
    if not labels.num_rows:  # the other simulator then writes no columns
        return labels
    ids = {row["service"]: f"{row['namespace']}/{row['service']}" for row in nodes.to_pylist()}
    for ours, theirs in {"candidates": "root_cause_candidates", "affected": "affected_services"}.items():
        named = [json.loads(text or "[]") for text in labels.column(theirs).to_pylist()]
        column = pa.array([[ids[name] for name in names if name in ids] for names in named], pa.list_(pa.string()))
        labels = labels.drop_columns([theirs]).append_column(ours, column)
    return labels
