"""What holds for the quick tests."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_pictures(empty_drawings: None) -> None:
    """No figure is rendered."""
