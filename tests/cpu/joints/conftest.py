"""Lets pytest say which values differ, also in the checks of the pairs."""

from __future__ import annotations

import pytest

SECONDS = ("protocol", "limit", "shards", "baselines", "twin", "patients", "phrases")
COMMANDS = (
    "int8_with_commands",
    "supervised_with_commands",
    "families_with_features",
    "boxes_with_commands",
    "phrases_with_commands",
    "published_numbers",
    "studies_with_features",
    "twice_with_changes",
)
pytest.register_assert_rewrite("joint_world", *COMMANDS, *(f"pairs_of_{name}" for name in SECONDS))
