"""The same models run by other runners (such as PyTorch), for a comparison in the same benchmark.

The other runners are named here and imported only when requested: this package does not depend on the exporter or on
PyTorch. If they are not installed, the comparison names them.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...engines.registry import Registry
from .ceilings import Ceilings
from .engine_alone import Subject
from .inputs import random_pixels
from .measurement import Measurement
from .plan import Plan
from .timing import timed

_ROOT = (__package__ or "xbench_fast").partition(".")[0]
RUNNERS: Final = Registry(
    "comparison",
    {
        "eager": f"{_ROOT}.export.torch_runner:eager_runner",
        "compile": f"{_ROOT}.export.torch_runner:compiled_runner",
    },
    group="xbench_fast.comparisons",
)


class ComparedRunner(Protocol):
    """A model run by other code. `detail` says how; `run` returns when the scores of `calls` batches are ready."""

    detail: str

    def prepare(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> None: ...

    def run(self, calls: int) -> Any: ...


def compare(name: str, subject: Subject, plan: Plan, ceilings: Ceilings | None, batch: int) -> Measurement:
    """The offline scenario by the runner called `name`, with its own weights: speed does not depend on them.

    Raises XBenchError when the runner cannot run here.
    """
    manifest = subject.engine.bundle.manifest
    device = "cpu" if subject.engine.info.device == "cpu" else subject.engine.info.device
    make = RUNNERS.load(name)
    runner: ComparedRunner = make(
        manifest.model, manifest.variant, manifest.precision if device != "cpu" else "fp32", device
    )
    pixels = random_pixels(subject.engine.bundle, batch, np.random.default_rng([plan.seed, 8]))
    runner.prepare(pixels, subject.text)
    calls = max(1, plan.images // batch)
    seconds = timed(lambda repeat: runner.run(calls), plan.repeats, plan.seconds)
    return Measurement(
        "offline",
        subject.name,
        f"{name} ({runner.detail})",
        batch,
        {"images": calls * batch},
        seconds,
        subject.limit(ceilings),
        notes=("weights of its own; its outputs are not compared",),
    )
