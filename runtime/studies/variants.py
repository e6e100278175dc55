"""Cells of the same images and classes side by side: a model with several prompt sets, a family in several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...metrics_gpu.statistics.bootstrap import Draws
from ...metrics_gpu.sweep.counts import Counts
from ..results.patients import dataset_patients
from .material import Material, StudyCell

__all__ = ["Aligned", "Variant", "aligned", "group_variants"]


@dataclass(frozen=True, eq=False)
class Variant:
    """A cell under the name it has among its like."""

    label: str
    cell: StudyCell


@dataclass(frozen=True, eq=False)
class Aligned:
    """The P pairs and N images that all variants of a group share, and the patients they were drawn from.

    key, title: what the variants have in common, a model or family and a dataset. classes: those of all variants.
    class_of, patient_of, half_of: of the pairs; counts and hits: per variant. labels int8 [N, C], logits: per variant
    float32 [N, C], None for one without scores. left_out: per variant its pairs that another does not have.
    """

    key: str
    title: str
    variants: tuple[Variant, ...]
    classes: tuple[str, ...]
    class_of: NDArray[np.intp]
    patient_of: NDArray[np.intp]
    half_of: NDArray[np.int8]
    draws: Draws
    counts: tuple[Counts, ...]
    hits: tuple[NDArray[np.float64], ...]
    image_patients: NDArray[np.intp]
    labels: NDArray[np.int8]
    logits: tuple[NDArray[np.float32] | None, ...]
    left_out: tuple[int, ...]


def group_variants(
    materials: Sequence[Material], key: Callable[[StudyCell], str]
) -> tuple[list[tuple[str, str, tuple[Variant, ...]]], list[str]]:
    """Groups (key, dataset title, variants) of at least two cells, and a sentence for every cell without its like.

    Baselines, which have neither prompts nor a resolution, belong to no group.
    """
    found: dict[tuple[str, str], list[tuple[Material, StudyCell]]] = {}
    names: dict[str, str] = {}
    contents: dict[str, str] = {}
    for material in materials:
        for cell in material.cells:
            if cell.weights != "baseline":
                # One dataset: of one name in several runs, or of one content under several names.
                same = names.get(cell.dataset) or contents.get(cell.digest or "") or cell.dataset
                names[cell.dataset] = same
                if cell.digest:
                    contents.setdefault(cell.digest, same)
                found.setdefault((key(cell), same), []).append((material, cell))
    groups, alone = [], []
    for (name, _), members in found.items():
        title = members[0][1].plain_title
        if any(cell.ambiguous for _, cell in members):
            title += f" ({', '.join(dict.fromkeys(cell.dataset for _, cell in members))})"
        if len(members) < 2:
            alone.append(f"{members[0][1].model} on {title} has nothing to stand beside it.")
            continue
        groups.append((name, title, tuple(map(Variant, _labels(members), (cell for _, cell in members)))))
    return groups, alone


def _labels(members: Sequence[tuple[Material, StudyCell]]) -> list[str]:
    """The shortest names that tell the cells apart: model, dataset's configured name, run directory, in that order."""
    parts = [
        [cell.model for _, cell in members],
        [cell.dataset for _, cell in members],
        [material.path.resolve().name for material, _ in members],
        [str(material.path) for material, _ in members],
    ]
    used = [part for part in parts[:3] if len(set(part)) > 1]
    labels = [" / ".join(texts) for texts in zip(*used, strict=True)] if used else parts[3]
    if len(set(labels)) < len(labels):
        labels = [" / ".join(texts) for texts in zip(parts[0], parts[1], parts[3], strict=True)]
    return [
        f"{label} ({labels[:i].count(label) + 1})" if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]


def aligned(key: str, title: str, variants: Sequence[Variant], material: Material) -> Aligned | str:
    """The shared pairs and images of a group, or the sentence that says why there are none.

    A pair is shared if every variant has it with a region of the same number of pixels: another region is another
    question. `material` says how to resample. Raises RunError for variants that were swept by different protocols,
    whose numbers are not comparable.
    """
    cells = [variant.cell for variant in variants]
    for variant in variants[1:]:
        _check_protocols(key, title, variants[0], variant)
    sampling = material.sampling
    classes = tuple(name for name in cells[0].classes if all(name in cell.classes for cell in cells))
    patients = dataset_patients(title, [cell.rows for cell in cells], sampling.replicates, sampling.seed)
    pairs = [_pairs(cell) for cell in cells]
    shared = [pair for pair in pairs[0] if all(pair in other for other in pairs[1:])]
    if not shared:
        return f"{key} on {title}: {', '.join(v.label for v in variants)} share no image and class with one region."
    index = [np.array([found[pair] for pair in shared], np.intp) for found in pairs]
    first = cells[0]
    chosen = patients.of_images(first.rows)[first.pairs.image_of][index[0]]
    images = [{first_id: n for n, first_id in enumerate(_image_ids(cell))} for cell in cells]
    common = [name for name in images[0] if all(name in other for other in images[1:])]
    rows = [np.array([found[name] for name in common], np.intp) for found in images]
    columns = [[cell.classes.index(name) for name in classes] for cell in cells]
    assert patients.draws is not None  # `Sampling` has at least one replicate
    return Aligned(
        key=key,
        title=title,
        variants=tuple(variants),
        classes=classes,
        class_of=np.array([classes.index(name) for _, name, _ in shared], np.intp),
        patient_of=chosen,
        half_of=patients.half[chosen],
        draws=patients.draws,
        counts=tuple(cell.counts.take(chosen_pairs) for cell, chosen_pairs in zip(cells, index, strict=True)),
        hits=tuple(cell.hits[chosen_pairs] for cell, chosen_pairs in zip(cells, index, strict=True)),
        image_patients=patients.of_images(first.rows)[rows[0]],
        labels=first.rows.labels[rows[0]][:, columns[0]],
        logits=tuple(
            cell.rows.logits[row][:, column] if cell.scored else None
            for cell, row, column in zip(cells, rows, columns, strict=True)
        ),
        left_out=tuple(cell.n - len(shared) for cell in cells),
    )


def _check_protocols(key: str, title: str, one: Variant, two: Variant) -> None:
    protocols = one.cell.rows.protocol, two.cell.rows.protocol
    if protocols[0] != protocols[1]:
        raise RunError(
            f"{key} on {title}: {one.label} was evaluated by protocol '{protocols[0]}', {two.label} by "
            f"'{protocols[1]}', and their numbers cannot be compared; evaluate both with the same --protocol."
        )


def _pairs(cell: StudyCell) -> dict[tuple[str, str, int], int]:
    names = [cell.classes[index] for index in cell.class_of]
    keys = zip(cell.case_ids, names, cell.counts.region.tolist(), strict=True)
    return {pair: place for place, pair in enumerate(keys)}


def _image_ids(cell: StudyCell) -> list[str]:
    return [cell.rows.case_ids[index] for index in cell.rows.case_of]
