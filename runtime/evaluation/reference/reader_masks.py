"""A reader's masks and points as a model (docs/subgroups.md §6.1): one mask per pair, and one point that is the first.

The rows have the counts of a map that is 1 inside the mask and 0 outside. Under a protocol of native size they also
have the counts by which its source scores readers, which takes any of the points as a hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....engines.errors import DataError
from ....metrics_gpu.detection.unions import UnionCounts
from ....metrics_gpu.sweep.masks import unpack_masks
from ...data.answers.answered import State
from ...data.datasets.region_grid import region_grid
from ...results.schema import GRID, THRESHOLD_COUNT
from ..decoded_case import DecodedCase
from ..drawn import DrawnPairs
from ..measure import Measure
from ..scoring import Scored
from .answer_column import answer_column, float_lists, one_level, placed
from .baselines import draw_case
from .box_models import BoxModel, file_digest
from .reference_sources import Reference, ScoredCases, note_size

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case
    from ...data.datasets.readers.reader_marks import ReaderMasks
    from ...results.loaded_dataset import LoadedDataset

_NONE: Final = ("illegal", "outside", "clipped", "duplicates")
_NEVER: Final = ("truncated", "over_limit", "out_of_view")


def masks_reference(model: BoxModel, marks: ReaderMasks, loaded: LoadedDataset, measure: Measure) -> Reference:
    """A reader's masks on a dataset. Raises DataError when a file cannot be read."""
    findings = list(loaded.dataset.classes)
    pairs = [(case.case_id, finding) for case in loaded.all_cases for finding in case.regions]
    share = float(np.mean([case not in marks.listed for case, _ in pairs])) if pairs else 0.0
    digests = [file_digest(file) for file in marks.files]
    record = {
        "reader": model.reader,
        "masks": True,
        "files": [str(file.absolute()) for file in marks.files],
        "sha256": digests,
        "missing": model.options.missing,
        "missing_share": share,
    }
    silent = [f"{share:.1%} of the pairs with a region are of images that the reader's files lack"] if share else []
    return Reference(
        name=model.name,
        findings=findings,
        prepare=partial(draw_case, findings=findings, contents=loaded.contents),
        score=partial(_score, marks=marks, loaded=loaded, model=model, native=measure.protocol.native_size),
        batch=16,  # bounds the memory of the native masks
        description=" ".join([model.description, *digests]),
        facts={"weights": "boxes", "grid": None, "boxes": record},
        answers=True,
        remarks=[*silent, *marks.remarks],
    )


def _score(
    batch: Sequence[DecodedCase], marks: ReaderMasks, loaded: LoadedDataset, model: BoxModel, native: bool
) -> ScoredCases:
    """Drawn cases, and the reader's marks on the readable ones."""
    drawn = [case for case in batch if case.status == "ok"]
    findings = list(loaded.dataset.classes)
    for case in batch:
        note_size(case, loaded)
    left: list[int] = []
    for row, case in enumerate(drawn):
        if model.options.missing == "leave-out" and case.case.case_id not in marks.listed:
            left += [row * len(findings) + findings.index(name) for name in case.masks]
            case.masks = {}
    pairs = DrawnPairs.of(drawn, findings)
    named = [(drawn[c], findings[f]) for c, f in zip(pairs.of_case, pairs.of_finding, strict=True)]
    marked = [_Marked(marks, case, finding) for case, finding in named]
    grid = np.stack([item.grid for item in marked]) if marked else np.zeros((0, GRID, GRID), np.bool_)
    truth = unpack_masks(pairs.masks, GRID)
    sizes = np.array([item.size[::-1] for item in marked], np.int64).reshape(-1, 2)
    on_grid = UnionCounts(*(np.asarray(masks.sum(axis=(1, 2)), np.int64) for masks in (grid, grid & truth, truth)))
    point = np.array([item.points[0] if item.points else (-1, -1) for item in marked], np.int64).reshape(-1, 2)
    hit = np.array([bool(item.hits) and item.hits[0] for item in marked], np.bool_)
    asked = [
        (c * len(findings) + f, _state(marks, case.case, name))
        for c, case in enumerate(drawn)
        for f, name in enumerate(findings)
        if case.case.labels.get(name) == 0 and name not in case.masks and case.case.case_id in marks.listed
    ]
    states = [_state(marks, case.case, finding) for case, finding in named]
    states += [*(state for _, state in asked), *[int(State.MISSING)] * len(left)]
    without: list[None] = [None] * (len(asked) + len(left))
    nothing = [np.zeros(0)] * len(states)
    column = answer_column(
        {
            "state": np.array(states, np.int8),
            "boxes": float_lists(nothing),
            "scores": float_lists([None] * len(states)),
            "truth": float_lists([None] * len(states)),
            "crowd": [None] * len(states),
            "width": [*sizes[:, 0].tolist(), *without],
            "height": [*sizes[:, 1].tolist(), *without],
            **{name: [*(getattr(item, name) for item in marked), *without] for name in ("area", "overlap", "region")},
            **dict.fromkeys(_NONE, np.zeros(len(states), np.int32)),
            **dict.fromkeys(_NEVER, np.zeros(len(states), np.bool_)),
        }
    )
    order = np.full(len(drawn) * len(findings), -1, np.int64)
    order[pairs.of_case * len(findings) + pairs.of_finding] = np.arange(len(pairs))
    order[[*(row for row, _ in asked), *left]] = len(pairs) + np.arange(len(without))
    scored = Scored(
        pairs,
        one_level(on_grid, point, sizes, hit),
        answers=placed(column, order),
        native=[item.at_native_size for item in marked] if native else None,
    )
    return batch, [scored]


class _Marked:
    """What a reader marked for one pair, and the region: counts at native size, and the points by their hits."""

    def __init__(self, marks: ReaderMasks, drawn: DecodedCase, finding: str) -> None:
        case = drawn.case.case_id
        assert drawn.size is not None  # a pair has a region, which was drawn
        self.size = drawn.size
        mark, region = marks.masks.get(case, {}).get(finding), drawn.case.regions[finding].mask(*self.size)
        try:
            mask = np.zeros(self.size, np.bool_) if mark is None else mark.mask(*self.size)
            self.grid = np.zeros((GRID, GRID), np.bool_) if mark is None else region_grid(mark, *self.size)[0]
        except DataError as error:
            raise DataError(f"{marks.files[0]}: the mask of '{case}', '{finding}': {error}") from error
        self.area, self.overlap, self.region = (int(area.sum()) for area in (mask, mask & region, region))
        self.points = [(int(x), int(y)) for x, y in marks.points.get(case, {}).get(finding, ())]
        height, width = self.size
        if not all(x < width and y < height for x, y in self.points):
            raise DataError(f"{marks.files[-1]}: a point of '{case}', '{finding}' lies outside the image.")
        self.hits = [bool(region[y, x]) for x, y in self.points]

    @property
    def at_native_size(self) -> dict[str, Any]:
        """The entry of the column `native`: the mask is the same however a map is cut, and any point is a hit."""
        flat = {name: np.full(THRESHOLD_COUNT, getattr(self, name), np.int32) for name in ("area", "overlap")}
        return {
            "height": self.size[0],
            "width": self.size[1],
            "region": self.region,
            "otsu_area": self.area,
            "otsu_overlap": self.overlap,
            **flat,
            "hit": any(self.hits),
        }


def _state(marks: ReaderMasks, case: Case, finding: str) -> int:
    if case.case_id not in marks.listed:
        return int(State.MISSING)
    marked = finding in marks.masks.get(case.case_id, {}) or bool(marks.points.get(case.case_id, {}).get(finding))
    return int(State.ANSWERED if marked else State.SILENT)
