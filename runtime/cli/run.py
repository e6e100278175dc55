"""`xbench-fast run`: changes of a run directory that need no evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...engines.commands import LazyGroup, echo
from .completing import RUN_DATASETS, RUN_MODELS
from .options import Output, json_option

__all__ = ["run"]


@click.group("run", cls=LazyGroup)
def run() -> None:
    """Change a run directory: `remove` takes cells out of it."""


@run.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--model", required=True, shell_complete=RUN_MODELS, help="Model whose cells are removed.")
@click.option("--dataset", shell_complete=RUN_DATASETS, help="Dataset of the cell.  [default: all of the model]")
@click.option("--yes", is_flag=True, help="Remove results too; only eval computes them again.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@json_option
def remove(folder: Path, model: str, dataset: str | None, yes: bool, dry_run: bool, output: Output) -> int:
    """Remove the cells of a model from the run directory RUN: entries in run.json, results, parts and tracebacks.

    A cell without a result, as one that was skipped because of a mistyped name, is removed at once. Where one has a
    result or parts of it, --yes must be given. Reports and studies that were written before stay as they are.
    """
    from ..results.removal import find_cells, remove_cells, stored_rows

    found = find_cells(folder, model, dataset)
    kept = [entry for entry in found if stored_rows(folder, entry)]
    if not dry_run and (yes or not kept):
        found = remove_cells(folder, model, dataset)
        output.write({"run": str(folder), "removed": _rows(found), "kept": []})
        _tell(output, "removed", found)
        return 0
    output.write({"run": str(folder), "removed": [], "kept": _rows(found)})
    _tell(output, "would be removed", found)
    if dry_run:
        return 0
    echo(f"Error: nothing was removed: {len(kept)} of {len(found)} have a result or parts of one; add --yes.", err=True)
    return 1


def _rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: entry.get(name) for name in ("model", "dataset", "state", "reason", "file")} for entry in entries]


def _tell(output: Output, what: str, entries: Sequence[Mapping[str, Any]]) -> None:
    for entry in entries:
        output.say(f"{what}: {entry['model']} on {entry['dataset']} ({entry['state']})")
