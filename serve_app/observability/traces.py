"""Starts a process's traces if the settings ask for them."""

from collections.abc import Callable
from importlib import import_module

from serve_app.errors import BadSettings
from serve_app.metrics import Instruments
from serve_app.net.endpoint import ssl_context
from serve_app.observability.spans import is_recording
from serve_app.settings.observability import TraceSettings


def check_traces(settings: TraceSettings) -> None:
    """Check that spans can be exported here if the settings ask for it.

    Raises:
        BadSettings: a package is not installed, or the certificates cannot be read.
    """
    if settings.endpoint is None:
        return
    try:
        import_module("serve_app.observability.export")
    except ImportError as error:
        raise BadSettings(
            f"traces.endpoint: the OpenTelemetry packages are not installed ({error}); pip install 'tagae[otel]', or "
            "remove the setting"
        ) from error
    try:
        ssl_context(settings.ca_file)
    except BadSettings as error:
        raise BadSettings(f"traces.{error}; correct it") from None


def start_traces(settings: TraceSettings, component: str, instruments: Callable[[], Instruments]) -> Callable[[], None]:
    """Record and export this process's spans if the settings have an endpoint. Calls after the first do nothing.

    Args:
        component: what this process is, such as ``session``.
        instruments: creates the counter for dropped spans; called only if there is an endpoint.

    Returns:
        A function that sends waiting spans; call it if the process ends without ``atexit``.

    Raises:
        BadSettings: see :func:`check_traces`.
    """
    check_traces(settings)
    if settings.endpoint is None or is_recording():
        return lambda: None
    from serve_app.observability.export import start_export

    return start_export(settings, component, instruments()).flush
