"""`xbench-fast run` and `merge`: changes of run directories that need no evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ...engines.commands import LazyGroup, echo
from .options.completing import RUN_DATASETS, RUN_MODELS
from .options.shared_options import Output, datasets_option, json_option, models_option


@click.group("run", cls=LazyGroup)
def run() -> None:
    """Change a run directory: `remove` takes cells out of it."""


@run.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@models_option("Model whose cells are removed.", RUN_MODELS, required=True)
@datasets_option("Dataset of the cells.", RUN_DATASETS, "all of the model")
@click.option("--yes", is_flag=True, help="Remove results too. Only eval computes them again.")
@click.option("--dry-run", is_flag=True, help="Print the cells that would be removed, and remove nothing.")
@json_option
def remove(
    folder: Path, models: tuple[str, ...], datasets: tuple[str, ...], yes: bool, dry_run: bool, output: Output
) -> int:
    """Remove the cells of models from the run directory RUN: entries in run.json, results, parts and tracebacks.

    A cell without a result, e.g. one that was skipped because of a mistyped name, is removed at once. A cell with a
    result or parts of one is removed only with --yes. Earlier reports and studies stay as they are.
    """
    from ..results.runs.removal import find_cells, remove_cells, stored_rows

    entries = find_cells(folder, models, datasets)
    kept = [entry for entry in entries if stored_rows(folder, entry)]
    if not dry_run and (yes or not kept):
        entries = remove_cells(folder, models, datasets)
        output.write({"run": str(folder), "removed": _rows(entries), "kept": []})
        _tell(output, "removed", entries)
        return 0
    output.write({"run": str(folder), "removed": [], "kept": _rows(entries)})
    _tell(output, "would be removed", entries)
    if dry_run:
        return 0
    echo(
        f"Error: nothing was removed: {len(kept)} of {len(entries)} have a result or parts of one; add --yes.", err=True
    )
    return 1


@click.command("merge")
@click.argument("shards", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Run directory of the whole."
)
@json_option
def merge(shards: tuple[Path, ...], out: Path, output: Output) -> int:
    """Put the shards of an evaluation together.

    SHARDS are all N directories that `xbench-fast eval --shard I/N` wrote, in any order. The result equals an
    evaluation in one piece: a later eval with the same --out computes nothing again. Unfinished cells of a shard are
    named and left out; merge again when they are finished. The shards stay as they are.
    """
    from ..evaluation.progress import progress_for
    from ..results.run_json import read_run
    from ..results.runs.merging import merge_shards

    progress = progress_for(output.console())
    outcome = merge_shards(shards, out, progress.say)
    done = outcome.computed + outcome.reused
    progress.say(
        f"{out}: {done} cell{'' if done == 1 else 's'} merged ({outcome.reused} of them before), "
        f"{len(outcome.skipped)} skipped, {len(outcome.failed)} not merged"
    )
    for model, dataset, reason in outcome.problems:
        echo(f"Error: {model} on {dataset}: {reason}", err=True)
    if done:
        progress.say(f"next: xbench-fast report {out}")
    output.write({"run": str(out), "cells": outcome.to_json(read_run(out)["cells"])})
    return 1 if outcome.problems or not done else 0


def _rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: entry.get(name) for name in ("model", "dataset", "state", "reason", "file")} for entry in entries]


def _tell(output: Output, what: str, entries: Sequence[Mapping[str, Any]]) -> None:
    for entry in entries:
        output.say(f"{what}: {entry['model']} on {entry['dataset']} ({entry['state']})")
