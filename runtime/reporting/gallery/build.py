"""A run -> its gallery. Whatever is not at hand is said in a sentence; the rest of the report does not depend on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ....engines.errors import XBenchError
from ...host.config import DatasetConfig
from ...results.load import StoredRun
from ...results.loaded_dataset import LoadedDataset, load_dataset
from ...results.numbers.run_numbers import Results
from .candidates import ModelPairs, model_pairs, pair_scores
from .choice import MOST, choose, in_rounds
from .model import Gallery, GalleryCase, Overlay
from .overlays import chosen_overlays
from .payload import overlay_size, picture_size, truth_size
from .pictures import read_pictures, stored_dataset

__all__ = ["BUDGET", "collect_pictures", "make_gallery"]

BUDGET = 20_000_000
"""Characters the gallery may take in the page, of the 30 MB that a page may have."""

_PICTURE = 16_000  # characters of a noisy picture, for the choice; the pictures themselves are weighed afterwards


def make_gallery(
    run: StoredRun,
    results: Results,
    *,
    datasets: Mapping[str, DatasetConfig] | None = None,
    most: int = MOST,
    budget: int = BUDGET,
) -> tuple[Gallery | None, str]:
    """The gallery of a run and "", or None and the sentence that says why there is none.

    Up to `most` cases of every class, in rounds until `budget` characters are spent. `datasets`: where datasets are
    now, before what the run's configuration says; a reader that is only named by a path is used from here alone.
    Raises RunError when a result file cannot be read.
    """
    pairs = _all_pairs(run, results)
    picked = _pick(run, pairs, most, budget)
    cases, overlays, reasons = _collect(run, pairs, picked)
    if not overlays:
        return None, reasons[0] if reasons else "The run has no finished model with a region to show."
    pictures, notes = _pictures(run, cases, datasets or {})
    kept = _within(cases, overlays, pictures, budget)
    models = tuple(name for name in results.models if any(overlay.model == name for overlay in overlays))
    titles = {name: results.title(name) for name in dict.fromkeys(case.dataset for case in kept)}
    images, kept = _numbered(kept, pictures)
    shown = tuple(overlay for overlay in overlays if overlay.case < len(kept))
    return Gallery(images, tuple(kept), shown, models, titles, (*notes, *reasons)), ""


def _all_pairs(run: StoredRun, results: Results) -> dict[str, list[ModelPairs]]:
    """Dataset -> the pairs of its models; baselines look at nothing and are left out."""
    found = {
        dataset: [
            model_pairs(run, results, cell.model, dataset)
            for cell in results.column(dataset)
            if cell.weights != "baseline" and cell.n
        ]
        for dataset in results.datasets
    }
    return {dataset: models for dataset, models in found.items() if models}


def _pick(
    run: StoredRun, pairs: Mapping[str, Sequence[ModelPairs]], most: int, budget: int
) -> list[tuple[str, str, str, str]]:
    """The cases, (dataset, finding, case_id, why), in rounds, as many as are expected to fit."""
    choices = {}
    for dataset, models in pairs.items():
        for finding, scores in pair_scores(models).items():
            choices[dataset, finding] = choose(scores, most)
    cost = {
        dataset: sum(overlay_size(_cells(run, item)) for item in models) + truth_size(600)
        for dataset, models in pairs.items()
    }
    picked, spent, seen = [], 0, set()
    for item in in_rounds(choices):
        dataset, _, case_id, _ = item
        spent += cost[dataset] + (0 if (dataset, case_id) in seen else _PICTURE)
        if spent > budget:
            break
        seen.add((dataset, case_id))
        picked.append(item)
    return picked


def _cells(run: StoredRun, pairs: ModelPairs) -> int:
    height, width = run.data["cells"][f"{pairs.model}--{pairs.dataset}"].get("grid") or (0, 0)
    return int(height * width)


def _collect(
    run: StoredRun, pairs: Mapping[str, Sequence[ModelPairs]], picked: Sequence[tuple[str, str, str, str]]
) -> tuple[list[GalleryCase], list[Overlay], list[str]]:
    """Cases, overlays, and why a model has none; one that met another region of the same name is left out of a case."""
    numbers: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for number, (dataset, finding, case_id, _) in enumerate(picked):
        numbers[dataset][case_id, finding] = number
    overlays: list[Overlay] = []
    truths: dict[int, tuple[int, ...]] = {}
    reasons: list[str] = []
    for dataset, chosen in numbers.items():
        for item in pairs[dataset]:
            try:
                found = list(chosen_overlays(run, item, chosen))
            except XBenchError as error:
                reasons.append(str(error))
                continue
            overlays += [shown for shown, truth in found if truths.setdefault(shown.case, truth) == truth]
    cases = [
        GalleryCase(dataset, case_id, finding, why, None, truths.get(number, ()))
        for number, (dataset, finding, case_id, why) in enumerate(picked)
    ]
    return cases, overlays, reasons


def _pictures(
    run: StoredRun, cases: Sequence[GalleryCase], datasets: Mapping[str, DatasetConfig]
) -> tuple[dict[tuple[str, str], bytes], list[str]]:
    """(dataset, case_id) -> picture, and a sentence for every dataset that lacks some."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        wanted[case.dataset].add(case.case_id)
    return collect_pictures(run, wanted, datasets)


def collect_pictures(
    run: StoredRun, wanted: Mapping[str, Collection[str]], datasets: Mapping[str, DatasetConfig]
) -> tuple[dict[tuple[str, str], bytes], list[str]]:
    """As `read_pictures`, of several datasets: (dataset, case_id) -> picture, and a sentence for each that lacks some.

    wanted: dataset -> its case ids. datasets: where datasets are now, before what the run's configuration says.
    """
    config = run.data["config"]
    cache = Path(config["cache"]) if config.get("cache") else None
    pictures: dict[tuple[str, str], bytes] = {}
    notes: list[str] = []
    for dataset, ids in wanted.items():
        try:
            loaded = load_dataset(datasets.get(dataset) or stored_dataset(config, dataset))
            found = read_pictures(loaded, ids, cache)
        except XBenchError as error:
            notes.append(f"{dataset}: the pictures are not at hand. {error}")
            continue
        pictures |= {(dataset, case_id): picture for case_id, picture in found.items()}
        if len(found) < len(ids):
            notes.append(f"{dataset}: {len(ids) - len(found)} of {len(ids)} pictures can no longer be read.")
        if _changed(run, loaded):
            notes.append(
                f"{dataset}: its files, or the code that reads them, changed after the evaluation; "
                "pictures are as they are now, regions and numbers as they were."
            )
    return pictures, notes


def _changed(run: StoredRun, loaded: LoadedDataset) -> bool:
    """Whether the dataset's digest is not the one that results of this run were computed with."""
    for entry in run.data["cells"].values():
        ingredients = entry.get("ingredients", {})
        if entry["dataset"] == loaded.name and entry.get("state") == "done" and "dataset" in ingredients:
            same_cases = replace(loaded, limit=ingredients.get("limit"))
            return bool(ingredients["dataset"] != [loaded.name, same_cases.digest])
    return False


def _within(
    cases: Sequence[GalleryCase],
    overlays: Sequence[Overlay],
    pictures: Mapping[tuple[str, str], bytes],
    budget: int,
) -> list[GalleryCase]:
    """The first cases whose actual size stays within the budget, at least one."""
    sizes = [truth_size(len(case.truth)) for case in cases]
    for overlay in overlays:
        sizes[overlay.case] += overlay_size(overlay.saliency.size)
    seen: set[tuple[str, str]] = set()
    spent = 0
    for number, case in enumerate(cases):
        key = (case.dataset, case.case_id)
        spent += sizes[number] + (picture_size(pictures[key]) if key in pictures and key not in seen else 0)
        seen.add(key)
        if spent > budget and number:
            return list(cases[:number])
    return list(cases)


def _numbered(
    cases: Sequence[GalleryCase], pictures: Mapping[tuple[str, str], bytes]
) -> tuple[tuple[bytes, ...], list[GalleryCase]]:
    """The pictures of `cases`, each once, and the cases with the number of theirs."""
    numbers: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.dataset, case.case_id)
        if key in pictures:
            numbers.setdefault(key, len(numbers))
    numbered = [replace(case, image=numbers.get((case.dataset, case.case_id))) for case in cases]
    return tuple(pictures[key] for key in numbers), numbered
