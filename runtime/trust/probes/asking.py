"""An open model, asked for findings about variants of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Engine, Features, Scores
from ....engines.prompts.prompt_set import PromptSet
from ....metrics_gpu.recognition.scores import probability
from ...evaluation.phrase_queries import see_one_another
from ...evaluation.queries import Queries, prompt_mean

if TYPE_CHECKING:
    from .probe_images import PreparedImage


@dataclass(frozen=True, eq=False)
class VariantLogits:
    """The answers of a model about V images and P findings.

    logits: float32 [V, P]. probabilities: float64 [V, P], the sigmoid of the logit, or of its difference to that of the
    negative prompts where a finding has some.
    """

    logits: NDArray[np.float32]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class VariantScores(VariantLogits):
    """The same with maps: float32 [V, P, h, w], on the model's grid, not normalised."""

    maps: NDArray[np.float32]


class AskedModel:
    """An open engine with the prompts of a dataset.

    findings: class of the dataset -> finding of the prompt set. batch: images that the engine gets at once, at most.
    count: called with the number of forward passes after each batch.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: PromptSet,
        findings: Mapping[str, str],
        batch: int,
        count: Callable[[int], None] = lambda passes: None,
    ) -> None:
        self.engine = engine
        self.prompts = prompts
        self.asked = findings
        self._queries = Queries.of(prompts, findings)
        self._batch = batch
        self._count = count

    @property
    def findings(self) -> tuple[str, ...]:
        """All findings that can be asked."""
        return self._queries.findings

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the maps."""
        return self.engine.bundle.manifest.grid

    @cached_property
    def queries_meet(self) -> bool:
        """Whether the queries of the model see one another, measured as for phrases: a map depends on the whole set."""
        prompts = self.prompts
        others = np.flatnonzero(prompts.finding_of != prompts.finding_of[0])

        def ask(pixels: NDArray[np.uint8], places: Sequence[int]) -> Scores:
            return self.engine.run(pixels, prompts.features[places])

        side, precision = self.engine.bundle.manifest.geometry.size, self.engine.info.precision
        return see_one_another(ask, side, [0, *others[:1].tolist()], precision)

    def with_prompts(self, prompts: PromptSet, findings: Mapping[str, str] | None = None) -> AskedModel:
        """The same open model with other prompts; without `findings` it is asked for all of them by their names."""
        every = {name: name for name in prompts.findings}
        return AskedModel(self.engine, prompts, every if findings is None else findings, self._batch, self._count)

    def ask(self, images: NDArray[np.uint8] | Features, findings: Sequence[str]) -> VariantScores:
        """The answers about the model inputs `images`, uint8 [V, 1, S, S], or about a batch that the engine encoded to
        be asked several prompt sets. Raises EngineError."""
        places = [self.findings.index(name) for name in findings]
        pixels = images.pixels if isinstance(images, Features) else images
        step = len(pixels) if isinstance(images, Features) else self._batch
        maps = np.empty((len(pixels), len(places), *self.grid), np.float32)
        logits = []
        for start in range(0, len(pixels), step):
            batch = slice(start, start + step)
            scores = self._run(images if isinstance(images, Features) else images[batch])
            logits.append(scores.logits)
            for at, place in enumerate(places):
                of_prompts = scores.saliency[:, self._queries.positive[place]]
                maps[batch, at] = prompt_mean(np.moveaxis(of_prompts, 1, 0))
        answers = self._answers(logits, places)
        return VariantScores(answers.logits, answers.probabilities, maps)

    def ask_logits(self, variants: Iterable[NDArray[np.uint8]], findings: Sequence[str]) -> VariantLogits:
        """The answers about variants of an image without maps; `variants`: in blocks uint8 [n, S, S] of any length.

        A batch is taken from `variants`, in a thread, while the model computes the one before: no more than these two
        and a block are in memory. Raises EngineError, and what `variants` raises.
        """
        batches, logits = _batches(variants, self._batch), list[NDArray[np.float32]]()
        with ThreadPoolExecutor(1, thread_name_prefix="variants") as maker:
            made = maker.submit(next, batches, None)
            while (pixels := made.result()) is not None:
                made = maker.submit(next, batches, None)
                logits.append(self._run(pixels).logits)
        return self._answers(logits, [self.findings.index(name) for name in findings])

    def _run(self, batch: NDArray[np.uint8] | Features) -> Scores:
        """The scores of a batch, which is counted."""
        text = self.prompts.features
        scores = self.engine.ask(batch, text) if isinstance(batch, Features) else self.engine.run(batch, text)
        self._count(len(scores.logits))
        return scores

    def _answers(self, batches: Sequence[NDArray[np.float32]], places: Sequence[int]) -> VariantLogits:
        """The answers for findings by their places. batches: logits [B, Q] of all queries."""
        every = self._queries.logits(np.concatenate(batches))
        logits = every.positive[:, places]
        against = np.where(every.without, np.float32(0), every.negative)[:, places]
        return VariantLogits(logits, probability(logits.astype(np.float64) - against))


def _batches(blocks: Iterable[NDArray[np.uint8]], size: int) -> Iterator[NDArray[np.uint8]]:
    """The images of blocks [n, S, S], in their order, in arrays [size, 1, S, S] of which the last can be shorter."""
    batch, count = np.empty((0, 0, 0), np.uint8), 0
    for block in blocks:
        start = 0
        while start < len(block):
            if not count:
                batch = np.empty((size, *block.shape[1:]), np.uint8)
            taken = block[start : start + size - count]
            batch[count : count + len(taken)] = taken
            start, count = start + len(taken), count + len(taken)
            if count == size:
                yield batch[:, None]
                count = 0
    if count:
        yield batch[:count, None]


def ask_pairs(
    images: Sequence[PreparedImage], model: AskedModel, batch: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The maps [P, h, w] and logits [P] of the P pairs of all images, in their order; `batch` images at once."""
    findings = list(dict.fromkeys(name for image in images for name in image.findings))
    maps, logits = [np.zeros((0, *model.grid), np.float32)], [np.zeros(0, np.float32)]
    for start in range(0, len(images), batch):
        block = images[start : start + batch]
        scores = model.ask(np.stack([image.pixels for image in block]), findings)
        for at, image in enumerate(block):
            places = [findings.index(name) for name in image.findings]
            maps.append(scores.maps[at, places])
            logits.append(scores.logits[at, places])
    return np.concatenate(maps), np.concatenate(logits)
