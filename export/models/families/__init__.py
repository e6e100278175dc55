"""Families of models that need no adapter: their own configuration says what a bundle must know."""

from __future__ import annotations

from ....engines.registry import Registry

__all__ = ["FAMILIES"]

FAMILIES = Registry(
    "family",
    {
        "open_clip": "xbench_fast.export.models.families.open_clip:OpenClipAdapter",
        "transformers": "xbench_fast.export.models.families.transformers:TransformersAdapter",
    },
)
