"""Compares a graph that has no model with itself: an image in a batch must have the result that it has alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ...engines.errors import ExportError, ParityError
from ...engines.prompts.prompt_set import PromptSet
from ..machine import threads_to_use
from .checks import Floats, ParityReport, Place, TensorCheck, compare
from .compare_graphs import OUTPUTS, Session, engine_name
from .probes import PICTURES, probe_images

_SIZES: Final = (2, 3, 8, 9, 16, 17)
"""Batches that are always compared: pairs, 8 and 16, and one more of each. Engines and servers use 2 and 16."""

_LARGE: Final = (64, 256)
"""Batches that are compared where they hold at most `_PIXELS` pixels; 64 is the default of `open_engine`."""

_PIXELS: Final = 2**22
"""Bounds time and memory: 64 images of 256 x 256 pixels, 256 of 128 x 128."""

_EVERY_SET: Final = 9
"""Larger batches are compared with one prompt set only, the one with most texts."""

_OTHER_TEXT: Final = 2
"""Pictures that are also asked other texts."""


def batch_sizes(side: int, asked: int | None) -> tuple[int, ...]:
    """The batches to compare, of images of side x side pixels; the last is the largest.

    asked: the largest that a user wants, compared whatever it holds; None for the largest of the usual ones.
    """
    sizes = [*_SIZES, *(size for size in _LARGE if size * side * side <= _PIXELS)]
    return tuple(sizes) if asked is None else (*(size for size in sizes if size < asked), asked)


@dataclass(frozen=True)
class ProbeScores:
    """What a graph says of the probe pictures, one at a time, asked the texts of one set.

    logits: [P, Q]; saliency: [P, Q, h, w]; other_logits: logits of the first pictures for other text features of the
    same shape, None where there are none; text: [Q, D...].
    """

    name: str
    text: Floats
    logits: Floats
    saliency: Floats
    other_logits: Floats | None


class GraphTrial:
    """A graph with the probe pictures, uint8 [P, 1, side, side]; `grid`: rows and columns of its maps; `precision` is
    that of its weights."""

    def __init__(self, graph: Path, side: int, grid: tuple[int, int], precision: str) -> None:
        threads = threads_to_use()
        self._graph, self._grid = graph, grid
        self._session = Session(graph, threads, rounding=precision == "bf16")
        self._images = probe_images(side)
        self._conditions = {
            "reference": "the graph itself, one picture at a time",
            "engine": engine_name(threads),
        }

    def alone(self, sets: Sequence[PromptSet]) -> list[ProbeScores]:
        """The scores of every picture alone, for each prompt set. Raises ExportError when the graph cannot run."""
        alone = []
        for prompt_set in sets:
            text = np.ascontiguousarray(prompt_set.features)
            logits, saliency = self._one_by_one(text, PICTURES)
            other = _other_text(text)
            others = None if other is None else self._one_by_one(other, _OTHER_TEXT)[0]
            alone.append(ProbeScores(prompt_set.name, text, logits, saliency, others))
        return alone

    def compare(self, alone: Sequence[ProbeScores], sizes: Sequence[int], say: Callable[[str], None]) -> ParityReport:
        """Compares every slot of batches of `sizes` with the same picture alone.

        Raises ParityError, naming the first batch whose images have other results than alone, and ExportError, naming
        the first that cannot run.
        """
        report = ParityReport(self._conditions)
        largest = max(alone, key=lambda scores: len(scores.text))
        right = 1
        for size in sizes:
            say(f"comparing the images of a batch of {size} with the same images alone")
            for scores in alone if size <= _EVERY_SET else [largest]:
                checks = self._batch(size, scores)
                report.checks += checks
                worst = max(checks, key=lambda check: check.needed)
                if not worst:
                    raise ParityError(
                        f"{self._graph.name} gives images other results in a batch of {size} than alone: {worst}; "
                        f"no bundle was written. {_advice(right)}"
                    )
            right = size
        return report

    def _one_by_one(self, text: Floats, pictures: int) -> tuple[Floats, Floats]:
        runs = [self._run([number], text) for number in range(pictures)]
        logits, saliency = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        return logits, saliency

    def _batch(self, size: int, scores: ProbeScores) -> list[TensorCheck]:
        order = _order(size)
        try:
            together = self._run(order, scores.text)
        except ExportError as error:
            raise ExportError(f"{self._graph.name} cannot run a batch of {size} images: {error}") from error
        checks = []
        for name, got, wanted in zip(OUTPUTS, together, (scores.logits, scores.saliency), strict=True):
            full = float(np.abs(wanted).max())
            for slot, number in enumerate(order):
                position = Place("alone", size, slot, len(scores.text))
                checks.append(compare(name, position, got[slot], wanted[number], full_scale=full))
        return checks

    def _run(self, order: Sequence[int], text: Floats) -> list[Floats]:
        logits, saliency = self._session.run(OUTPUTS, {"pixels": self._images[list(order)], "text": text})
        pairs = (len(order), len(text))
        if (logits.shape, saliency.shape) != (pairs, (*pairs, *self._grid)):
            raise ExportError(
                f"{self._graph.name} returns logits {list(logits.shape)} and saliency {list(saliency.shape)} for a "
                f"batch of {pairs[0]} images and {pairs[1]} texts; wanted are {list(pairs)} and "
                f"{[*pairs, *self._grid]}."
            )
        return [logits, saliency]


def _order(size: int) -> list[int]:
    """The pictures of a batch, by number, in an order without a period; neighbours differ.

    A slot that repeats, mixes or shifts other slots then differs from its own picture alone.
    """
    random = np.random.Generator(np.random.PCG64(size))
    steps = random.integers(1, PICTURES, size)
    order = np.cumsum(steps) % PICTURES
    if size <= PICTURES:
        order = random.permutation(PICTURES)[:size]
    return [int(number) for number in order]


def _other_text(text: Floats) -> Floats | None:
    """The features of other texts: of the next text each, and of a single text its numbers from the last to the
    first. None where that changes nothing."""
    other = np.ascontiguousarray(np.roll(text, 1, axis=0) if len(text) > 1 else text[..., ::-1])
    return None if np.array_equal(other, text) else other


def _advice(right: int) -> str:
    if right < 2:
        return "Export the graph so that the images of a batch do not depend on one another."
    return f"Export the graph again, or wrap it for batches of at most {right} images with --batch {right}."
