"""The result of reading a file of predicted boxes: columns over the pairs of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ....metrics_gpu.zones.thorax_places import ThoraxFrame
    from .words.class_answers import WordsAnswer

ANSWER_COUNTERS: Final = ("silent", "no_box_in_text", "refused", "unparsable", "missing", "truncated", "over_limit")
"""Counters of answers. `silent` counts `no_box_in_text` and `refused` too."""

BOX_COUNTERS: Final = ("illegal", "outside", "clipped", "duplicates")
"""Counters of boxes."""


_UNSCORED: Final = {
    "unknown_label": "lines about a finding that the dataset says nothing about; not scored",
    "no_region": "lines about a finding that is present, or a phrase, without a region; not scored",
    "unmatched": "texts that are neither a finding nor a phrase of the dataset",
}

MANY_MISSING: Final = 0.01
"""A share of pairs without a line, or of answers that could not be read, above it is said."""

MANY_UNREAD_WORDS: Final = 0.1
"""The same for answers in words that are not read or not English: texts about something unknown are common."""


class AskedPair(NamedTuple):
    """What a line answers: a case and a finding of the dataset, also where the line asks the phrase of that finding."""

    case_id: str
    asked: str


class State(IntEnum):
    """The state of a pair. Every state but ANSWERED has no boxes."""

    ANSWERED = 0
    """At least one box was kept."""
    SILENT = 1
    """An empty list: the model looked and found nothing."""
    NO_BOX_IN_TEXT = 2
    """A text without any trace of a box; counted as silent too."""
    UNPARSABLE = 3
    """A box was meant, and none could be kept."""
    MISSING = 4
    """The file has no line for this pair, or the line was rejected."""
    REFUSED = 5
    """The line says that the answer was refused or filtered, and no box was kept; counted as silent too."""


@dataclass(frozen=True)
class BoxAnswers:
    """The answers for P pairs. The boxes of pair p are `boxes[offsets[p] : offsets[p + 1]]`, in the order of the line.

    places: int64 [P], ascending, as `questions.Place`, so in the dataset's order: cases as `Dataset.cases`, in a case
    as its classes or phrases. pair_of: a place -> its case and finding.
    boxes: float64 [N, 4], x1, y1, x2, y2 in continuous pixels of the original image, the lower right corner exclusive,
    clipped to the image, x1 < x2 and y1 < y2. offsets: int64 [P + 1]. scores: float64 [N], higher is surer, or None.
    state: int8 [P], of `State`. sizes: int32 [P, 2], width and height of the original image; 0, 0 where no line needed
    it and the dataset does not state it. lines: int64 [P], the 1-based line (or entry) of the file, 0 without one: the
    order of the file.
    illegal, outside, clipped, duplicates: int32 [P], numbers of boxes. truncated, over_limit, cropped: bool [P];
    cropped: the model saw only the centre square of the image (frame `crop`, dialect `maira2`). words: P answers in
    words; None in a file of boxes.
    """

    places: NDArray[np.int64]
    pair_of: Callable[[int], AskedPair] = field(repr=False)
    boxes: NDArray[np.float64]
    offsets: NDArray[np.int64]
    scores: NDArray[np.float64] | None
    state: NDArray[np.int8]
    sizes: NDArray[np.int32]
    lines: NDArray[np.int64]
    illegal: NDArray[np.int32]
    outside: NDArray[np.int32]
    clipped: NDArray[np.int32]
    duplicates: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    over_limit: NDArray[np.bool_]
    cropped: NDArray[np.bool_]
    words: tuple[WordsAnswer, ...] | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def pairs(self) -> tuple[AskedPair, ...]:
        """The case and finding of each pair."""
        return tuple(map(self.pair_of, self.places.tolist()))

    def positions(self, places: NDArray[np.int64]) -> NDArray[np.intp]:
        """intp: the position of the pair at each of `places`, -1 where it is none of these pairs."""
        nearest = np.searchsorted(self.places, places)
        exists = np.append(self.places, -1)[nearest] == places
        return np.where(exists, nearest, -1)

    @property
    def tried(self) -> NDArray[np.bool_]:
        """bool [P]: the answer has boxes, kept or not. On a negative pair this is a hallucination."""
        return np.asarray((np.diff(self.offsets) > 0) | (self.illegal > 0) | (self.outside > 0))

    def counts(self) -> dict[str, int]:
        """The counters over all pairs: `ANSWER_COUNTERS`, then `BOX_COUNTERS`."""
        states = {state.name.lower(): int(np.count_nonzero(self.state == state)) for state in State}
        states["silent"] += states["no_box_in_text"] + states["refused"]
        answers = {name: states[name] for name in ANSWER_COUNTERS[:5]}
        answers |= {name: int(np.count_nonzero(getattr(self, name))) for name in ANSWER_COUNTERS[5:]}
        return answers | {name: int(getattr(self, name).sum()) for name in BOX_COUNTERS}


@dataclass(frozen=True)
class Written:
    """Boxes of positive pairs as they were written, of the first answers that have any; for the check of the frame.

    pairs: int64 [n], positions of pairs; offsets: int64 [n + 1]; boxes: float64 [m, 4], x1, y1, x2, y2; axes: float64
    [n, 6], factor, divisor and offset of x, then of y, that make them pixels; sizes: int64 [n, 2], width and height.
    """

    pairs: NDArray[np.int64]
    offsets: NDArray[np.int64]
    boxes: NDArray[np.float64]
    axes: NDArray[np.float64]
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class BoxFile:
    """A file of predicted boxes, read for one dataset.

    positives: every pair of the dataset with a region, answered or not. negatives: only the pairs whose finding is
    annotated absent and for which the file has a line. not_asked: negative pairs without a line. unknown_label: lines
    for pairs that the dataset says nothing about; no_region: lines for findings that are present, or phrases, without
    a region; both are counted and not scored. unmatched: phrases of a grounded report that are none of the dataset's.
    rejected: lines that `--bad-lines count` left out; lines: all lines with an answer.
    provenance: the header's model, prompt, commit, dataset, created, seed, attempts, temperature and note, where given;
    line_provenance: the same keys where lines have values of their own: the first 20 distinct ones, in file order.
    file_format: "jsonl", "coco" or "radfact". frames: the coordinate conventions in the file, e.g. "pixels",
    "permille yxyx" or a dialect -> number of lines. written: for the check of the frame.
    tags: closing tags of unknown meaning with boxes before and after them -> number of answers. first_unread: the first
    line whose answer could not be read, and how it begins; empty without one.
    tokenless: dialects of tokens without a token in any answer -> answers.
    labelled: boxes that the answers name; other_finding: those that bear the name of another finding.
    thorax: the frame of a case, by its position, and whether masks of it are missing; None in a file of boxes.
    unused_texts: of answers in words that are not read, or about something else: the first texts by state.
    silence: what an absent answer means: "line" (JSON Lines: a missing line is `missing`), or "absent" (COCO results
    and grounded phrases cannot say more, so it is `silent`).
    """

    path: Path
    sha256: str
    file_format: str
    positives: BoxAnswers
    negatives: BoxAnswers
    not_asked: int
    written: Written
    unknown_label: int = 0
    no_region: int = 0
    rejected: int = 0
    unmatched: int = 0
    lines: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    line_provenance: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    frames: Mapping[str, int] = field(default_factory=dict)
    silence: str = "line"
    tags: Mapping[str, int] = field(default_factory=dict)
    first_unread: str = ""
    tokenless: Mapping[str, int] = field(default_factory=dict)
    labelled: int = 0
    other_finding: int = 0
    thorax: Callable[[int], tuple[ThoraxFrame, bool]] | None = None
    unused_texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def missing_share(self) -> float:
        """The share of positive pairs without a line."""
        return float(np.mean(self.positives.state == State.MISSING)) if len(self.positives) else 0.0

    @property
    def unscored(self) -> list[str]:
        """The content of the file that is counted but not scored, a line for each type."""
        counts = {text: getattr(self, name) for name, text in _UNSCORED.items()}
        return [f"{count} {text}" for text, count in counts.items() if count]

    @property
    def mislabelled(self) -> str:
        """How many boxes bear the name of another finding, which are scored all the same; empty if none does."""
        count = f"{self.other_finding} of {self.labelled} labelled boxes"
        return f"{count} bear the name of another finding than asked; they are scored" if self.other_finding else ""
