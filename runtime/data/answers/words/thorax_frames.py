"""Where the thorax lies in each image, and what is done with words (docs/words.md §4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .....engines.errors import ConfigError
from .....metrics_gpu.zones.thorax_places import FIXED, IMAGE, ThoraxFrame
from ....host.options import Thorax, UncertainWords
from ..questions import Questions
from .lung_masks import LungMasks


@dataclass(frozen=True)
class WordOptions:
    """How words are drawn and read. thorax: the frame without masks. lungs: masks of the lungs, which give it.

    uncertain: how uncertain statements count. mirrored: the places are drawn on the other side, as a control. Raises
    ConfigError for masks and the whole image together.
    """

    thorax: Thorax = "fixed"
    lungs: Path | None = None
    uncertain: UncertainWords = "present"
    mirrored: bool = False

    def __post_init__(self) -> None:
        if self.lungs is not None and self.thorax == "image":
            raise ConfigError("Masks of the lungs are a frame of their own: leave out --lungs, or --thorax image.")


class ThoraxFrames:
    """The frame of each image of a dataset."""

    def __init__(self, options: WordOptions, questions: Questions) -> None:
        self.options, self._questions = options, questions
        self._frames: dict[int, ThoraxFrame | None] = {}

    @cached_property
    def _masks(self) -> LungMasks | None:
        return None if self.options.lungs is None else LungMasks(self.options.lungs, self._questions)

    def frame(self, row: int) -> tuple[ThoraxFrame, bool]:
        """The frame of a case, and whether it is the fixed one because its masks are missing or poor.

        Raises DataError for masks that cannot be read or are mirrored.
        """
        if self._masks is None:
            return (FIXED if self.options.thorax == "fixed" else IMAGE), False
        if row not in self._frames:
            self._frames[row] = self._masks.frame(row)
        masked = self._frames[row]
        return (FIXED, True) if masked is None else (masked, False)
