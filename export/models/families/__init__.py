"""Families of models that need no adapter: a configuration says what a bundle must know."""

from __future__ import annotations

from ....engines.registry import Registry

__all__ = ["FAMILIES"]

FAMILIES = Registry(
    "family",
    {
        "classifier": "xbench_fast.export.models.families.classifier:ClassifierAdapter",
        "dual": "xbench_fast.export.models.families.dual:DualAdapter",
        "open_clip": "xbench_fast.export.models.families.open_clip:OpenClipAdapter",
        "transformers": "xbench_fast.export.models.families.transformers:TransformersAdapter",
    },
)
