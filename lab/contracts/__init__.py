"""What every store, source, receiver and network does, as tests. Ours pass them, and other packages run them on theirs.

They need pytest, which such a package has for its own tests.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("networks", "receivers", "sources", "store_content", "stores"))
)
