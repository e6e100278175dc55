"""The models: one file each, found by name.

Other packages add models through the entry point group `xbench_fast.models`; a target is an `Adapter` subclass.
"""

from __future__ import annotations

from ...engines.registry import Registry

__all__ = ["MODELS"]

MODELS = Registry(
    "model",
    {
        "clip": "xbench_fast.export.models.clip:ClipAdapter",
        "kad": "xbench_fast.export.models.kad:KadAdapter",
    },
    group="xbench_fast.models",
)
