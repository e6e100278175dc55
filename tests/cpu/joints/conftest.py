"""Lets pytest say which values differ, also in the checks of the pairs."""

from __future__ import annotations

import pytest

FILES = ("pairs_of_protocol", "pairs_of_limit", "pairs_of_shards", "pairs_of_baselines", "pairs_of_twin")
pytest.register_assert_rewrite("joint_world", *FILES)
