"""Asks each case its own phrases: the distinct ones of a batch in one run of the model, or each phrase alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Scores
from ...engines.bundle import Bundle
from ..data.datasets.dataset import Case

Ask = Callable[[NDArray[np.uint8], list[str]], Scores]
"""Pixels uint8 [B, 1, S, S] and Q phrases -> logits [B, Q] and saliency [B, Q, h, w]."""

Query = TypeVar("Query")
"""A phrase, or its placeholder."""

_MOST: Final = 64
_SEED: Final = 16  # of the random image on which phrases are asked together and alone


@dataclass(frozen=True)
class PhraseQueries:
    """How the phrases of cases are asked.

    alone: the queries of the model see one another, so that each phrase is a separate run. most: phrases in one run.
    """

    findings: Sequence[str]
    ask: Ask
    alone: bool
    most: int = _MOST

    def run(self, pixels: NDArray[np.uint8], cases: Sequence[Case]) -> Scores:
        """Scores of cases and findings: logits [B, F] and saliency [B, F, h, w]; NaN where a case has no phrase."""
        places: dict[str, list[tuple[int, int]]] = {}
        for row, case in enumerate(cases):
            for column, finding in enumerate(self.findings):
                if finding in case.phrases:
                    places.setdefault(case.phrases[finding], []).append((row, column))
        phrases = list(places)
        step = 1 if self.alone else self.most
        logits = np.full((len(cases), len(self.findings)), np.nan, np.float32)
        saliency: NDArray[np.float32] | None = None
        for block in (phrases[start : start + step] for start in range(0, len(phrases), step)):
            rows = sorted({row for phrase in block for row, _ in places[phrase]})
            scores = self.ask(pixels[rows], block)
            if saliency is None:
                saliency = np.full((*logits.shape, *scores.saliency.shape[2:]), np.nan, np.float32)
            for query, phrase in enumerate(block):
                for row, column in places[phrase]:
                    logits[row, column] = scores.logits[rows.index(row), query]
                    saliency[row, column] = scores.saliency[rows.index(row), query]
        assert saliency is not None, "every evaluated case has a phrase"
        return Scores(logits, saliency)


def most_queries(bundle: Bundle) -> int:
    """Phrases in one run: no more than a TensorRT plan of the bundle takes, which is made for its prompt sets."""
    sizes = [len(record.texts) for record in bundle.manifest.prompt_sets.values()]
    return min(_MOST, max(sizes, default=16))


def first_phrases(cases: Sequence[Case]) -> list[str]:
    """The first two distinct phrases of a dataset, or the only one."""
    phrases: dict[str, None] = {}
    for case in cases:
        phrases.update(dict.fromkeys(case.phrases.values()))
        if len(phrases) > 1:
            break
    return list(phrases)[:2]


def see_one_another(
    ask: Callable[[NDArray[np.uint8], list[Query]], Scores], side: int, phrases: Sequence[Query], precision: str
) -> bool:
    """Whether the score or map of a phrase changes when another one is asked with it, measured on a random image.

    A change by more than rounding counts, so a model is asked phrase by phrase in case of doubt. phrases: what `ask`
    takes; the first two are asked.
    """
    if len(phrases) < 2:
        return False
    pixels = np.random.default_rng(_SEED).integers(0, 256, (1, 1, side, side), np.uint8)
    together, alone = ask(pixels, list(phrases[:2])), ask(pixels, [phrases[0]])
    tolerance = 1e-4 if precision == "fp32" else 3e-3
    for both, one in ((together.logits, alone.logits), (together.saliency, alone.saliency)):
        scale = float(np.abs(one[0, 0]).max()) or 1.0
        if not float(np.abs(both[0, 0] - one[0, 0]).max()) <= tolerance * scale:
            return True
    return False
