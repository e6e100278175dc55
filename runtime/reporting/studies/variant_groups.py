"""Group cells of the same images and classes: a model with several prompt sets, a family in several input sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...results.comparability import check_protocols
from ...results.comparing.cell_variants import Variant, Variants, side_by_side
from .material import Material
from .study_cell import StudyCell


def group_variants(
    materials: Sequence[Material], key: Callable[[StudyCell], str]
) -> tuple[list[tuple[str, str, tuple[Variant, ...]]], list[str]]:
    """Groups (key, dataset title, variants) of at least two cells, and a sentence for every cell without a second one.

    Baselines, which have neither prompts nor a resolution, belong to no group. Raises RunError for cells of several
    protocols, whose numbers cannot be subtracted.
    """
    models = [(material, cell) for material in materials for cell in material.cells if cell.weights != "baseline"]
    check_protocols(
        ", ".join(str(material.path) for material in materials),
        [
            (f"{cell.model} on {cell.dataset}" + (f" in {material.path}" if len(materials) > 1 else ""), cell.rows)
            for material, cell in models
        ],
        "evaluate both with the same --protocol, or choose cells of one protocol with --model and --dataset",
    )
    found: dict[tuple[str, str], list[tuple[Material, StudyCell]]] = {}
    names: dict[str, str] = {}
    contents: dict[str, str] = {}
    for material, cell in models:
        # The same dataset: one name in several runs, or equal contents under several names.
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
            alone.append(f"{members[0][1].model} on {title} has no second variant to compare with.")
            continue
        labelled = zip(_labels(members), members, strict=True)
        groups.append((name, title, tuple(Variant(label, cell.rows, cell.pairs) for label, (_, cell) in labelled)))
    return groups, alone


def _labels(members: Sequence[tuple[Material, StudyCell]]) -> list[str]:
    """The shortest names that distinguish the cells: model, dataset's configured name, run directory, in that order."""
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


def beside(key: str, title: str, variants: Sequence[Variant], material: Material) -> Variants | str:
    """The variants on the rows that all of them have, or a sentence why there are none. Raises RunError as
    `side_by_side`."""
    found = side_by_side(key, title, variants, material.sampling)
    if found is None:
        return f"{key} on {title}: {', '.join(v.label for v in variants)} share no image and class with one region."
    return found
