"""`xbench-fast merge`: the shards of an evaluation -> one run directory."""

from __future__ import annotations

from pathlib import Path

import click

from ...engines.commands import echo
from .options import Output, json_option

__all__ = ["merge"]


@click.command("merge")
@click.argument("shards", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Run directory of the whole.")
@json_option
def merge(shards: tuple[Path, ...], out: Path, output: Output) -> int:
    """Put the shards of an evaluation together.

    SHARDS are the directories that `xbench-fast eval --shard I/N` wrote, all N of them, in any order. The result is
    that of an evaluation in one piece: a later eval with the same --out computes nothing again. Cells that a shard has
    not finished are named and left out; merge again when it has. The shards themselves stay as they are.
    """
    from ..evaluation.progress import progress_for
    from ..results.merging import merge_shards
    from ..results.run_json import read_run

    progress = progress_for(output.console())
    outcome = merge_shards(shards, out, progress.say)
    done = outcome.computed + outcome.reused
    progress.say(
        f"{out}: {done} cell{'' if done == 1 else 's'} merged ({outcome.reused} of them before), "
        f"{len(outcome.skipped)} skipped, {len(outcome.failed)} not merged"
    )
    for model, dataset, reason in outcome.failed:
        echo(f"Error: {model} on {dataset}: {reason}", err=True)
    if done:
        progress.say(f"next: xbench-fast report {out}")
    output.write({"run": str(out), "cells": outcome.to_json(read_run(out)["cells"])})
    return 1 if outcome.failed or not done else 0
