"""The contracts of stores, sources, receivers and networks, as tests for ours and for other packages' plugins.

They need pytest.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("networks", "receivers", "sources", "stores")))
