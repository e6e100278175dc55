"""Results of several protocols -> one block for each: numbers of different protocols are not comparable."""

from __future__ import annotations

from dataclasses import replace

from ..comparability import protocols_in
from .run_numbers import Results

__all__ = ["split_by_protocol"]


def split_by_protocol(results: Results) -> tuple[Results, ...]:
    """The results of each protocol that a finished cell was scored by; the given ones if there is only one.

    A model or dataset without any finished cell belongs to the first block.
    """
    names = protocols_in(cell.protocol for cell in results.finished)
    return tuple(_block(results, name, names) for name in names) if len(names) > 1 else (results,)


def _block(results: Results, name: str, names: tuple[str, ...]) -> Results:
    mine = {key: cell for key, cell in results.cells.items() if cell.protocol == name}
    elsewhere = {key: cell.protocol for key, cell in results.cells.items() if key not in mine}
    reasons = {key: f"evaluated by protocol {other}, which has a table of its own" for key, other in elsewhere.items()}
    first = name == names[0]

    def shown(place: int, each: str) -> bool:
        return any(key[place] == each for key in mine) or (first and not any(key[place] == each for key in elsewhere))

    return replace(
        results,
        models=tuple(model for model in results.models if shown(0, model)),
        datasets=tuple(dataset for dataset in results.datasets if shown(1, dataset)),
        cells=mine,
        rows={key: results.rows[key] for key in mine},
        pairs={key: results.pairs[key] for key in mine},
        unfinished={**results.unfinished, **reasons},
        protocol=name,
        protocols=names,
        whole=results.cells,
    )
