"""run.json -> what a reader must know to trust or repeat the numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..results.numbers.run_numbers import Results
from ..tables.metrics import NONE
from ..tables.stamps import cell_stamps
from ..tables.table import Column, Table
from .notes import prompt_summary, source_notes

__all__ = ["hashes", "provenance", "provenance_table"]

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
    cells = len(results.models) * len(results.datasets)
    libraries = ", ".join(f"{name} {version}" for name, version in machine.get("libraries", {}).items())
    return {
        "xbench-fast": str(run["code_version"]),
        "run": f"begun {run['created']}, last written {run['updated']}",
        "cells": f"{len(results.cells)} of {cells} (model, dataset) pairs finished",
        "processor": f"{machine['cpu']}, {machine['cores']} cores",
        "system": f"{machine.get('system', 'unknown')}, Python {machine.get('python', 'unknown')}",
        "libraries": libraries or "unknown",
        "intervals": f"{choices.replicates} resamples of the patients of each dataset, seed {choices.seed}"
        if choices.replicates
        else "none",
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
    notes = (
        "bundle, prompts, data, result: the first signs of their sha256; data covers annotations, labels and the "
        "names of the images; result is the hash of everything that decides a cell's rows",
        *source_notes(results.finished),
        *_thread_notes(results, run),
    )
    columns = tuple(map(Column, _COLUMNS))
    stamps = cell_stamps(results.finished)
    what = "The origin of every result: weights, prompts, data and code, by the first signs of their hashes."
    return Table("Provenance", columns, tuple(rows), stamps, notes, "provenance", detail=True, lead=2, caption=what)


def _thread_notes(results: Results, run: Mapping[str, Any]) -> tuple[str, ...]:
    """A line if cells were computed with different numbers of threads, on which the last bits depend on a CPU."""
    entries = {(entry["model"], entry["dataset"]): entry for entry in run["cells"].values()}
    found: dict[int, list[str]] = {}
    for cell in results.finished:
        for count in entries[cell.model, cell.dataset].get("threads", []):
            found.setdefault(count, []).append(f"{cell.model} on {cell.title}")
    if len(found) < 2:
        return ()
    told = "; ".join(f"{count}: {', '.join(names)}" for count, names in sorted(found.items()))
    return (f"threads of the engine differ, so that equal inputs can give other last bits: {told}",)
