"""Names of the datasets: `DATASETS.load("rsna")` is the reader's class."""

from __future__ import annotations

from ...engines.registry import Registry

__all__ = ["DATASETS"]

_HERE = "xbench_fast.runtime.datasets"

DATASETS = Registry(
    "dataset",
    {
        "chestxdet10": f"{_HERE}.chestxdet10:ChestXDet10",
        "coco": f"{_HERE}.coco:Coco",
        "rsna": f"{_HERE}.rsna:Rsna",
    },
    group="xbench_fast.datasets",
)
