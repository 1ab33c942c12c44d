"""What a process of the service reports about its work: its log, and traces."""

from serve_app.observability.traces import start_traces
from serve_app.runtime import logs, own_process
from serve_app.runtime.replica import is_single, open_instruments
from serve_app.settings import Settings


def start_reporting(settings: Settings, component: str) -> None:
    """Prepare this process, set the form of its log, and start its traces. Each replica calls this first. Calls after
    the first do nothing, since a gate and an ingress can share a process. A process without Ray has its own.

    Raises:
        BadSettings: traces cannot be exported here.
    """
    if is_single():
        return
    own_process.prepare()
    if settings.logs.format == "json":
        logs.write_json(component)
    start_traces(settings.traces, component, open_instruments)
