"""Units, names and kinds of metrics, with which the page writes its own numbers, such as chart points, like the
service."""

import json

from model.incidents.open_incident import LIKELY_SHARE
from model.snapshot import EDGE_METRICS, NODE_METRICS, SignalKind
from model.verdict import DROPPED, LOSES, LOST, MOVED, NEW, OF_NAMESPACE, OVERDUE, SENT, VANISHED, WAITS
from serve_app.api.number_text import COUNT, MILLISECONDS, PER_SECOND, PERCENT, SECONDS
from serve_app.api.wording import metric_kind, metric_words, unit

UNITS = {"percent": PERCENT, "seconds": SECONDS, "milliseconds": MILLISECONDS, "per_second": PER_SECOND, "count": COUNT}
UNIT_NAMES = {display_unit: name for name, display_unit in UNITS.items()}
REASONS = (VANISHED, LOST, NEW, MOVED, DROPPED, SENT, WAITS, LOSES, *OF_NAMESPACE, OVERDUE)  # that are not metrics


def page_numbers() -> str:
    """Return JSON: ``units`` by name as factor, text and maximum number of digits after the point; ``metrics`` by id as
    name, unit and kind of incident; ``likely_share`` of ``likely_suspects``. Times are in ``seconds``, or in
    milliseconds below one; regular work is a ``span`` of time."""
    metrics = {}
    for name in (*NODE_METRICS, *EDGE_METRICS, *map(str, SignalKind), *REASONS):
        unit_name = "span" if name == OVERDUE else UNIT_NAMES[unit(name, 1.0)]
        metrics[name] = metric_words(name), unit_name, metric_kind(name)
    units = {name: (scale.factor, scale.text, scale.digits) for name, scale in UNITS.items()}
    return json.dumps({"units": units, "metrics": metrics, "likely_share": LIKELY_SHARE})
