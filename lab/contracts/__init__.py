"""The contracts of stores, sources and receivers, as tests. Our plugins pass them, and other packages run them on
theirs.

They need pytest, which a package with a plugin has for its own tests.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("receivers", "sources", "store_content", "stores")))
