"""What every store, source and receiver does, as tests: ours pass them, and so do those of other packages.

They need pytest, which a package of another kind has for its own tests.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("receivers", "sources", "store_content", "stores")))
