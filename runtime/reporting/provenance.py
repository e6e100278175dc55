"""What a reader must know to trust or repeat the numbers: what was evaluated, and from what it was made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from ..data.datasets.region_boxes import FAULTS
from ..results.choices import too_few_replicates
from ..results.numbers.cell_values import CellValues
from ..results.numbers.run_numbers import Results
from ..results.selected_pairs import unnamed_lines
from .notes import not_asked_notes, prompt_summary, source_notes
from .tables.metric_names import NONE
from .tables.stamps import cell_stamps
from .tables.table import Column, Item, Table

if TYPE_CHECKING:
    from .box_scores import BoxScores

COVERAGE = ("cases", "patients", "missing", "unreadable", "pairs", "left_out", "degenerate", "sub_pixel", *FAULTS)

_COVERAGE = (
    "model",
    "dataset",
    "cases",
    "patients",
    "missing",
    "unreadable",
    "pairs",
    "left out",
    "degenerate maps",
    "sub-pixel regions",
    "outside",
    "clipped",
    "empty",
    "engine",
    "protocol",
    "state",
)

_COLUMNS = (
    "model",
    "dataset",
    "weights",
    "bundle",
    "prompts",
    "prompt status",
    "data",
    "engine",
    "decoder",
    "parity",
    "protocol",
    "code",
    "result",
)
_SHORT = 12  # characters of a hash that a table shows
_HASH = re.compile(r"[0-9a-f]{16,}")


def provenance(results: Results, run: Mapping[str, Any]) -> dict[str, str]:
    """Facts about the whole run, in words."""
    machine, choices = run["machine"], results.choices
    cells = sum(pair not in results.skipped for pair in product(results.models, results.datasets))
    skipped = "; ".join(f"{model} on {dataset}: {why}" for (model, dataset), why in results.skipped.items())
    libraries = ", ".join(f"{name} {version}" for name, version in machine.get("libraries", {}).items())
    return {
        "xbench-fast": str(run["code_version"]),
        "run": f"begun {run['created']}, last written {run['updated']}",
        "cells": f"{len(results.cells)} of {cells} (model, dataset) pairs finished",
        **({"skipped": skipped} if skipped else {}),
        "processor": f"{machine['cpu']}, {machine['cores']} cores",
        "system": f"{machine.get('system', 'unknown')}, Python {machine.get('python', 'unknown')}",
        "libraries": libraries or "unknown",
        "intervals": "none"
        if not choices.replicates
        else too_few_replicates(choices.replicates)
        or f"{choices.replicates} resamples of the patients of each dataset, seed {choices.seed}",
        "options": "; ".join(choices.told) or "the defaults (docs/metrics.md §14)",
    }


def hashes(results: Results, run: Mapping[str, Any]) -> list[dict[str, str]]:
    """The origin of each finished cell, with complete hashes."""
    entries = {(entry["model"], entry["dataset"]): entry for entry in run["cells"].values()}
    rows = []
    for cell in results.finished:
        entry = entries[cell.model, cell.dataset]
        made = entry.get("ingredients", {})
        data = made.get("dataset") or [None]
        told = (
            f"{cell.weights} ({cell.weights_source})" if cell.weights_source else cell.weights,
            made.get("bundle"),
            made.get("prompt_set"),
            prompt_summary(cell.prompt_status.values()),
            data[-1],
            cell.engine,
            made.get("decoder"),
            entry.get("parity"),
            cell.protocol,
            entry.get("code_version"),
            entry.get("key"),
        )
        row = (cell.model, cell.title, *(NONE if item in (None, "") else str(item) for item in told))
        rows.append(dict(zip(_COLUMNS, row, strict=True)))
    return rows


def provenance_table(results: Results, run: Mapping[str, Any]) -> Table:
    """The origin of each finished cell; hashes are shortened, run.json and report.json hold the complete ones."""
    rows = [
        tuple(text[:_SHORT] if _HASH.fullmatch(text) else text for text in row.values()) for row in hashes(results, run)
    ]
    threads: dict[int, list[str]] = {}
    entries = {(entry["model"], entry["dataset"]): entry for entry in run["cells"].values()}
    for cell in results.finished:
        for count in entries[cell.model, cell.dataset].get("threads", []):
            threads.setdefault(count, []).append(f"{cell.model} on {cell.title}")
    told = "; ".join(f"{count}: {', '.join(names)}" for count, names in sorted(threads.items()))
    other = f"threads of the engine differ, so that equal inputs can give other last bits: {told}"
    notes = (
        "bundle, prompts, data, result: the first signs of their sha256; data covers annotations, labels and the "
        "names of the images; result is the hash of everything that decides a cell's rows",
        *source_notes(results.finished),
        *((other,) if len(threads) > 1 else ()),  # the last bits depend on it on a CPU
    )
    columns = tuple(map(Column, _COLUMNS))
    stamps = cell_stamps(results.finished)
    what = "The origin of every result: weights, prompts, data and code, by the first signs of their hashes."
    return Table("Provenance", columns, tuple(rows), stamps, notes, "provenance", detail=True, lead=2, caption=what)


_OF_BOXES = (
    "answered",
    "silent",
    "unparsable",
    "no line",
    "illegal",
    "outside",
    "clipped",
    "duplicate",
    "hallucinated",
)
_BOX_NOTE = (
    "of predicted boxes: silent: no box; unparsable: a box was meant, none could be read; no line: scored as silent; "
    "illegal and outside boxes are dropped, clipped ones are cut at the image; duplicate: about a true box that "
    "another one hits; hallucinated: for absent classes that were asked"
)


def coverage(results: Results, boxes: Sequence[BoxScores] = ()) -> Table:
    """What was evaluated and what could not be. boxes: those of cells of predicted boxes."""
    told = {(found.model, found.dataset): found for found in boxes}
    own = len(_OF_BOXES) if boxes else 0
    rows: list[tuple[Item, ...]] = []
    for model in results.everyone:
        for dataset in results.datasets:
            cell = results.cells.get((model, dataset))
            if (model, dataset) in results.skipped:
                continue
            if cell is None:
                reason = results.unfinished.get((model, dataset), "not evaluated")
                rows.append((model, results.title(dataset), *([NONE] * (len(_COVERAGE) - 3 + own)), reason))
                continue
            later = cell.rows.attempt
            state = f"done; {later}" if later else "done"
            found = told.get((model, dataset))
            counts = [NONE if count is None else str(count) for count in cell_coverage(cell, found).values()]
            counts += [NONE] * (own if found is None else 0)
            rows.append((model, cell.title, *counts, cell.engine, cell.protocol, state))
    answers = [Column(name, "pairs" if place < 4 else "boxes") for place, name in enumerate(_OF_BOXES[:own])]
    columns = (*map(Column, _COVERAGE[:-3]), *answers, *map(Column, _COVERAGE[-3:]))
    what = (
        "What was evaluated: cases, patients and pairs of every model on every dataset, and what could not be counted."
    )
    notes, stamps = tuple(_coverage_notes(results, bool(boxes))), cell_stamps(results.finished)
    return Table("Coverage", columns, tuple(rows), stamps, notes, "coverage", lead=2, caption=what)


def _coverage_notes(results: Results, boxed: bool) -> Iterator[str]:
    yield from not_asked_notes(results.finished)
    yield (
        "pairs: (image, class) with a region in a readable image; left out: pairs that the options or the protocol do "
        f"not count, {'of boxes, that have no answer that counts, ' * boxed}or of a baseline, that the models do "
        "not have; "
        "a degenerate map is constant or not finite and counts as a miss; a sub-pixel region would have "
        "vanished on the 224 grid and is one pixel there; outside: regions outside their image, which are no pairs; "
        "clipped: regions partly outside, which count with the part inside; empty: regions without a pixel, which are "
        "no pairs"
    )
    if boxed:
        yield _BOX_NOTE
    if results.finished and not any(cell.recognition.names for cell in results.finished):
        yield f"no table of recognition, as none of {len(results.finished)} results has scores of findings"
    yield from unnamed_lines((cell.title, cell.rows.unnamed) for cell in results.finished)
    yield from results.conflicts
    yield from dict.fromkeys(
        f"{results.title(dataset)}: warning: {text}"
        for (_, dataset), cell in results.cells.items()
        for text in cell.rows.entry.get("warnings", {}).values()
    )


def cell_coverage(cell: CellValues, boxes: BoxScores | None = None) -> dict[str, int | None]:
    """The numbers of `COVERAGE`, and of predicted boxes those of their answers; None: not defined."""
    pairs = (cell.n, cell.skipped, cell.grounding.count("degenerate"), sum(cell.sub_pixel))
    regions = (cell.rows.faults.get(kind, 0) for kind in FAULTS)
    counts = (cell.cases, cell.patients, cell.rows.missing, cell.rows.unreadable, *pairs, *regions)
    found: dict[str, int | None] = dict(zip(COVERAGE, counts, strict=True))
    return found if boxes is None else {**found, "left_out": cell.skipped + boxes.stored.left_out, **boxes.coverage}
