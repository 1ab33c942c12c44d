"""How long tests may wait."""

import os

TIMEOUT_FACTOR = float(os.environ.get("TAGAE_TEST_TIMEOUT_FACTOR", "4"))
"""Time limits of tests are those of a quiet machine times this. They end what hangs, and judge no speed."""
