"""What a further reader marked on the images of a dataset, to be scored as a model is (docs/subgroups.md §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SECOND: Final = "second"
"""The second of two readers whose boxes are in one file."""
RADIOLOGIST: Final = "radiologist"
"""A reader whose marks are no part of the regions they are scored against."""


@dataclass(frozen=True)
class ReaderBoxes:
    """Boxes: lines of a file of boxes (docs/boxes.md §1), in one of its frames; the first box of a line points.

    left_out: each case is an image without one of its readers, who is scored on it. remarks: lines for the user.
    """

    lines: Iterable[Mapping[str, Any]]
    frame: str = "unit"
    left_out: bool = False
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class ReaderMasks:
    """Masks and points. files: they are from, masks first.

    masks: case -> finding -> `Region`, those that are not empty. points: case -> finding -> (x, y) in native pixels,
    the main one first. listed: the cases that the reader saw. remarks: lines for the user.
    """

    files: Sequence[Path]
    masks: Mapping[str, Mapping[str, Any]]
    points: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
    listed: frozenset[str]
    remarks: Sequence[str] = field(default=())


ReaderMarks = ReaderBoxes | ReaderMasks
