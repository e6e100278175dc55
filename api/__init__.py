"""The public Python interface of xbench-fast: `import xbench_fast as xb`.

Every name of `__all__` is stable and documented in docs/python.md; the packages below this one (`export`, `engines`,
`metrics_gpu`, `runtime`) are implementation details. Importing takes no heavy package: a name is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cases import Radiograph, Radiographs, load_dataset
    from .counting import best_threshold, dice, iou, pointing, sweep
    from .engines.errors import XBenchError
    from .engines.geometry import Geometry
    from .metrics_gpu.sweep.counts import Counts

    __version__: str

__all__ = [
    "Counts",
    "Geometry",
    "Radiograph",
    "Radiographs",
    "XBenchError",
    "__version__",
    "best_threshold",
    "dice",
    "iou",
    "load_dataset",
    "pointing",
    "sweep",
]

# No module here is called as one of its names: importing it would put the module in the place of the name.
_HOME = {
    "Counts": ".metrics_gpu.sweep.counts",
    "Geometry": ".engines.geometry",
    "Radiograph": ".cases",
    "Radiographs": ".cases",
    "XBenchError": ".engines.errors",
    "best_threshold": ".counting",
    "dice": ".counting",
    "iou": ".counting",
    "load_dataset": ".cases",
    "pointing": ".counting",
    "sweep": ".counting",
}
"""Public name -> the module that defines it, relative to this package."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from .runtime.host.machine import code_version

        value: Any = code_version()
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name], __name__), name)
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
