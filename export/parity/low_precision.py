"""Compares a lowered graph with the float32 graph it was made from, by tensors and by metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.backends.ort_session import CPU_PROVIDER, open_session
from ...engines.processor import cpu_model
from ...engines.prompts.prompt_set import PromptSet
from .checks import LOW_TOLERANCE, Floats, ParityReport, Place, TensorCheck, compare
from .compare_graphs import OUTPUTS, Session, engine_name, finding_queries, longest_text, queries_of, text_inputs
from .metric_changes import METRICS, Outcome, Tally, TrialImage, TrialMetrics, outcome, probe_cases
from .probes import PROBE_TEXTS, probe_images

if TYPE_CHECKING:
    from ...engines.tokenizing import Tokenizer
    from ..adapter import Adapter
    from .trial_data import TrialData

REFERENCE = "float32 graph"
_BATCHES = (1, 3, 10)
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}
_ROUNDS, _RUNS = 5, 4  # of the measurement of speed


@dataclass(frozen=True)
class PrecisionTrial:
    """`full` holds image.onnx and text.onnx in float32, `lowered` the same in `precision`.

    fp16 and bf16 graphs run with every operation in float32 and its result rounded (engines.backends.rounding);
    fp16 graphs also run as they are, which ONNX Runtime's CPU provider does with less rounding than a GPU. int8 graphs
    run as they are; their text graph is that in float32.
    """

    adapter: Adapter
    tokenizer: Tokenizer | None
    full: Path
    lowered: Path
    precision: str
    threads: int
    measured: TrialMetrics

    def extend(
        self,
        report: ParityReport,
        before: Sequence[PromptSet],
        after: Sequence[PromptSet],
        data: TrialData | None,
        progress: Callable[[str], None],
    ) -> None:
        """Adds everything to the `report` of the float32 graphs; `before` and `after` are the prompt sets with the
        features of the float32 and of the lowered text graph. Raises ParityError, ExportError, ImageError."""
        report.conditions = {**report.conditions, **self.conditions()}
        report.checks += self.checks(after)
        report.require()
        by_name = [{prompt_set.name: prompt_set for prompt_set in sets} for sets in (before, after)]
        report.metrics = metrics = self.metrics(by_name[0], by_name[1], data, progress)
        dice, auc = (
            f"{metrics[key]:.3f}" if metrics[key] is not None else "-" for key in ("dice_change", "auc_change")
        )
        progress(
            f"{self.precision} on {metrics['images']} images ({metrics['data']}): {metrics['hits_flipped']} of "
            f"{metrics['pairs']} pointing hits flipped; largest change of Dice {dice}, of AUC {auc}"
        )
        if data is not None:
            progress(f"{self.precision}: {'; '.join(_changed(name, metrics['changes'][name]) for name in METRICS)}")

    def refusal(self, metrics: Mapping[str, Any], accept: float, data: TrialData | None) -> str:
        """A sentence when an interval of a change in `metrics`, as the method returns them, reaches beyond `accept`
        points; empty when none does. Probe pictures, whose regions are made up, decide nothing."""
        if data is None:
            return ""
        judged = {name: entry for name, entry in metrics["changes"].items() if entry is not None}
        if not judged:
            return (
                f"On {metrics['images']} images of {data.description} there is neither a region nor a finding with "
                f"both labels, so nothing shows what {self.precision} does; give --parity-data others."
            )
        for name, entry in judged.items():
            if entry["patients"] < self.measured.least_patients:
                return (
                    f"The change of {name} in {self.precision} comes from {entry['patients']} patients, too few for an "
                    "interval; give --parity-data more."
                )
        worst = max(judged, key=lambda name: _reach(judged[name]))
        if 100 * _reach(judged[worst]) <= accept:
            return ""
        return (
            f"In {self.precision} {_changed(worst, judged[worst])} on {metrics['images']} images, and --accept allows "
            f"{accept:g} points either way."
        )

    def speed(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
        """How many times as fast as the float32 graph the lowered one is on this CPU: the median of rounds in turns."""
        sessions = [open_session(f / "image.onnx", [CPU_PROVIDER], self.threads) for f in (self.full, self.lowered)]
        inputs = [dict(batches[number % len(batches)]) for number in range(_RUNS)]
        rounds = []
        for number in range(_ROUNDS + 1):
            seconds = [_seconds(session, inputs) for session in sessions]
            if number:  # the first one warms up
                rounds.append(seconds)
        images = sum(len(entry["pixels"]) for entry in inputs)
        seconds_per_image = np.median(np.array(rounds) / images, axis=0)
        return {
            "ratio": round(float(np.median([full / low for full, low in rounds])), 2),
            "ms_per_image": [round(1e3 * float(value), 2) for value in seconds_per_image],
            "engine": engine_name(self.threads),
            "processor": cpu_model(),
        }

    def conditions(self) -> dict[str, Any]:
        """The versions and settings of the comparison, for the report."""
        engine = f"{engine_name(self.threads)}: "
        if self.precision == "int8":
            return {"precision": self.precision, "precision_engine": f"{engine}the file itself"}
        native = "the files themselves ran as well" if self.precision == "fp16" else "the files themselves did not run"
        engine += f"operations in float32, each result rounded to {_TYPES[self.precision]}; {native}"
        return {"precision": self.precision, "precision_engine": engine}

    def checks(self, sets: Sequence[PromptSet]) -> Iterator[TensorCheck]:
        """Compares every output for probe pictures and texts, and for the features of `sets`, equal for both graphs."""
        allowed = LOW_TOLERANCE[self.precision]
        if self.tokenizer is None:
            text = finding_queries(self.adapter.findings)
        else:
            features = self._features(self.tokenizer, self.full, PROBE_TEXTS, rounding=False)
            text = queries_of(features, self.adapter.texts_per_query)
            longest = longest_text(self.tokenizer)
            long = self._features(self.tokenizer, self.full, [longest], rounding=False)
            for reference_name, rounding in self._runs() if self.precision in _TYPES else ():
                for texts, wanted in ((PROBE_TEXTS, features), ([longest], long)):
                    got = self._features(self.tokenizer, self.lowered, texts, rounding)
                    yield compare("features", Place(reference_name, len(texts), None, len(texts)), got, wanted, allowed)
        images = probe_images(self.adapter.geometry.size)
        full_session = self._session(self.full, "image", rounding=False)
        for reference_name, rounding in self._runs():
            session = self._session(self.lowered, "image", rounding)
            runs = [(batch, text) for batch in _BATCHES] + [(2, prompt_set.features) for prompt_set in sets]
            for batch, queries in runs[1:2] if self.precision == "fp16" and not rounding else runs:
                inputs: dict[str, NDArray[Any]] = {"pixels": images[:batch], "text": queries}
                pairs = zip(OUTPUTS, session.run(OUTPUTS, inputs), full_session.run(OUTPUTS, inputs), strict=True)
                for name, got, wanted in pairs:
                    yield compare(name, Place(reference_name, batch, None, len(queries)), got, wanted, allowed)

    def metrics(
        self,
        before: Mapping[str, PromptSet],
        after: Mapping[str, PromptSet],
        data: TrialData | None,
        progress: Callable[[str], None],
    ) -> dict[str, Any]:
        """Compares both bundles end to end, each with features of its own text graph, on `data` or probe pictures."""
        asked = {key: prompt_set.findings for key, prompt_set in before.items()}
        name = max(asked, key=lambda key: len(asked[key])) if data is None else data.choose(asked)
        findings, geometry = before[name].findings, self.adapter.geometry
        cases: Iterator[TrialImage] = iter(probe_cases(geometry.size, len(findings)))
        facts: dict[str, Any] = {"data": "probe pictures with made-up regions and labels", "prompt_set": name}
        if data is not None:
            facts = {"data": data.description, "annotations_sha256": data.sha256, "prompt_set": name}
            cases = data.images(geometry, findings)
            progress(f"running {len(data.cases)} images of {data.description} in fp32 and {self.precision}")
        full = self._session(self.full, "image", rounding=False)
        low = self._session(self.lowered, "image", rounding=self.precision in _TYPES)
        tally = Tally(findings, self.measured)
        for case in cases:
            if case.name not in self._before:
                self._before[case.name] = self._asked(full, case, before[name])
            tally.add(case, self._before[case.name], self._asked(low, case, after[name]))
        left = {} if data is None else {"left_out": dict(data.left_out)}
        return {**facts, **left, **tally.summary()}

    def _asked(self, session: Session, case: TrialImage, prompts: PromptSet) -> Outcome:
        """The outcome of one image: logits and maps are the mean over a finding's positive prompts."""
        inputs: dict[str, NDArray[Any]] = {"pixels": case.pixels[None], "text": prompts.features}
        logits, maps = (output[0] for output in session.run(OUTPUTS, inputs))
        rows = [
            np.flatnonzero((prompts.finding_of == number) & (prompts.polarity > 0))
            for number in range(len(prompts.findings))
        ]
        means = [np.stack([values[row].mean(axis=0) for row in rows]) for values in (logits, maps)]
        return outcome(case, means[0], means[1], self.measured)

    def _runs(self) -> list[tuple[str, bool]]:
        rounded, native = (f"{REFERENCE}, every result rounded", True), (f"{REFERENCE}, file as it is", False)
        return {"fp16": [rounded, native], "bf16": [rounded], "int8": [native]}[self.precision]

    @cached_property
    def _before(self) -> dict[str, Outcome]:
        """The outcomes of the float32 graph, by image: they stay when the lowered graph is written again."""
        return {}

    def _session(self, folder: Path, graph: str, rounding: bool) -> Session:
        return Session(folder / f"{graph}.onnx", self.threads, rounding=rounding)

    def _features(self, tokenizer: Tokenizer, folder: Path, texts: Sequence[str], rounding: bool) -> Floats:
        inputs = text_inputs(self.adapter, tokenizer(texts))
        return self._session(folder, "text", rounding).run(("features",), inputs)[0]


def _changed(name: str, entry: Mapping[str, Any] | None) -> str:
    """A change in points and its interval."""
    if entry is None:
        return f"{name} -"
    words = f"{name} changes by {100 * entry['change']:+.2f} points"
    if entry["low"] is None:
        return words
    return f"{words} (95 % interval {100 * entry['low']:+.2f} to {100 * entry['high']:+.2f})"


def _reach(entry: Mapping[str, Any]) -> float:
    """How far the interval of a change reaches from 0, as a fraction; of the same change everywhere that change."""
    ends = [entry["change"], entry["low"], entry["high"]]
    return max(abs(float(end)) for end in ends if end is not None)


def _seconds(session: Any, inputs: Sequence[dict[str, Any]]) -> float:
    start = time.perf_counter()
    for entry in inputs:
        session.run(list(OUTPUTS), entry)
    return time.perf_counter() - start
