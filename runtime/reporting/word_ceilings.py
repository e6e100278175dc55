"""What the best words could get on the pairs of a cell, beside tests of words against others (docs/words.md §7)."""

from __future__ import annotations

from collections.abc import Iterable

from ..results.load_rows import CellRows, StoredRun
from .tables.metric_names import percent


def ceiling_notes(run: StoredRun, cells: Iterable[CellRows]) -> tuple[str, ...]:
    """A sentence on each cell of words. Raises RunError when a result file cannot be read."""
    words = [cell for cell in cells if "words" in cell.entry.get("boxes", {})]
    if not words:
        return ()
    from ...metrics_gpu.zones.bounds import BOUNDS, NUMBERS
    from ...metrics_gpu.zones.zone_scores import class_means_of
    from ..results.stored_boxes import load_boxes

    notes = []
    for cell in words:
        stored = load_boxes(run, cell).words
        assert stored is not None
        best = stored.bounds[:, BOUNDS.index("ceiling")]
        columns = {name: best[:, number] for number, name in enumerate(NUMBERS)}
        means = class_means_of(columns, cell.class_of, len(cell.findings), None, cell.case_of[cell.image_of])
        dice, iou, pointing = (percent(float(means[name][1][0])) for name in NUMBERS)
        notes.append(
            f"{cell.model} on {cell.entry['title']}: words reach at most Dice {dice}, IoU {iou} and Point {pointing} "
            "(ceiling of single statements), maps and boxes 100"
        )
    return tuple(dict.fromkeys(notes))
