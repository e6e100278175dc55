"""The public Python interface of xbench-fast: `import xbench_fast as xb`.

Every name of `__all__` is stable and documented in docs/python.md; the packages below this one (`export`, `engines`,
`metrics_gpu`, `runtime`) are implementation details. Importing takes no heavy package: a name is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asking import ask
    from .cases import ModelInput, Radiograph, Radiographs, load_dataset
    from .comparing import RunComparison, compare
    from .counting import best_threshold, dice, iou, pointing, sweep
    from .engines.errors import XBenchError
    from .engines.geometry import Geometry
    from .evaluation import evaluate
    from .live_models import OpenClipModel, TransformersModel, open_clip_model, transformers_model
    from .metrics_gpu.sweep.counts import Counts
    from .metrics_gpu.sweep.sweep_options import Sweeping
    from .prediction import Prediction, Predictor, decoder_version, open_engine, prepare
    from .runs import Run, load_run, report
    from .runtime.results.comparing.score_differences import PairedDifference, auc, auc_difference, mean_difference

    __version__: str

__all__ = [
    "Counts",
    "Geometry",
    "ModelInput",
    "OpenClipModel",
    "PairedDifference",
    "Prediction",
    "Predictor",
    "Radiograph",
    "Radiographs",
    "Run",
    "RunComparison",
    "Sweeping",
    "TransformersModel",
    "XBenchError",
    "__version__",
    "ask",
    "auc",
    "auc_difference",
    "best_threshold",
    "compare",
    "decoder_version",
    "dice",
    "evaluate",
    "iou",
    "load_dataset",
    "load_run",
    "mean_difference",
    "open_clip_model",
    "open_engine",
    "pointing",
    "prepare",
    "report",
    "sweep",
    "transformers_model",
]

# No module here has the name of a public object: importing the module would replace the object.
_HOME = {
    "Counts": ".metrics_gpu.sweep.counts",
    "Geometry": ".engines.geometry",
    "ModelInput": ".cases",
    "OpenClipModel": ".live_models",
    "PairedDifference": ".runtime.results.comparing.score_differences",
    "Prediction": ".prediction",
    "Predictor": ".prediction",
    "Radiograph": ".cases",
    "Radiographs": ".cases",
    "Run": ".runs",
    "RunComparison": ".comparing",
    "Sweeping": ".metrics_gpu.sweep.sweep_options",
    "TransformersModel": ".live_models",
    "XBenchError": ".engines.errors",
    "ask": ".asking",
    "auc": ".runtime.results.comparing.score_differences",
    "auc_difference": ".runtime.results.comparing.score_differences",
    "best_threshold": ".counting",
    "compare": ".comparing",
    "decoder_version": ".prediction",
    "dice": ".counting",
    "evaluate": ".evaluation",
    "iou": ".counting",
    "load_dataset": ".cases",
    "load_run": ".runs",
    "mean_difference": ".runtime.results.comparing.score_differences",
    "open_clip_model": ".live_models",
    "open_engine": ".prediction",
    "pointing": ".counting",
    "prepare": ".prediction",
    "report": ".runs",
    "sweep": ".counting",
    "transformers_model": ".live_models",
}
"""Public name -> the module that defines it, relative to this package."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from .runtime.host.machine_record import code_version

        value: Any = code_version()
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name], __name__), name)
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
