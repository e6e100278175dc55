"""The probe `randomisation`: does a map depend on what was learnt (docs/trust-probes.md §2)?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import BundleError
from ....metrics_gpu.statistics.bootstrap import named_stream
from ....metrics_gpu.sweep.maps import scaled_map
from ....metrics_gpu.trust.localisation import localise
from ....metrics_gpu.trust.similarity import degenerate_maps, spearman, ssim
from .asking import ask_pairs
from .probe import ProbeOptions, StepProbe
from .probe_images import pair_rows
from .randomised import RandomisedGraph
from .randomised_verdicts import COLUMNS, judge_randomised

if TYPE_CHECKING:
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from ....engines.prompts.prompt_set import PromptSet
    from .asking import AskedModel
    from .probe import Judgement, StepWork
    from .probe_images import Row
    from .randomised import GraphLayer

RANDOM_PAIRS: Final = 50
"""Pairs of maps of one finding in two patients, at most."""


@dataclass(frozen=True)
class RandomStep:
    """A changed model: the layers that are randomised, none where prompts are exchanged."""

    mode: str
    seed: int
    step: int
    layers: tuple[GraphLayer, ...]


@dataclass(frozen=True, eq=False)
class _Maps:
    """The maps and logits of all P pairs of a model, in the order of the images and their findings."""

    maps: NDArray[np.float32]
    logits: NDArray[np.float32]
    frames: NDArray[np.float64]

    @staticmethod
    def of(work: StepWork, model: AskedModel, batch: int) -> _Maps:
        """Asks a model about all images."""
        frames = [image.frame for image in work.images for _ in image.findings]
        return _Maps(*ask_pairs(work.images, model, batch), np.array(frames, np.float64))

    @cached_property
    def full(self) -> NDArray[np.float32]:
        """float32 [P, 224, 224], scaled."""
        frames = [(y0, x0, y1, x1) for y0, x0, y1, x1 in self.frames.tolist()]
        return np.stack([scaled_map(each, frame=frame) for each, frame in zip(self.maps, frames, strict=True)])

    def scores(self, masks: NDArray[np.bool_]) -> dict[str, Any]:
        """The columns that do not compare it with other maps."""
        localised = localise(self.maps, masks, frames=self.frames)
        return {
            "logit": self.logits,
            "roc_auc": localised.roc_auc,
            "average_precision": localised.average_precision,
            "degenerate": degenerate_maps(self.maps),
        }

    def alike(self, other: _Maps, mine: NDArray[np.intp], others: NDArray[np.intp]) -> dict[str, Any]:
        """The columns of similarity of maps at these places to those at places of another model."""
        return {
            "spearman": spearman(self.maps[mine], other.maps[others]),
            "ssim": ssim(self.full[mine], other.full[others]),
        }


class RandomisationProbe(StepProbe):
    """Randomises weights: `cascade` from the output on, `independent` block by block; `text` exchanges the prompts."""

    name = "randomisation"
    columns: Mapping[str, str] = COLUMNS

    def __init__(self, options: ProbeOptions) -> None:
        super().__init__(options)
        self._graphs: dict[str, RandomisedGraph] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        options = self.options
        return {
            "seeds": options.seeds,
            "blocks": options.blocks,
            "rule": options.rule,
            "modes": list(options.modes),
            "random_pairs": RANDOM_PAIRS,
        }

    def steps(self, bundle: Bundle) -> int:
        """The model as it is, and each changed one."""
        return 1 + len(self.plan(bundle))

    def begin(self, work: StepWork) -> Callable[[int], Sequence[Row]]:
        """Asks the model as it is; each step asks a changed one and compares their maps."""
        if not work.images:
            return lambda step: []
        batch, plan = work.batch, self.plan(work.bundle)
        identity = [pair for image in work.images for pair in image.pairs]
        masks = np.concatenate([image.regions for image in work.images])
        with work.ask(work.bundle, work.prompts) as model:
            trained = _Maps.of(work, model, batch)
        everywhere = np.arange(len(identity))

        def step(index: int) -> Sequence[Row]:
            if index == 0:
                mine, others = pairs_of_patients(identity, self.options.seed)
                of_two = {"other_case": [identity[at]["case_id"] for at in others.tolist()]}
                return [
                    *pair_rows(identity, {"mode": "trained", "step": 0}, trained.scores(masks)),
                    *pair_rows(
                        [identity[at] for at in mine.tolist()],
                        {"mode": "two patients"},
                        of_two | trained.alike(trained, mine, others),
                    ),
                ]
            change = plan[index - 1]
            with self._changed(work, change) as model:
                maps = _Maps.of(work, model, batch)
            facts = {"mode": change.mode, "seed": change.seed, "step": change.step, "layers": len(change.layers)}
            return pair_rows(identity, facts, maps.scores(masks) | maps.alike(trained, everywhere, everywhere))

        return step

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """Whether random weights give maps that are less alike than those of two patients, and miss the regions."""
        judgement = judge_randomised(rows, self._graph(bundle).layers)
        if len(self._modes(bundle)) == len(self.options.modes):
            return judgement
        return replace(
            judgement, notes=[*judgement.notes, "prompts are not exchanged: the model is supervised and reads none"]
        )

    def _graph(self, bundle: Bundle) -> RandomisedGraph:
        if bundle.digest not in self._graphs:
            self._graphs[bundle.digest] = RandomisedGraph(bundle)
        return self._graphs[bundle.digest]

    def plan(self, bundle: Bundle) -> list[RandomStep]:
        """The changed models, in the order of the steps."""
        layers = self._graph(bundle).layers
        # Of a map that no layer feeds all are randomised, which shows that it stays.
        feeding = [layer for layer in layers if layer.feeds_saliency] or layers
        from_output = tuple(reversed(feeding))
        count = self.options.blocks
        ends = sorted({0, *(math.ceil(block * len(from_output) / count) for block in range(1, count + 1))})
        steps = []
        for seed in range(self.options.seed, self.options.seed + self.options.seeds):
            for mode in self._modes(bundle):
                spans = {"cascade": [(0, end) for end in ends[1:]], "independent": list(pairwise(ends))}
                for step, (start, stop) in enumerate(spans.get(mode, [(0, 0)]), 1):
                    steps.append(RandomStep(mode, seed, step, from_output[start:stop]))
        return steps

    def _modes(self, bundle: Bundle) -> list[str]:
        """What is changed. Raises BundleError for a supervised model of which only prompts would be exchanged."""
        modes = [mode for mode in self.options.modes if mode != "text" or not bundle.manifest.findings]
        if not modes:
            raise BundleError(
                f"{bundle.name} is supervised and reads no prompts that could be exchanged; choose cascade or "
                "independent as --randomise."
            )
        return modes

    @contextmanager
    def _changed(self, work: StepWork, change: RandomStep) -> Iterator[AskedModel]:
        """The open model of a step."""
        if change.mode == "text":
            with work.ask(work.bundle, exchanged_prompts(work.prompts, change.seed)) as model:
                yield model
            return
        randomised = self._graph(work.bundle).bundle(change.layers, change.seed, self.options.rule)
        with randomised as bundle, work.ask(bundle, work.prompts) as model:
            yield model


def exchanged_prompts(prompts: PromptSet, seed: int) -> PromptSet:
    """Each finding with the features of another one: of the next in a random order of all findings of the set. Where
    that one has fewer prompts of a polarity, they are repeated; where it has none, those of the finding stay."""
    order = np.argsort(named_stream(f"{seed} exchanged prompts").random_raw(len(prompts.findings)), kind="stable")
    features = prompts.features.copy()
    for mine, other in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True):
        for polarity in (1, -1):
            to, source = (
                np.flatnonzero((prompts.finding_of == finding) & (prompts.polarity == polarity))
                for finding in (mine, other)
            )
            if len(to) and len(source):
                features[to] = prompts.features[np.resize(source, len(to))]
    return replace(prompts, features=features)


def pairs_of_patients(identity: Sequence[Row], seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Random pairs of rows of the same finding and two patients, `RANDOM_PAIRS` of a finding at most: their places."""
    pairs: list[tuple[int, int]] = []
    for finding in dict.fromkeys(row["finding"] for row in identity):
        places = [at for at, row in enumerate(identity) if row["finding"] == finding]
        drawn = np.argsort(named_stream(f"{seed} two patients {finding}").random_raw(len(places)), kind="stable")
        order = [places[at] for at in drawn.tolist()]
        pairs += islice(
            ((one, two) for one, two in _each_two(order) if identity[one]["patient_id"] != identity[two]["patient_id"]),
            RANDOM_PAIRS,
        )
    return tuple(np.array([pair[end] for pair in pairs], np.intp) for end in (0, 1))  # type: ignore[return-value]


def _each_two(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each two entries once, so that every entry stands in about equally many of the first pairs."""
    count = len(order)
    for distance in range(1, count // 2 + 1):
        for at in range(count // 2 if 2 * distance == count else count):
            yield order[at], order[(at + distance) % count]
