"""What the page needs to write numbers that only it has, such as the points of its charts, as the service does."""

import json

from model.incidents.open_incident import LIKELY_SHARE
from model.snapshot import EDGE_METRICS, NODE_METRICS, SignalKind
from model.verdict import OVERDUE
from serve_app.api.number_text import COUNT, MILLISECONDS, PER_SECOND, PERCENT, SECONDS
from serve_app.api.wording import metric_words, unit

UNITS = {
    "percent": PERCENT,
    "seconds": SECONDS,
    "milliseconds": MILLISECONDS,
    "per_second": PER_SECOND,
    "count": COUNT,
}
NAMES = {one: name for name, one in UNITS.items()}


def page_numbers() -> str:
    """Return JSON: ``units`` by name as factor, text and maximum number of digits after the point; ``metrics`` by id as
    name and unit; ``likely_share`` of ``likely_suspects``. Times are in ``seconds``, or in milliseconds below one;
    regular work is a ``span`` of time."""
    metrics = dict.fromkeys([*NODE_METRICS, *EDGE_METRICS, *map(str, SignalKind)])
    named = {name: (metric_words(name), NAMES[unit(name, 1.0)]) for name in metrics}
    return json.dumps(
        {
            "units": {name: (one.factor, one.text, one.digits) for name, one in UNITS.items()},
            "metrics": named | {OVERDUE: (metric_words(OVERDUE), "span")},
            "likely_share": LIKELY_SHARE,
        }
    )
