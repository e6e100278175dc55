"""Lets pytest say which values differ, also in the checks of the pairs."""

from __future__ import annotations

import pytest

SECONDS = ("protocol", "limit", "shards", "baselines", "twin", "patients", "phrases")
pytest.register_assert_rewrite("joint_world", "int8_with_commands", *(f"pairs_of_{name}" for name in SECONDS))
