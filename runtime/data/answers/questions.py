"""What a dataset asks: its cases and findings, by the names that a file of boxes may use for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError
from ..datasets.dataset import Case
from ..datasets.phrases.phrase_pairs import asked, image_id, phrase_key
from ..datasets.source.image_names import portable_name, stem_of
from ..images.size import image_size
from .answered import AskedPair
from .bad_line import BadLine

Place = int
"""A pair: the position of its case, times the number of classes, plus the position of its class."""


class Questions:
    """The pairs of a dataset, in its order: cases as given, in a case the classes in their order.

    names: what the header of a file may call the dataset. `sizes`: case id -> (height, width), of image files that were
    read already.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        classes: Sequence[str],
        names: Sequence[str] = (),
        sizes: dict[str, tuple[int, int]] | None = None,
    ) -> None:
        self.cases, self.classes, self.names = cases, tuple(classes), tuple(names)
        self._sizes = {} if sizes is None else sizes
        self._class_of = {name: position for position, name in enumerate(self.classes)}
        self._case_of = {case.case_id: position for position, case in enumerate(cases)}

    @cached_property
    def positives(self) -> NDArray[np.int64]:
        """int64 [P]: the place of every pair with a region, ascending."""
        return np.fromiter(
            (
                self.pair_number(row, column)
                for row, case in enumerate(self.cases)
                for column, name in enumerate(self.classes)
                if name in case.regions
            ),
            np.int64,
        )

    @cached_property
    def negatives(self) -> int:
        """The number of pairs whose finding is annotated absent."""
        return sum(1 for case in self.cases for name in self.classes if case.labels.get(name) == 0)

    def __len__(self) -> int:
        """The number of places."""
        return len(self.cases) * len(self.classes)

    def pair_number(self, row: int, column: int) -> Place:
        """The number of the pair of a case and a class, by their positions."""
        return row * len(self.classes) + column

    def case_of(self, pair_number: Place) -> tuple[Case, str]:
        """The case and the class of a pair."""
        row, column = divmod(pair_number, len(self.classes))
        return self.cases[row], self.classes[column]

    def pair(self, pair_number: Place) -> AskedPair:
        """The names of a pair."""
        case, name = self.case_of(pair_number)
        return AskedPair(case.case_id, name)

    def has_region(self, pair_number: Place) -> bool:
        """Whether the pair has a region."""
        case, name = self.case_of(pair_number)
        return name in case.regions

    def label(self, pair_number: Place) -> int | None:
        """1, 0, or None where the dataset does not say."""
        case, name = self.case_of(pair_number)
        return case.labels.get(name)

    def case(self, name: str) -> int:
        """The position of the case called `name`: its id, or its image file with or without folders and extension.

        Raises BadLine for an unknown name, or a name of several images.
        """
        if name in self._case_of:
            return self._case_of[name]
        portable = portable_name(name)
        if portable in self._portable:
            return self._portable[portable]
        named = self._named(name)
        if len(named) == 1:
            return named[0]
        if named:
            text = f"'{_short(name)}' is the file of {len(named)} cases, such as '{self.cases[named[0]].case_id}'"
            raise BadLine("case", f"{text}; write the id of the case")
        raise BadLine("case", f"the dataset has no case '{_short(name)}'", name, chain(self._case_of, self._stems))

    def places_of_phrase(self, name: str, phrase: str, finding: str | None) -> tuple[int, list[Place]]:
        """A case of the image, which `name` is the id, a case or the file of, and the pairs that ask a phrase in it.

        finding: only pairs of it. A phrase that the dataset has without a region has no pair. Raises BadLine. Phrases
        are texts of reports, so no message holds one.
        """
        if not self._asked:
            raise BadLine("phrase", "this dataset asks findings and no phrases; write finding, and leave phrase out")
        image = image_id(name)
        if image not in self._case_of:
            images = {image_id(self.cases[row].case_id) for row in self._named(name)}
            image = images.pop() if len(images) == 1 else image_id(self.cases[self.case(name)].case_id)
        pairs = self._asked.get((image, phrase_key(phrase)), [])
        if not pairs and (image, phrase_key(phrase)) in self._unasked:
            return self._case_of[image], []
        if not pairs:
            problem = f"the image '{_short(image)}' is not asked this phrase"
            raise BadLine("phrase", f"{problem}; write one of its phrases, upper and lower case do not count")
        chosen = [pair for pair in pairs if finding in (None, pair[1])]
        if not chosen:
            problem = (
                f"the image '{_short(image)}' is asked this phrase for another finding than '{_short(str(finding))}'"
            )
            raise BadLine(
                "finding", f"{problem}; correct it, or leave it out", str(finding), [pair[1] for pair in pairs]
            )
        row = self._case_of[chosen[0][0]]
        return row, [
            self.pair_number(self._case_of[case_id], self._class_of[finding_of_pair])
            for case_id, finding_of_pair in chosen
        ]

    def of_image(self, row: int) -> list[int]:
        """The positions of the cases that have the image of a case: itself, and where phrases are asked its others."""
        return self._rounds.get(image_id(self.cases[row].case_id), [row]) if self._asked else [row]

    def finding(self, name: str) -> int:
        """The position of a class. Raises BadLine for an unknown one."""
        if name not in self._class_of:
            raise BadLine("finding", f"the dataset has no finding '{_short(name)}'", name, self.classes)
        return self._class_of[name]

    def size(self, row: int) -> tuple[int, int] | None:
        """(width, height) of the original image of a case; None if neither the dataset nor the image's file says it."""
        case = self.cases[row]
        size = case.size or self._sizes.get(case.case_id)
        if size is None:
            try:
                size = image_size(case.image)
            except ImageError:
                return None
            self._sizes[case.case_id] = size
        return size[1], size[0]

    def is_named(self, name: str) -> bool:
        """Whether a file may call the dataset `name`; upper and lower case do not count."""
        return not self.names or name.strip().casefold() in {title.casefold() for title in self.names}

    def _named(self, file: str) -> list[int]:
        """The cases whose image file has this name; of several, those whose path ends with its folders too."""
        name = portable_name(file)
        last = name.rpartition("/")[2]
        named = self._files.get(last) or self._stems.get(last) or self._stems.get(stem_of(last), [])
        if len(named) > 1 and "/" in name:
            stem = f"{name.rpartition('/')[0]}/{stem_of(last)}"
            ends = [portable_name(self.cases[row].image.with_suffix("").as_posix()) for row in named]
            named = [row for row, end in zip(named, ends, strict=True) if f"/{end}".endswith(f"/{stem}")] or named
        return named

    @cached_property
    def _asked(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        return asked(self.cases)

    @cached_property
    def _unasked(self) -> set[tuple[str, str]]:
        return {(image_id(case.case_id), key) for case in self.cases for key in case.unasked}

    @cached_property
    def _rounds(self) -> dict[str, list[int]]:
        return _rows_of(image_id(case.case_id) for case in self.cases)

    @cached_property
    def _portable(self) -> dict[str, int]:
        """Ids in the form in which names are compared -> the case; without those that two cases share."""
        rows = _rows_of(portable_name(case.case_id) for case in self.cases)
        return {name: same[0] for name, same in rows.items() if len(same) == 1}

    @cached_property
    def _files(self) -> dict[str, list[int]]:
        return _rows_of(portable_name(case.image.name) for case in self.cases)

    @cached_property
    def _stems(self) -> dict[str, list[int]]:
        """Names of image files without extension; none if one of them is the id of another case, since ids without a
        case could then be taken for files."""
        if any(self._case_of.get(case.image.stem, row) != row for row, case in enumerate(self.cases)):
            return {}
        return _rows_of(stem_of(case.image.name) for case in self.cases)


def _rows_of(names: Iterable[str]) -> dict[str, list[int]]:
    """Name -> its positions."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        rows[name].append(row)
    return dict(rows)


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}..."
