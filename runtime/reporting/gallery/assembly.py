"""A run -> its gallery. A sentence reports each missing part; the rest of the report does not depend on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import XBenchError
from ....metrics_gpu.sweep.masks import encode_runs, unpack_masks
from ...results.load_rows import StoredRun
from ...results.numbers.run_numbers import Results
from ...results.schema import GRID
from ...results.stored_maps import load_maps
from .choice import MOST, ModelPairs, choose, in_rounds, model_pairs, pair_scores
from .model import Gallery, GalleryCase, Overlay, overlay_size, picture_size, truth_size
from .pictures import Originals, open_originals

if TYPE_CHECKING:
    from ...host.config import DatasetConfig

BUDGET = 12_000_000
"""Maximum characters of the gallery in the page; a page may have 15 MB."""

_FINE = 0.3  # share of the budget that is kept for radiographs in their native size

_NOTHING = "The run has no finished model with a region to show."

_PICTURE = 16_000  # characters of a noisy picture, to estimate sizes; actual sizes are checked afterwards


def make_gallery(
    run: StoredRun,
    results: Results,
    *,
    datasets: Mapping[str, DatasetConfig] | None = None,
    most: int = MOST,
    budget: int = BUDGET,
) -> tuple[Gallery | None, str]:
    """The gallery of a run and "", or None and a sentence with the reason.

    Up to `most` cases of every class, in rounds until `budget` characters are spent. `datasets`: current
    folders of datasets, used instead of those in the run's configuration; a reader given by a path is used only from
    here.
    Raises RunError when a result file cannot be read.
    """
    if not any(_keeps_maps(run, *key) for key, cell in results.cells.items() if cell.weights != "baseline" and cell.n):
        return None, _NOTHING
    pairs = _all_pairs(results)
    picked = _pick(run, pairs, most, budget)
    cases, overlays, reasons = _collect(run, pairs, picked)
    if not overlays:
        return None, reasons[0] if reasons else _NOTHING
    wanted: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        wanted[case.dataset].add(case.case_id)
    originals, notes = open_originals(run, wanted, datasets or {})
    if any(loaded.dataset.asks_phrases for loaded in originals.loaded.values()):
        cases = [replace(case, phrase=originals.phrase(case.dataset, case.case_id, case.finding)) for case in cases]
    kept, spent = _within(cases, overlays, {}, budget)
    keys = dict.fromkeys(
        (case.dataset, case.case_id) for case in kept if (case.dataset, case.case_id) in originals.files
    )
    fine = pictures = _native(keys, originals, budget - spent)
    if len(fine) < len(keys):
        from .small_pictures import small_pictures

        pictures, lacking = small_pictures(run, originals, datasets or {})
        notes = [*lacking, *notes]
        kept, spent = _within(cases, overlays, pictures, int((1 - _FINE) * budget) if pictures else budget)
        fine = _in_place(kept, pictures, fine, budget - spent)
    models = tuple(name for name in results.models if any(overlay.model == name for overlay in overlays))
    titles = {name: results.title(name) for name in dict.fromkeys(case.dataset for case in kept)}
    images, native, kept = _numbered(kept, pictures, fine)
    shown = tuple(overlay for overlay in overlays if overlay.case < len(kept))
    return Gallery(images, native, tuple(kept), shown, models, titles, (*notes, *reasons), originals), ""


def _keeps_maps(run: StoredRun, model: str, dataset: str) -> bool:
    """Whether the rows of a finished cell have maps, or are of a version that does not say it."""
    return run.entry(model, dataset).get("grid", ()) is not None


def _all_pairs(results: Results) -> dict[str, list[ModelPairs]]:
    """Dataset -> the pairs of its models; baselines ignore the image and are left out."""
    pairs_of = {
        dataset: [model_pairs(cell) for cell in results.column(dataset) if cell.weights != "baseline" and cell.n]
        for dataset in results.datasets
    }
    return {dataset: models for dataset, models in pairs_of.items() if models}


def _pick(
    run: StoredRun, pairs: Mapping[str, Sequence[ModelPairs]], most: int, budget: int
) -> list[tuple[str, str, str, str]]:
    """The cases, (dataset, finding, case_id, why), in rounds, as many as are expected to fit, at least one."""
    choices = {}
    for dataset, models in pairs.items():
        for finding, scores in pair_scores(models).items():
            choices[dataset, finding] = choose(scores, most)
    cost = {
        dataset: truth_size(600)
        + sum(overlay_size(prod(run.entry(item.model, item.dataset).get("grid") or (0,))) for item in models)
        for dataset, models in pairs.items()
    }
    picked: list[tuple[str, str, str, str]] = []
    spent, seen = 0, set()
    for item in in_rounds(choices):
        dataset, _, case_id, _ = item
        spent += cost[dataset] + (0 if (dataset, case_id) in seen else _PICTURE)
        if spent > budget and picked:
            break
        seen.add((dataset, case_id))
        picked.append(item)
    return picked


def _collect(
    run: StoredRun, pairs: Mapping[str, Sequence[ModelPairs]], picked: Sequence[tuple[str, str, str, str]]
) -> tuple[list[GalleryCase], list[Overlay], list[str]]:
    """Cases, overlays, and why a model has none; a model whose stored region differs is left out of a case."""
    numbers: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for number, (dataset, finding, case_id, _) in enumerate(picked):
        numbers[dataset][case_id, finding] = number
    overlays: list[Overlay] = []
    truths: dict[int, tuple[int, ...]] = {}
    reasons: list[str] = []
    for dataset, chosen in numbers.items():
        for item in pairs[dataset]:
            try:
                drawn = list(_chosen_overlays(run, item, chosen))
            except XBenchError as error:
                reasons.append(str(error))
                continue
            overlays += [shown for shown, truth in drawn if truths.setdefault(shown.case, truth) == truth]
    cases = [
        GalleryCase(dataset, case_id, finding, why, None, truths.get(number, ()))
        for number, (dataset, finding, case_id, why) in enumerate(picked)
    ]
    return cases, overlays, reasons


def _within(
    cases: Sequence[GalleryCase],
    overlays: Sequence[Overlay],
    pictures: Mapping[tuple[str, str], bytes],
    budget: int,
) -> tuple[list[GalleryCase], int]:
    """The first cases whose actual size stays within the budget, at least one, and that size."""
    sizes = [truth_size(len(case.truth)) for case in cases]
    for overlay in overlays:
        sizes[overlay.case] += overlay_size(overlay.saliency.size)
    seen: set[tuple[str, str]] = set()
    spent = 0
    for number, case in enumerate(cases):
        key = (case.dataset, case.case_id)
        more = sizes[number] + (picture_size(pictures[key]) if key in pictures and key not in seen else 0)
        if spent + more > budget and number:
            return list(cases[:number]), spent
        seen.add(key)
        spent += more
    return list(cases), spent


def _native(keys: Iterable[tuple[str, str]], originals: Originals, budget: int) -> dict[tuple[str, str], bytes]:
    """The first pictures in their native size, as many as fit, or all that can be read."""
    pictures = {}
    for key, picture in originals.pictures(list(keys)):
        budget -= picture_size(picture)
        if budget < 0:
            break
        pictures[key] = picture
    return pictures


def _in_place(
    cases: Sequence[GalleryCase],
    pictures: Mapping[tuple[str, str], bytes],
    fine: Mapping[tuple[str, str], bytes],
    budget: int,
) -> dict[tuple[str, str], bytes]:
    """Those of the `fine` pictures that fit instead of the small ones, of the first cases."""
    chosen = {}
    for key in dict.fromkeys((case.dataset, case.case_id) for case in cases):
        if key in fine and key in pictures:
            budget -= picture_size(fine[key]) - picture_size(pictures[key])
            if budget < 0:
                break
            chosen[key] = fine[key]
    return chosen


def _numbered(
    cases: Sequence[GalleryCase], pictures: Mapping[tuple[str, str], bytes], fine: Mapping[tuple[str, str], bytes]
) -> tuple[tuple[bytes, ...], tuple[bool, ...], list[GalleryCase]]:
    """The pictures of `cases`, each once, which are `fine`, and the cases with the numbers of their pictures."""
    numbers: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.dataset, case.case_id)
        if key in pictures:
            numbers.setdefault(key, len(numbers))
    numbered = [replace(case, image=numbers.get((case.dataset, case.case_id))) for case in cases]
    return tuple(fine.get(key, pictures[key]) for key in numbers), tuple(key in fine for key in numbers), numbered


def _chosen_overlays(
    run: StoredRun, pairs: ModelPairs, chosen: Mapping[tuple[str, str], int]
) -> Iterator[tuple[Overlay, tuple[int, ...]]]:
    """The overlays of one model on one dataset and their regions as run lengths; chosen: (case_id,
    finding) -> number of its case.

    Raises RunError when the result file cannot be read.
    """
    if not _keeps_maps(run, pairs.model, pairs.dataset):
        return
    rows, counts = load_maps(run, pairs.model, pairs.dataset, {case for case, _ in chosen}), pairs.counts
    assert rows.saliency is not None
    places = {key: place for place, key in enumerate(zip(pairs.case_id, pairs.finding, strict=True))}
    for place, key in enumerate(zip(rows.case_id, rows.finding, strict=True)):
        index = places.get(key)
        if key not in chosen or index is None:
            continue
        y0, x0, y1, x1 = rows.frames[place].tolist()
        overlay = Overlay(
            model=pairs.model,
            case=chosen[key],
            protocol=pairs.protocol.name,
            saliency=rows.saliency[place].copy(),
            frame=(y0, x0, y1, x1),
            area=counts.area[index].copy(),
            overlap=counts.overlap[index].copy(),
            best=pairs.best[key[1]],
            argmax=int(counts.argmax[index]),
            hit=bool(pairs.hits[index]),
            degenerate=bool(counts.degenerate[index]),
        )
        yield overlay, run_lengths(unpack_masks(rows.masks[place : place + 1], GRID)[0])


def run_lengths(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Row-major run lengths of a mask [H, W], 0 and 1 in turn, starting with 0."""
    return tuple(encode_runs(mask.T).tolist())
