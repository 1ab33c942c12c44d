"""Units, names and kinds of metrics, with which the page writes its own numbers, such as chart points, like the
service."""

import json
from datetime import datetime

from model.incidents.kind import reason_kind
from model.incidents.open_incident import LIKELY_SHARE
from model.snapshot import EDGE_METRICS, NODE_METRICS, SignalKind
from model.verdict import DROPPED, LOSES, LOST, MOVED, NEW, OF_NAMESPACE, OVERDUE, SENT, VANISHED, WAITS, Reason
from serve_app.api.number_text import COUNT, MILLISECONDS, PER_SECOND, PERCENT, SECONDS
from serve_app.api.wording import metric_words, unit

UNITS = {"percent": PERCENT, "seconds": SECONDS, "milliseconds": MILLISECONDS, "per_second": PER_SECOND, "count": COUNT}
UNIT_NAMES = {display_unit: name for name, display_unit in UNITS.items()}
REASONS = (VANISHED, LOST, NEW, MOVED, DROPPED, SENT, WAITS, LOSES, *OF_NAMESPACE, OVERDUE)  # that are not metrics


def page_numbers() -> str:
    """Return JSON: ``units`` by name as factor, text and maximum number of digits after the point; ``metrics`` by id as
    name, unit and the kind of the incidents that follow from it; ``likely_share`` of ``likely_suspects``. Times are in
    ``seconds``, or in milliseconds below one; regular work is a ``span`` of time."""
    metrics = dict.fromkeys([*NODE_METRICS, *EDGE_METRICS, *map(str, SignalKind), *REASONS])
    return json.dumps(
        {
            "units": {name: (scale.factor, scale.text, scale.digits) for name, scale in UNITS.items()},
            "metrics": {name: (metric_words(name), _unit_name(name), _kind(name)) for name in metrics},
            "likely_share": LIKELY_SHARE,
        }
    )


def _unit_name(metric: str) -> str:
    return "span" if metric == OVERDUE else UNIT_NAMES[unit(metric, 1.0)]


def _kind(metric: str) -> str:
    return reason_kind(Reason(metric=metric, observed=0.0, expected=0.0, since=datetime.min)).value
