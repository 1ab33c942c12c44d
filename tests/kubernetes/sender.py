"""A client in a pod of the cluster, with what the image has: python - URL MESH RECORDING TOKEN_FILE PAUSE_SECONDS

It pushes a recording again and again, each time with later times, and prints a line of JSON for each verdict: when it
came, s since 1970, and its sequence. It ends with the connection that started it.
"""

import dataclasses
import itertools
import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

from serve_app.api.client import Client
from serve_app.recordings.reader import RecordingReader

PATIENCE_SECONDS = 900.0  # of one call: events are measured by their gaps, not cut off


def main(url: str, mesh: str, recording: Path, token_file: Path, pause_seconds: float) -> None:
    """Push until the output is closed."""
    reader = RecordingReader(recording)
    snapshots = list(reader.snapshots())
    length = timedelta(seconds=reader.interval_seconds * len(snapshots))
    never = threading.Event()
    with Client(url, token=token_file.read_text().strip(), patience_seconds=PATIENCE_SECONDS) as client:
        for turn in itertools.count():
            for snapshot in snapshots:
                later = dataclasses.replace(snapshot, observed_at=snapshot.observed_at + turn * length)
                verdict = client.push(mesh, later)
                print(json.dumps({"at": time.time(), "sequence": verdict.sequence}), flush=True)
                never.wait(pause_seconds)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5]))
