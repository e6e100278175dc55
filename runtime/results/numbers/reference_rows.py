"""Baselines beside models: a reference row rests on the pairs of the models, or it is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..comparability import Basis, find_basis, pair_keys
from ..load_rows import CellRows
from ..selected_pairs import ScoredPairs

Key = tuple[str, str]


@dataclass
class References:
    """The pairs of all cells, those of baselines cut to the pairs of the models beside them, with their bases.

    left_out: why a baseline has no numbers; notes: a sentence for each baseline that is cut.
    """

    pairs: dict[Key, ScoredPairs]
    bases: dict[Key, Basis]
    left_out: dict[Key, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def rest_on_models(
    rows: Mapping[Key, CellRows], pairs: Mapping[Key, ScoredPairs], bases: Mapping[Key, Basis] | None = None
) -> References:
    """Cuts every baseline to the pairs of the models of its dataset and protocol: those that most of them have.

    bases: of all cells; without them they are computed if there is a baseline.
    It is left as it is if there is no such model, or if no two of several models have the same pairs and it has all of
    them; it is left out if it lacks one of the pairs, or has another region there. One that is made of other patients
    has no pair of a class of one patient, and may lack these.
    """
    if bases is None:
        alone = not any(map(_is_baseline, rows.values()))
        bases = {} if alone else {key: find_basis(cell, pairs[key]) for key, cell in rows.items()}
    found = References(dict(pairs), dict(bases))
    for key, cell in rows.items():
        if not _is_baseline(cell):
            continue
        models = [
            other
            for other, one in rows.items()
            if other[1] == key[1] and not _is_baseline(one) and bases[other].protocol == bases[key].protocol
        ]
        groups = Counter(bases[other].pairs.get("") for other in models if len(pairs[other].counts))
        if not groups or (len(groups) == 1 and bases[key].pairs.get("") in groups):
            continue
        most, count = groups.most_common(1)[0]
        wanted = [other for other in models if bases[other].pairs.get("") == most]
        if count == 1 and len(groups) > 1:
            wanted = models
        _cut(found, key, cell, [(rows[other], pairs[other]) for other in wanted])
    return found


def _cut(found: References, key: Key, cell: CellRows, models: list[tuple[CellRows, ScoredPairs]]) -> None:
    """Cuts a baseline to the pairs of these models if they have the same; with several, it must have those of all."""
    scored = found.pairs[key]
    own = pair_keys(cell, scored)
    title = f"{key[0]} on {cell.entry['title']}"
    alone: set[str] = set()
    if cell.entry.get("of") == "other patients":
        alone = {name for other, theirs in models for name in _classes(other, theirs)} - set(_classes(cell, scored))
    theirs = [_keys_without(*model, alone) for model in models]
    if not all(np.isin(wanted, own).all() for wanted in theirs):
        found.left_out[key] = (
            "left out: it does not have all pairs, with the same regions, that the models have, or names other "
            "patients; evaluate it again"
        )
        return
    if alone:
        found.notes.append(f"{title}: without {', '.join(sorted(alone))}, which no second patient has")
    keep = np.isin(own, theirs[0])
    if keep.all() or any(len(wanted) != len(theirs[0]) or not np.isin(wanted, theirs[0]).all() for wanted in theirs):
        return
    found.pairs[key] = scored.take(np.flatnonzero(keep))
    found.bases[key] = find_basis(cell, found.pairs[key])
    found.notes.append(f"{title}: on {int(keep.sum()):,} of its {len(keep):,} pairs, those of the models")


def _classes(cell: CellRows, scored: ScoredPairs) -> list[str]:
    return [cell.findings[place] for place in np.unique(scored.class_of)]


def _keys_without(cell: CellRows, scored: ScoredPairs, classes: set[str]) -> NDArray[np.uint64]:
    """The keys of the pairs of other classes than these."""
    kept = np.array([name not in classes for name in cell.findings], np.bool_)
    return pair_keys(cell, scored)[kept[scored.class_of]]


def _is_baseline(cell: CellRows) -> bool:
    return bool(cell.entry["weights"] == "baseline")
