"""The package exports the names that it declares."""

from types import ModuleType

import partitioning


def test_all_lists_existing_names() -> None:
    public = {
        name
        for name, value in vars(partitioning).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(partitioning.__all__)
    assert partitioning.__all__ == sorted(partitioning.__all__, key=lambda name: (name.islower(), name))
