"""Options of an export beyond its model: tokenizer, prompts, precision, and the images that judge a precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..engines.prompts.prompt_files import PromptSets

if TYPE_CHECKING:
    from .parity.metric_changes import TrialMetrics
    from .parity.trial_data import TrialData

Progress = Callable[[str], None]

ACCEPT: Final = 2.0
"""Points of pointing, Dice and AUC that int8 may change, by default."""


@dataclass(frozen=True)
class Int8Options:
    """How an image graph is written in INT8.

    `calibration`: the images that ranges are taken from. `form`: one of engines.quantised.FORMS, or "auto": the form of
    this machine's processor. `percentile`: of the values that a range
    covers; None: the whole range. `keep_float`: names of layers that stay in float32; "auto": those with the largest
    errors, until the change is accepted.
    """

    calibration: TrialData | None = None
    form: str = "auto"
    percentile: float | None = None
    keep_float: tuple[str, ...] = ()


@dataclass(frozen=True)
class BundleOptions:
    """How a bundle is made.

    `tokenizer` is a folder with the model's vocabulary, by default the folder of the weights. `prompts` replaces or
    adds prompt sets. With `precision` "fp16" or "bf16" both graphs are of that type (export.half_precision), with
    "int8" the image graph multiplies bytes (export.int8). The variant names it, and the parity report gives its effect
    on tensors and `metrics`: on the images and boxes of `parity_data`, or on probe pictures. On these images no
    interval of a change may reach beyond `accept` points (None: `ACCEPT` for int8, no bound for others). `force`
    replaces a bundle; `progress` receives a message a step. export.cli.radiographs has metrics and opens images.
    """

    tokenizer: Path | None = None
    prompts: PromptSets | None = None
    precision: str = "fp32"
    metrics: TrialMetrics | None = None
    parity_data: TrialData | None = None
    accept: float | None = None
    int8: Int8Options = field(default_factory=Int8Options)
    force: bool = False
    progress: Progress = lambda line: None
