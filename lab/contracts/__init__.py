"""What every store, source and receiver does, as tests. Our kinds pass them, and other packages run them on theirs.

They need pytest, which a package of another kind has for its own tests.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("receivers", "sources", "store_content", "stores")))
