"""Intersection over union at the native size, as the CheXlocalize benchmark computes it (docs/metrics.md §11.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError, RunError
from ...metrics_gpu.statistics.bootstrap import macro_mean
from ...metrics_gpu.statistics.exact_sums import exact_mean
from ...metrics_gpu.sweep.sweep_options import LEVELS, level
from ..host.protocols import find_protocol
from ..results.integrity import fault_in_counts
from ..results.load_rows import StoredRun
from ..results.schema import AGAIN, reading
from ..results.storage import read_columns
from .tables.metric_names import IN_SAMPLE, plain_number, value_of
from .tables.stamps import ModelWorth, entry_stamp, stamps, uncertain_stamps
from .tables.table import Column, Item, Table, ascii_stem

_MEAN: Final = "Mean"
_OF_READERS: Final = (
    "drawn: a reader's mask, which has no threshold; Hit of a reader: any of the points lies in the region"
)


@dataclass(frozen=True)
class NativeRows:
    """The P pairs of a cell at native size: class_of intp [P] (index into `findings`), pixels of the image, of its
    region, and of the cut map with and without its part outside the region: int64 [P], [P, 101] for the thresholds.

    masks: they are masks that a reader drew, which are not cut, and a hit is any of the reader's points."""

    findings: tuple[str, ...]
    class_of: NDArray[np.intp]
    pixels: NDArray[np.int64]
    region: NDArray[np.int64]
    hit: NDArray[np.bool_]
    area: NDArray[np.int64]
    overlap: NDArray[np.int64]
    otsu_area: NDArray[np.int64]
    otsu_overlap: NDArray[np.int64]
    masks: bool = False


@dataclass(frozen=True)
class NativeScores:
    """Means over the pairs of one class, fractions; None where no pair counts.

    n: pairs with a region; counted: those whose map cut by Otsu's method, or whose mask, is not empty. drawn: IoU of a
    reader's mask, which has none of the following. otsu: IoU of the cut map; tuned: at
    the benchmark's threshold for Grad-CAM, `tuned_tau`; best: at `best_tau`, the best for these pairs of 0.2, 0.3, ...,
    0.8. hit: pairs whose map has its maximum in the region. floor: IoU of the whole image.
    """

    name: str
    n: int
    counted: int
    hit: float | None = None
    drawn: float | None = None
    otsu: float | None = None
    tuned: float | None = None
    tuned_tau: float | None = None
    best: float | None = None
    best_tau: float | None = None
    floor: float | None = None


def load_native(run: StoredRun, model: str, dataset: str) -> NativeRows | None:
    """The native counts of a finished cell; None when its protocol has none. Raises RunError."""
    import pyarrow.compute as pc

    entry = next(
        (e for e in run.data["cells"].values() if (e["model"], e["dataset"]) == (model, dataset)), {"protocol": ""}
    )
    if (model, dataset) in run.unfinished or not _is_native(entry):
        return None
    path = run.path / entry["file"]
    with reading(path):
        table = read_columns(path, ["finding", "native"], filters=pc.field("native").is_valid())
    findings = tuple(entry["findings"])
    native = table["native"].combine_chunks()

    def one(name: str) -> NDArray[np.int64]:
        return np.asarray(native.field(name).to_numpy(zero_copy_only=False), np.int64)

    def all_levels(name: str) -> NDArray[np.int64]:
        return np.asarray(native.field(name).flatten().to_numpy(), np.int64).reshape(len(native), LEVELS)

    rows = NativeRows(
        findings=findings,
        class_of=np.array([findings.index(name) for name in table["finding"].to_pylist()], np.intp),
        pixels=one("height") * one("width"),
        region=one("region"),
        hit=one("hit").astype(np.bool_),
        area=all_levels("area"),
        overlap=all_levels("overlap"),
        otsu_area=one("otsu_area"),
        otsu_overlap=one("otsu_overlap"),
        masks=entry["weights"] == "boxes",
    )
    for area, overlap in ((rows.area, rows.overlap), (rows.otsu_area[:, None], rows.otsu_overlap[:, None])):
        fault = fault_in_counts(area, overlap, rows.region, rows.pixels)
        if fault:
            raise RunError(f"{path} is damaged: {fault}; {AGAIN}.")
    return rows


def native_scores(rows: NativeRows, *, true_positives_only: bool = True) -> list[NativeScores]:
    """Scores of the classes that have pairs, then their unweighted mean.

    true_positives_only: a pair counts at a threshold only if its cut map is not empty there, the benchmark's default;
    otherwise an empty one has an IoU of 0.
    """
    from ...metrics_gpu.grounding.native import SEARCHED, TUNED

    region = rows.region
    otsu = _iou(rows.otsu_area, rows.otsu_overlap, region, true_positives_only)
    curves = _iou(rows.area, rows.overlap, region[:, None], true_positives_only)
    searched = [level(tau) for tau in SEARCHED]
    scores = []
    for index, name in enumerate(rows.findings):
        mine = rows.class_of == index
        if not mine.any():
            continue
        tau = TUNED.get(name)
        means = [exact_mean(curves[mine, k]) for k in searched]
        best = max((value for value in means if value is not None), default=None)
        counted, hit = int((~np.isnan(otsu[mine])).sum()), exact_mean(rows.hit[mine].astype(np.float64))
        floor = exact_mean(region[mine] / rows.pixels[mine])
        if rows.masks:
            drawn = exact_mean(otsu[mine])
            scores.append(NativeScores(name, int(mine.sum()), counted, hit=hit, drawn=drawn, floor=floor))
            continue
        scores.append(
            NativeScores(
                name=name,
                n=int(mine.sum()),
                counted=counted,
                hit=hit,
                otsu=exact_mean(otsu[mine]),
                tuned=None if tau is None else exact_mean(curves[mine, level(tau)]),
                tuned_tau=tau,
                best=best,
                best_tau=None if best is None else SEARCHED[means.index(best)],
                floor=floor,
            )
        )
    means_of = {key: macro_mean(getattr(item, key) for item in scores) for key in _AVERAGED}
    n, counted = sum(item.n for item in scores), sum(item.counted for item in scores)
    return [*scores, NativeScores(_MEAN, n, counted, **means_of)] if scores else []


_AVERAGED: Final = ("hit", "drawn", "otsu", "tuned", "best", "floor")


def native_tables(run: StoredRun) -> list[Table]:
    """A table for each dataset that was evaluated at native size. Raises RunError."""
    tables = []
    for dataset in run.datasets:
        body: list[tuple[Item, ...]] = []
        shown: list[ModelWorth] = []
        title, readers = dataset, False
        unsure: list[tuple[str, str, dict[str, Any]]] = []
        for entry in run.data["cells"].values():
            rows = load_native(run, entry["model"], dataset) if entry["dataset"] == dataset else None
            if rows is None or not len(rows.region):
                continue
            title = str(entry["title"])
            shown.append(entry_stamp(entry))
            unsure.append((title, entry["model"], entry.get("uncertain", {})))
            readers |= rows.masks
            sliced, whole = native_scores(rows), native_scores(rows, true_positives_only=False)
            body += [_row(entry["model"], *pair) for pair in zip(sliced, whole, strict=True)]
        if body:
            table = _table(title, body, (*stamps(shown), *uncertain_stamps(unsure)), f"native-{ascii_stem(dataset)}")
            tables.append(table if readers else _without_masks(table))
    return tables


def _table(title: str, body: Sequence[tuple[Item, ...]], above: tuple[str, ...], name: str) -> Table:
    columns = [Column(text) for text in ("model", "class", "n", "Hit", "all-ones")]
    columns += [
        Column(text, "true positives") for text in ("counted", "drawn", "Otsu", "tuned", "tau", "best*", "tau*")
    ]
    columns += [Column(text, "all regions") for text in ("drawn", "Otsu", "tuned", "best*")]
    notes = (
        "mean IoU in percent at the image's own size; a map is cut where it is above the threshold",
        "Otsu: the threshold is found for each map, holes are filled; tuned: the benchmark's thresholds for Grad-CAM",
        f"* the best of 0.2, 0.3, ..., 0.8 for each class; {IN_SAMPLE}",
        "true positives: pairs whose cut map is not empty, the benchmark's default; all regions: an empty one counts 0",
        "images without a region are in neither",
        "Hit: the map's maximum lies in the region; all-ones: IoU of the whole image; Mean: over classes",
        _OF_READERS,
    )
    return Table(
        f"{title}: mIoU at native size, protocol chexlocalize", tuple(columns), tuple(body), above, notes, name
    )


def _without_masks(table: Table) -> Table:
    """The table where no reader stands in it."""
    kept = [place for place, column in enumerate(table.columns) if column.title != "drawn"]
    return replace(table.only(kept), notes=tuple(note for note in table.notes if note != _OF_READERS))


def _row(model: str, sliced: NativeScores, whole: NativeScores) -> tuple[Item, ...]:
    return (
        model,
        sliced.name,
        str(sliced.n),
        value_of("pointing", sliced.hit),
        value_of("floor_iou", sliced.floor),
        str(sliced.counted),
        value_of("iou_fixed", sliced.drawn),
        value_of("iou_fixed", sliced.otsu),
        value_of("iou_fixed", sliced.tuned),
        plain_number(sliced.tuned_tau, 1),
        value_of("iou_best", sliced.best),
        plain_number(sliced.best_tau, 1),
        value_of("iou_fixed", whole.drawn),
        value_of("iou_fixed", whole.otsu),
        value_of("iou_fixed", whole.tuned),
        value_of("iou_best", whole.best),
    )


def _iou(area: NDArray[Any], overlap: NDArray[Any], region: NDArray[Any], only: bool) -> NDArray[np.float64]:
    """NaN where a pair does not count."""
    value = overlap / (area + region - overlap)
    return np.where(area == 0, np.nan, value) if only else value


def _is_native(entry: Any) -> bool:
    try:
        return find_protocol(entry.get("protocol", "default")).native_size
    except ConfigError:
        return False
