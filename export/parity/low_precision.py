"""Compares a lowered graph with the float32 graph it was made from, by tensors and by metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.prompts.prompt_set import PromptSet
from .checks import LOW_TOLERANCE, Floats, ParityReport, Place, TensorCheck, compare
from .compare_graphs import OUTPUTS, Session, queries_of, text_inputs
from .metric_changes import Tally, TrialImage, probe_cases
from .probes import LONG_TEXT, PROBE_TEXTS, probe_images

if TYPE_CHECKING:
    from ...engines.tokenizing import Tokenizer
    from ..adapter import Adapter
    from .user_images import ParityData

__all__ = ["PrecisionTrial"]

REFERENCE = "float32 graph"
_BATCHES = (1, 3, 10)
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class PrecisionTrial:
    """`full` holds image.onnx and text.onnx in float32, `lowered` the same in `precision`.

    The lowered graphs run with every operation in float32 and its result rounded to its type (engines.rounding); fp16
    graphs also run as they are, which ONNX Runtime's CPU provider does with less rounding than a GPU.
    """

    adapter: Adapter
    tokenizer: Tokenizer
    full: Path
    lowered: Path
    precision: str
    threads: int

    def extend(
        self,
        report: ParityReport,
        before: Sequence[PromptSet],
        after: Sequence[PromptSet],
        data: ParityData | None,
        progress: Callable[[str], None],
    ) -> None:
        """Adds everything to the `report` of the float32 graphs; `before` and `after` are the prompt sets with the
        features of the float32 and of the lowered text graph. Raises ParityError, ExportError, ImageError."""
        report.conditions = {**report.conditions, **self.conditions()}
        report.checks += self.checks(after)
        report.require()
        by_name = [{prompt_set.name: prompt_set for prompt_set in sets} for sets in (before, after)]
        report.metrics = found = self.metrics(by_name[0], by_name[1], data, progress)
        dice, auc = (f"{found[key]:.3f}" if found[key] is not None else "-" for key in ("dice_change", "auc_change"))
        progress(
            f"{self.precision} on {found['images']} images ({found['data']}): {found['hits_flipped']} of "
            f"{found['pairs']} pointing hits flipped; largest change of Dice {dice}, of AUC {auc}"
        )

    def conditions(self) -> dict[str, Any]:
        """The versions and settings of the comparison, for the report."""
        import onnxruntime

        how = f"operations in float32, each result rounded to {_TYPES[self.precision]}"
        native = "the files themselves ran as well" if self.precision == "fp16" else "the files themselves did not run"
        engine = f"onnxruntime {onnxruntime.__version__}, CPU, {self.threads} threads: {how}; {native}"
        return {"precision": self.precision, "precision_engine": engine}

    def checks(self, sets: Sequence[PromptSet]) -> Iterator[TensorCheck]:
        """Compares every output for probe pictures and texts, and for the features of `sets`, equal for both graphs."""
        allowed = LOW_TOLERANCE[self.precision]
        features = self._features(self.full, PROBE_TEXTS, rounding=False)
        long = self._features(self.full, [LONG_TEXT], rounding=False)
        for kind, rounding in self._runs():
            for texts, wanted in ((PROBE_TEXTS, features), ([LONG_TEXT], long)):
                got = self._features(self.lowered, texts, rounding)
                yield compare("features", Place(kind, len(texts), None, len(texts)), got, wanted, allowed)
        text, images = queries_of(features, self.adapter.texts_per_query), probe_images(self.adapter.geometry.size)
        whole = self._session(self.full, "image", rounding=False)
        for kind, rounding in self._runs():
            session = self._session(self.lowered, "image", rounding)
            runs = [(batch, text) for batch in _BATCHES] + [(2, prompt_set.features) for prompt_set in sets]
            for batch, queries in runs if rounding else runs[1:2]:
                inputs: dict[str, NDArray[Any]] = {"pixels": images[:batch], "text": queries}
                pairs = zip(OUTPUTS, session.run(OUTPUTS, inputs), whole.run(OUTPUTS, inputs), strict=True)
                for name, got, wanted in pairs:
                    yield compare(name, Place(kind, batch, None, len(queries)), got, wanted, allowed)

    def metrics(
        self,
        before: Mapping[str, PromptSet],
        after: Mapping[str, PromptSet],
        data: ParityData | None,
        progress: Callable[[str], None],
    ) -> dict[str, Any]:
        """Compares both bundles end to end, each with features of its own text graph, on `data` or probe pictures."""
        asked = {key: prompt_set.findings for key, prompt_set in before.items()}
        name = max(asked, key=lambda key: len(asked[key])) if data is None else data.choose(asked)
        findings, geometry = before[name].findings, self.adapter.geometry
        cases: Iterator[TrialImage] = iter(probe_cases(geometry.size, len(findings)))
        facts: dict[str, Any] = {"data": "probe pictures with made-up regions and labels", "prompt_set": name}
        if data is not None:
            facts = {"data": "the user's images", "annotations_sha256": data.sha256, "prompt_set": name}
            cases = data.cases(geometry, findings)
            progress(f"running {len(data.images)} images of {data.source.parent} in fp32 and {self.precision}")
        full = self._session(self.full, "image", rounding=False)
        low = self._session(self.lowered, "image", rounding=True)
        tally = Tally(findings)
        for case in cases:
            tally.add(case, _asked(full, case, before[name]), _asked(low, case, after[name]))
        return {**facts, **tally.summary()}

    def _runs(self) -> list[tuple[str, bool]]:
        rounded = (f"{REFERENCE}, every result rounded", True)
        return [rounded, (f"{REFERENCE}, file as it is", False)] if self.precision == "fp16" else [rounded]

    def _session(self, folder: Path, graph: str, rounding: bool) -> Session:
        return Session(folder / f"{graph}.onnx", self.threads, rounding=rounding)

    def _features(self, folder: Path, texts: Sequence[str], rounding: bool) -> Floats:
        inputs = text_inputs(self.adapter, self.tokenizer(texts))
        return self._session(folder, "text", rounding).run(("features",), inputs)[0]


def _asked(session: Session, case: TrialImage, prompts: PromptSet) -> tuple[Floats, Floats]:
    """Logits [F] and maps [F, h, w] of one image: the mean over a finding's positive prompts."""
    inputs: dict[str, NDArray[Any]] = {"pixels": case.pixels[None], "text": prompts.features}
    logits, maps = (output[0] for output in session.run(OUTPUTS, inputs))
    rows = [
        np.flatnonzero((prompts.finding_of == number) & (prompts.polarity > 0))
        for number in range(len(prompts.findings))
    ]
    return np.stack([logits[row].mean() for row in rows]), np.stack([maps[row].mean(axis=0) for row in rows])
