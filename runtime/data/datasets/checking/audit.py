"""Audit of a dataset: counts of its content and of its problems (docs/datasets.md §0.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .....engines.errors import DataError, ImageAccessError
from .....metrics_gpu.sweep.masks import GRID
from ...images.decode import is_there
from ..dataset import Case, Dataset, OfficialCounts, Region
from ..phrases.phrase_pairs import phrase_key
from ..region_boxes import Boxes, extents
from ..region_grid import region_fault, region_grid
from ..region_shapes import AtLeast, Union
from ..source.listing import tree
from .audit_images import decode_images, read_headers
from .box_statistics import box_warnings
from .note_warnings import note_warnings
from .patient_counts import count_patients
from .same_content import find_same_content
from .turned_images import TurnedImage, turned_images

_NAMED = 20  # examples kept of each kind; the counts are complete


@dataclass(frozen=True)
class AuditCheck:
    """An expected count of the complete official set (docs/datasets.md), and the count found."""

    name: str
    expected: int
    found: int

    @property
    def passed(self) -> bool:
        """Whether the two are equal."""
        return self.expected == self.found


@dataclass(frozen=True)
class Audit:
    """Counts over a dataset; the list of names that belongs to a count holds the first few.

    images_expected = images_present + images_missing. unreadable and constant are None unless images were decoded.
    pairs: (image, class) pairs with a region, in total and per class; positives, negatives, unknown: image labels per
    class. boxes_per_class counts boxes of box annotations. degenerate: regions that cover no pixel of the image, plus
    boxes without area; outside: regions that lie outside their image, all of them degenerate; clipped: regions that lie
    partly outside by more than rounding; sub_pixel: regions that meet no pixel of the 224 grid. regions_unchecked:
    regions whose grid is unknown because no size is stated and the image's size cannot be read. misfits: regions of
    which a box reaches beyond its image by more than rounding, so that it was probably drawn on an image of another
    size; not counted where the annotation states a size. size_differs: images whose size differs from their regions'
    grid. warnings: notes with which a number cannot be believed, see `note_warnings`, and what looks wrong by the
    statistics of all boxes and by the EXIF orientations of images, see `box_statistics`. notes: kind -> number.
    checks: empty unless official counts are known; is_official: the number of cases equals the complete set, so the
    other counts must be equal too. splits: split -> number of cases; phrases: the distinct phrases of a dataset whose
    images are asked their own. patients, images_without_patient, largest_patient, largest_patient_images: as in
    `PatientCounts`. uncertain: the policy for uncertain labels, uncertain_labels their number. same_content: image
    files that are copies of another under another name, same_content_images: the groups. card: source, terms and
    citation of the dataset.
    """

    dataset: str
    title: str
    card: str
    decoded: bool
    images_expected: int
    images_present: int
    images_missing: int
    missing: tuple[str, ...]
    unreadable: int | None
    unreadable_reasons: tuple[str, ...]
    constant: int | None
    size_differs: int | None
    unannotated_files: int
    unannotated: tuple[str, ...]
    splits: Mapping[str, int]
    patients: int
    images_without_patient: int
    largest_patient: str
    largest_patient_images: int
    uncertain: str
    uncertain_labels: int
    same_content: int
    same_content_images: tuple[str, ...]
    phrases: int
    with_region: int
    without_finding: int
    pairs: int
    pairs_per_class: Mapping[str, int]
    positives: Mapping[str, int]
    negatives: Mapping[str, int]
    unknown: Mapping[str, int]
    boxes: int
    boxes_per_class: Mapping[str, int]
    degenerate: int
    degenerate_regions: tuple[str, ...]
    outside: int
    outside_regions: tuple[str, ...]
    clipped: int
    clipped_regions: tuple[str, ...]
    sub_pixel: int
    regions_unchecked: int
    misfits: int
    misfit_regions: tuple[str, ...]
    warnings: tuple[str, ...]
    unknown_classes: Mapping[str, int]
    notes: Mapping[str, int]
    note_texts: tuple[str, ...]
    is_official: bool | None
    checks: tuple[AuditCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether images can be read, regions lie in them, no class is unknown, and official counts are equal."""
        counts_fit = not self.is_official or all(check.passed for check in self.checks)
        images_fail = self.images_missing or self.unreadable
        return counts_fit and not (images_fail or self.unknown_classes or self.misfits or self.outside or self.warnings)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON, with `passed` for the whole and for each check."""
        data = asdict(self)
        data["checks"] = [{**asdict(check), "passed": check.passed} for check in self.checks]
        data["passed"] = self.passed
        return data


def audit(dataset: Dataset, *, decode: bool = False, threads: int | None = None) -> Audit:
    """Audits a dataset; `decode`: also reads every image, with `threads` threads (default: the usable cores).

    Raises DataError when the annotation files cannot be read.
    """
    cases = dataset.cases()
    why = {case.case_id: _absence(case) for case in cases}
    missing = [text for text in why.values() if text is not None]
    present = [case for case in cases if why[case.case_id] is None]
    images = decode_images(present, threads) if decode else read_headers(present, threads)
    extra = _unannotated(dataset, cases)
    turned = turned_images(present, threads)
    regions = _Regions.of(cases, images.sizes, turned)
    patients, copies = count_patients(cases), find_same_content(present, images.sizes, threads)
    official = dataset.official()
    unknown = Counter(note.subject for note in dataset.notes if note.kind == "unknown_class")
    flat = [note for note in dataset.notes if note.kind == "degenerate"]
    differing = [c for c in present if c.size and images.sizes.get(c.case_id, c.size) != c.size]
    return Audit(
        dataset=dataset.name,
        title=dataset.title,
        card=dataset.card,
        decoded=decode,
        images_expected=len(cases),
        images_present=len(present),
        images_missing=len(missing),
        missing=tuple(missing[:_NAMED]),
        unreadable=len(images.reasons) if decode else None,
        unreadable_reasons=tuple(images.reasons[:_NAMED]),
        constant=images.constant if decode else None,
        size_differs=len(differing) if decode else None,
        unannotated_files=len(extra),
        unannotated=tuple(extra[:_NAMED]),
        splits=dict(sorted(Counter(case.split for case in cases).items())),
        patients=patients.patients,
        images_without_patient=patients.unnamed,
        largest_patient=patients.largest,
        largest_patient_images=patients.most,
        uncertain=dataset.uncertain,
        uncertain_labels=dataset.uncertain_labels,
        same_content=copies.count,
        same_content_images=copies.texts[:_NAMED],
        phrases=len({phrase_key(phrase) for case in cases for phrase in case.phrases.values()}),
        with_region=sum(bool(case.regions) for case in cases),
        without_finding=sum(not case.regions and 1 not in case.labels.values() for case in cases),
        pairs=sum(regions.pairs.values()),
        pairs_per_class={finding: regions.pairs[finding] for finding in dataset.classes},
        positives=_labels(dataset, cases, 1),
        negatives=_labels(dataset, cases, 0),
        unknown=_labels(dataset, cases, None),
        boxes=sum(regions.boxes.values()),
        boxes_per_class={finding: regions.boxes[finding] for finding in dataset.classes},
        degenerate=len(regions.empty) + len(flat),
        degenerate_regions=tuple([*regions.empty, *map(str, flat)][:_NAMED]),
        outside=len(regions.outside),
        outside_regions=tuple(regions.outside[:_NAMED]),
        clipped=len(regions.clipped),
        clipped_regions=tuple(regions.clipped[:_NAMED]),
        sub_pixel=regions.sub_pixel,
        regions_unchecked=regions.unchecked,
        misfits=len(regions.misfits),
        misfit_regions=tuple(regions.misfits[:_NAMED]),
        warnings=(
            *note_warnings(dataset.notes).values(),
            *box_warnings(dataset, cases, images.sizes, turned).values(),
        ),
        unknown_classes=dict(sorted(unknown.items())),
        notes=dict(sorted(Counter(note.kind for note in dataset.notes).items())),
        note_texts=tuple(str(note) for note in dataset.notes[:_NAMED]),
        is_official=None if official is None else official.cases == len(cases),
        checks=_checks(official, len(cases), regions),
    )


@dataclass
class _Regions:
    pairs: Counter[str] = field(default_factory=Counter)
    boxes: Counter[str] = field(default_factory=Counter)
    empty: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)
    sub_pixel: int = 0
    unchecked: int = 0

    @staticmethod
    def of(cases: Sequence[Case], sizes: Mapping[str, tuple[int, int]], turned: Mapping[str, TurnedImage]) -> _Regions:
        regions = _Regions()
        for case in cases:
            size = case.size or sizes.get(case.case_id)
            for finding, region in case.regions.items():
                regions.pairs[finding] += 1
                if isinstance(region, Boxes):
                    regions.boxes[finding] += len(region.corners)
                if size is None:
                    regions.unchecked += 1
                    continue
                excess = max((boxes.excess(*size) for boxes in _boxes_of(region)), default=0.0)
                exact = any(boxes.exact for boxes in _boxes_of(region))
                if excess and (exact or case.size is None):
                    text = f"a box of '{finding}' reaches {excess:.0f} pixels beyond {size[1]} x {size[0]}"
                    sideways = case.case_id in turned and turned[case.case_id].sideways
                    why = "an EXIF orientation turns the image" if sideways else "the image seems to be resized"
                    regions.misfits.append(f"{case.case_id}: {text}; {why}")
                    if exact:  # it cannot be drawn
                        continue
                try:
                    grid, sub_pixel = region_grid(region, *size, GRID[0])
                except DataError as error:
                    raise DataError(f"The region of '{finding}' in {case.image} cannot be drawn: {error}") from error
                regions.sub_pixel += sub_pixel
                if not grid.any():
                    regions.empty.append(f"{case.case_id}: the region of '{finding}' covers no pixel of the image")
                fault = region_fault(region, *size, drawn=bool(grid.any()))
                if fault in ("outside", "clipped"):
                    places = ", ".join("[{:g}, {:g}, {:g}, {:g}]".format(*box) for box in extents(region, *size))
                    text = (
                        f"{case.case_id}: the region of '{finding}' at {places} and an image of {size[1]} x {size[0]}"
                    )
                    (regions.outside if fault == "outside" else regions.clipped).append(text)
        return regions


def _boxes_of(region: Region) -> Iterator[Boxes]:
    """The boxes that a region is made of; none for a mask or a polygon."""
    if isinstance(region, Boxes):
        yield region
    elif isinstance(region, AtLeast | Union):
        for part in region.parts:
            yield from _boxes_of(part)


def _absence(case: Case) -> str | None:
    """The entry in the list of missing images: the path, or why it cannot be reached; None: the file exists."""
    try:
        return None if is_there(case.image) else str(case.image)
    except ImageAccessError as error:
        return str(error)


def _unannotated(dataset: Dataset, cases: Sequence[Case]) -> list[str]:
    """Files of the image folders that belong to no case, and are no annotation next to its image."""
    used = {path.absolute() for path in (*(case.image for case in cases), *dataset.sources())}
    files = (path for folder in dataset.image_folders() for path in tree(folder))
    return sorted(str(path) for path in files if path.absolute() not in used)


def _labels(dataset: Dataset, cases: Sequence[Case], value: int | None) -> dict[str, int]:
    counts = Counter(finding for case in cases for finding, label in case.labels.items() if label == value)
    return {finding: counts[finding] for finding in dataset.classes}


def _checks(official: OfficialCounts | None, cases: int, regions: _Regions) -> tuple[AuditCheck, ...]:
    if official is None:
        return ()
    checks = [AuditCheck("cases", official.cases, cases)]
    if official.pairs is not None:
        checks.append(AuditCheck("pairs", official.pairs, sum(regions.pairs.values())))
    if official.boxes is not None:
        checks.append(AuditCheck("boxes", official.boxes, sum(regions.boxes.values())))
    checks += [AuditCheck(f"pairs of {f}", number, regions.pairs[f]) for f, number in official.pairs_per_class.items()]
    checks += [AuditCheck(f"boxes of {f}", number, regions.boxes[f]) for f, number in official.boxes_per_class.items()]
    return tuple(checks)
