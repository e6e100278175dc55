"""An open model, asked for findings about variants of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Engine
from ...engines.prompts.prompt_set import PromptSet
from ...metrics_gpu.recognition.scores import probability
from ..evaluation.queries import Queries, prompt_mean

__all__ = ["AskedModel", "VariantScores"]


def _uncounted(passes: int) -> None:
    """Counts nothing."""


@dataclass(frozen=True, eq=False)
class VariantScores:
    """What a model says of V images and P findings.

    logits: float32 [V, P]. probabilities: float64 [V, P], the sigmoid of the logit, or of its difference to that of the
    negative prompts where a finding has some. maps: float32 [V, P, h, w], on the model's grid, not normalised.
    """

    logits: NDArray[np.float32]
    probabilities: NDArray[np.float64]
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
        count: Callable[[int], None] = _uncounted,
    ) -> None:
        self.engine = engine
        self._features = prompts.features
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

    def ask(self, pixels: NDArray[np.uint8], findings: Sequence[str]) -> VariantScores:
        """The answers about the model inputs `pixels`, uint8 [V, 1, S, S]. Raises EngineError."""
        places = [self.findings.index(name) for name in findings]
        logits = np.empty((len(pixels), len(places)), np.float32)
        chance = np.empty((len(pixels), len(places)), np.float64)
        maps = np.empty((len(pixels), len(places), *self.grid), np.float32)
        for start in range(0, len(pixels), self._batch):
            here = slice(start, start + self._batch)
            scores = self.engine.run(pixels[here], self._features)
            said = self._queries.logits(scores.logits)
            logits[here] = said.positive[:, places]
            against = np.where(said.without, np.float32(0), said.negative)[:, places]
            chance[here] = probability(logits[here].astype(np.float64) - against)
            for to, place in enumerate(places):
                chosen = scores.saliency[:, self._queries.positive[place]]
                maps[here, to] = prompt_mean(np.moveaxis(chosen, 1, 0))
            self._count(len(scores.logits))
        return VariantScores(logits, chance, maps)
