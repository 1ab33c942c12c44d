"""Time limits of tests. They end tests that hang; they do not measure speed.

Limits fit a quiet machine. On a slow or busy one, set ``TAGAE_TEST_TIME_FACTOR``: it multiplies the limits of this
module and of ``pytest.mark.timeout``.
"""

import os

TIME_FACTOR = float(os.environ.get("TAGAE_TEST_TIME_FACTOR", "1"))
PATIENCE_SECONDS = 60.0 * TIME_FACTOR
"""Limit for something that takes a second or two on a quiet machine."""
