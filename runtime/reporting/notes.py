"""The lines below tables."""

from __future__ import annotations

from collections.abc import Sequence

from .paper.printed import MARK
from .results import Results
from .stamps import HONEST, OPTIMISTIC
from .values import CellValues

__all__ = ["FLOOR", "FLOOR_NOTE", "best_notes", "flags", "interval_notes", "optimistic", "paper_notes", "search_of"]

FLOOR = "all-ones"
FLOOR_NOTE = (
    f"{FLOOR}: the value of a mask that covers the whole image; its IoU is the chance level of Point. Best-threshold "
    "numbers cannot fall below it if the search begins at 0"
)
_SEARCHES = {
    "per_class": "the best threshold of each class of a dataset, by mean Dice",
    "per_dataset": "one threshold for all classes of a dataset, the best for the mean of their Dice",
    "per_model": "one threshold for all datasets of a model, the best for the mean of their Dice",
    "per_image": "every pair at its own best threshold, which nobody could know",
    "cross_fit": "the threshold of each class is found on the other half of the patients",
}


def optimistic(cells: Sequence[CellValues]) -> bool:
    """Whether any best threshold was chosen on the pairs it is scored on."""
    return any(cell.grounding.options.label == "optimistic" for cell in cells)


def search_of(cells: Sequence[CellValues]) -> str:
    """How best thresholds were sought, in words; all searches that occur."""
    units = dict.fromkeys(cell.grounding.options.unit for cell in cells)
    return "; ".join(_SEARCHES[unit] for unit in units) or _SEARCHES["per_class"]


def best_notes(cells: Sequence[CellValues]) -> tuple[str, ...]:
    """What the stars and the honest columns mean."""
    honest = f"honest: {HONEST}"
    if not optimistic(cells):
        return (f"Dice and IoU: {search_of(cells)} ({HONEST})",)
    return (f"* {OPTIMISTIC}: {search_of(cells)}; with few pairs its interval leans upwards", honest)


def interval_notes(results: Results, cells: Sequence[CellValues]) -> tuple[str, ...]:
    """How intervals were made, and the choices that are not the defaults."""
    drawn = [cell.spread for cell in cells if cell.spread is not None]
    choices = results.choices
    protocols = sorted({cell.protocol for cell in cells if cell.protocol != "default"})
    lines = tuple(f"protocol {name}" for name in protocols) + choices.told
    if not drawn:
        return lines
    return (
        f"[low, high]: 95 % interval over {choices.replicates} resamples of the patients (seed {choices.seed}); "
        "thresholds are chosen anew in each; Wilson: of fewer than 30 pairs",
        *lines,
    )


def paper_notes(cells: Sequence[CellValues], shown: bool) -> tuple[str, ...]:
    """What the paper's numbers are worth here; nothing if none is `shown`."""
    if not shown:
        return ()
    different = [cell.model for cell in cells if cell.competes and cell.weights != "published"]
    line = "paper: as XBench (arXiv 2510.19599) prints it, with the difference to it in points"
    if different:
        line += "; no difference is given for weights other than published ones, or for a part of a dataset"
    return (line,)


def flags(found: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """What is known against numbers of the paper; `found` are (where, what)."""
    return tuple(f"{MARK} {where}: {what}" for where, what in dict.fromkeys(found))
