"""The contracts of stores, sources, receivers and networks, as tests. Ours pass them, and other packages run them on
theirs.

They need pytest, which a package with a plugin has for its own tests.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("networks", "receivers", "sources", "stores")))
