"""Writes the float32 graphs of an export in a lower precision, and judges them: a bundle has them with that verdict, or
not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..engines.errors import ConfigError, ParityError
from ..engines.manifest import CalibrationImage, GraphSpec, Quantisation
from ..engines.precisions import LOW_TYPES, PRECISIONS
from ..engines.prompts.prompt_set import PromptSet
from ..engines.quantised import OTHER_NUMBERS, saturates
from ..engines.registry import did_you_mean
from .bundle_options import ACCEPT, BundleOptions
from .machine import threads_to_use

if TYPE_CHECKING:
    from ..engines.tokenizing import Tokenizer
    from .adapter import Adapter
    from .int8 import LayerError
    from .parity.checks import ParityReport
    from .parity.low_precision import PrecisionTrial
    from .parity.trial_data import TrialData

CALIBRATED = 128
"""Images that INT8 is calibrated on, at most."""
_PAIR = 2  # images in one run of the calibration
_SHOWN = 5  # layers in a message
_EXPLAINED = 2  # batches that the errors of layers are taken from


@dataclass(frozen=True)
class ExportedGraphs:
    """A model's graphs in `folder`, the prompt sets with the features of its text graph, the constants of its image
    graph that were not learnt, and how an INT8 graph was quantised."""

    adapter: Adapter
    words: Tokenizer | None
    folder: Path
    specs: Mapping[str, GraphSpec]
    features: list[PromptSet]
    not_learnt: tuple[str, ...] = ()
    quantisation: Quantisation | None = None


def choose_images(options: BundleOptions, adapter: Adapter) -> BundleOptions:
    """`options`, which name a lower precision, with the images that calibrate and those that judge it. Raises
    ConfigError, DataError and ImageError."""
    if options.precision not in PRECISIONS:
        raise ConfigError(f"Unknown precision '{options.precision}': {did_you_mean(options.precision, PRECISIONS)}.")
    calibration = options.int8.calibration
    if calibration is not None and options.precision != "int8":
        raise ConfigError(f"Calibration images belong to --precision int8, not to {options.precision}.")
    if options.precision == "fp32":
        raise ConfigError("Parity data show what lower precision does; they go with --precision fp16, bf16, int8.")
    if options.metrics is None:
        raise ConfigError(f"A graph in {options.precision} is judged by metrics; give BundleOptions its `metrics`.")
    if options.precision in LOW_TYPES:
        return options
    if calibration is None:
        raise ConfigError("Ranges of int8 are taken from radiographs; give --calibration a folder or a dataset.")
    from .parity.trial_data import parted

    chosen, trial = parted(calibration, options.parity_data, CALIBRATED, adapter.geometry)
    return replace(options, parity_data=trial, int8=replace(options.int8, calibration=chosen))


def write_lower(
    full: ExportedGraphs, options: BundleOptions, report: ParityReport, encode: Callable[[Path, str], list[PromptSet]]
) -> ExportedGraphs:
    """Writes the float32 graphs `full` in `options.precision` and adds their verdict to the `report`.

    `options` come from `choose_images`; `encode` gives the prompt sets with the features of the text graph in a folder.
    Raises ParityError with the reason when the verdict is against them, ExportError, ConfigError and DataError.
    """
    from .parity.low_precision import PrecisionTrial

    assert options.metrics is not None
    precision, say, images = options.precision, options.progress, options.parity_data
    folder = full.folder / precision
    folder.mkdir()
    trial = PrecisionTrial(full.adapter, full.words, full.folder, folder, precision, threads_to_use(), options.metrics)
    if precision in LOW_TYPES:
        from .half_precision import lower

        for spec in full.specs.values():
            say(f"writing {spec.file} in {precision}")
            lower(full.folder / spec.file, folder / spec.file, precision, full.not_learnt)
        features = encode(folder, precision)
        trial.extend(report, full.features, features, images, say)
        reason = "" if options.accept is None else trial.refusal(report.metrics, options.accept, images)
        if reason:
            raise ParityError(f"{reason} No bundle was written; use another --precision.")
        return replace(full, folder=folder, features=features)
    if "text" in full.specs:
        shutil.copyfile(full.folder / "text.onnx", folder / "text.onnx")
    assert options.int8.calibration is not None
    quantising = _Quantising(full, folder, options, options.int8.calibration)
    return replace(full, folder=folder, quantisation=quantising.judged(trial, report))


@dataclass(frozen=True)
class _Quantising:
    """The image graph in INT8; again with more layers in float32 while the verdict is against it, if that is asked."""

    full: ExportedGraphs
    folder: Path
    options: BundleOptions
    data: TrialData

    def judged(self, trial: PrecisionTrial, report: ParityReport) -> Quantisation:
        """Writes the graph and its verdict into `report`. Raises ParityError with the layers that explain it."""
        import onnxruntime

        from .int8 import Recipe, layer_errors

        options, images, say = self.options, self.options.parity_data, self.options.progress
        auto = options.int8.keep_float == ("auto",)
        given = frozenset() if auto else frozenset(options.int8.keep_float)
        recipe = Recipe(self.form, options.int8.percentile, given, frozenset(self.full.not_learnt))
        more, before = 1, replace(report, checks=list(report.checks))
        while True:
            layers = self._write(recipe)
            report.conditions, report.checks = before.conditions, list(before.checks)
            trial.extend(report, self.full.features, self.full.features, images, say)
            reason = trial.refusal(report.metrics, ACCEPT if options.accept is None else options.accept, images)
            if not reason:
                break
            errors = layer_errors(self.folder / "image.onnx", self.batches[:_EXPLAINED])
            kept, room = len(recipe.keep), (len(layers) - len(recipe.keep)) // 2  # half of all layers at most
            if not auto or room <= 0:
                raise ParityError(f"{reason} {_explained(errors, kept if auto else None)}")
            worst = [error.name for error in errors][: min(more, room)]
            say(f"{reason} Keeping {len(worst)} more in float32: {', '.join(worst[:_SHOWN])}")
            recipe, more = replace(recipe, keep=recipe.keep | set(worst)), 2 * more
        report.metrics = {**report.metrics, "speed": trial.speed(self.batches)}
        say(f"int8: {report.metrics['speed']['ratio']:.2f} x the speed of fp32 on this machine")
        return Quantisation(
            self.form,
            recipe.method,
            self.data.description,
            tuple(
                CalibrationImage(case.name, hashlib.sha256(case.image.read_bytes()).hexdigest())
                for case in self.data.cases
            ),
            len(layers),
            tuple(sorted(recipe.keep)),
            self.data.reader,
            f"onnxruntime {onnxruntime.__version__}, CPUExecutionProvider",
            OTHER_NUMBERS,
        )

    @cached_property
    def form(self) -> Any:
        if self.options.int8.form != "auto":
            return self.options.int8.form
        return "any-cpu" if saturates() else "vnni"

    @cached_property
    def batches(self) -> list[dict[str, NDArray[Any]]]:
        """Pairs of calibration images, each with one of the prompt sets in turn."""
        pixels = self.data.inputs(self.full.adapter.geometry)
        sets = list({entry.features.tobytes(): entry.features for entry in self.full.features}.values())
        return [
            {"pixels": pixels[start : start + _PAIR], "text": sets[number % len(sets)]}
            for number, start in enumerate(range(0, len(pixels), _PAIR))
        ]

    def _write(self, recipe: Any) -> list[str]:
        from .int8 import quantise

        self.options.progress(
            f"writing image.onnx in int8 for {recipe.form}, ranges by {recipe.method} of {len(self.data.cases)} images "
            f"of {self.data.description}"
        )
        return quantise(self.full.folder / "image.onnx", self.folder / "image.onnx", recipe, self.batches)


def _explained(errors: list[LayerError], kept: int | None) -> str:
    """The end of a refusal: the layers with the largest errors; `kept`: how many `auto` has left in float32."""
    worst = ", ".join(map(str, errors[:_SHOWN]))
    way = "keep them in float32 with --keep-float auto or their names, " if kept is None else ""
    most = "" if kept is None else f" with {kept} layers in float32, half of all"
    return (
        f"No bundle was written{most}. Layers with the largest error of input and weight: {worst}; {way}try "
        "--percentile, judge on more images, whose interval is narrower, or use --precision fp16."
    )
