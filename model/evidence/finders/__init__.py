"""The finders: each looks for one event in the whole mesh. A new one is a file here, and a line in ``FINDERS``."""

from model.evidence.finders.bad_change import find_bad_changes
from model.evidence.finders.canaries import find_worse_canaries
from model.evidence.finders.disappeared import find_disappeared
from model.evidence.finders.dropped_calls import find_dropped_calls
from model.evidence.finders.finder import Finder
from model.evidence.finders.gross_harm import find_gross_harm
from model.evidence.finders.rerouted import find_rerouted

FINDERS: tuple[Finder, ...] = (
    find_bad_changes,
    find_worse_canaries,
    find_gross_harm,
    find_disappeared,
    find_rerouted,
    find_dropped_calls,
)
