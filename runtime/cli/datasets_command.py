"""`xbench-fast datasets`: readers and configured folders, and the audit of one dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...engines.commands import LazyGroup
from ...engines.errors import XBenchError
from ..host.config import DatasetConfig
from ..host.paths import has_folder
from .completing import DATASETS
from .shared_options import Output, config_option, data_options, json_option, resolve_config


@click.group(cls=LazyGroup, invoke_without_command=True)
@data_options
@config_option
@json_option
@click.pass_context
def datasets(
    ctx: click.Context, data: tuple[str, ...], data_options: tuple[str, ...], config_file: Path | None, output: Output
) -> int:
    """List known readers and configured datasets; `check NAME` audits one."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = (config_file, data, data_options, output)
        return 0
    from ..data.datasets.dataset_registry import DATASETS

    config = resolve_config(config_file, (), data, data_options)
    rows = [_describe(config.datasets[name]) for name in config.datasets]
    readers = DATASETS.names()
    output.write({"readers": readers, "datasets": rows})
    if not output.piped:
        _print(readers, rows)
    return 0


@datasets.command()
@click.argument("name", shell_complete=DATASETS)
@click.option("--decode", is_flag=True, help="Read every image too.")
@data_options
@config_option
@json_option
@click.pass_obj
def check(
    above: tuple[Path | None, tuple[str, ...], tuple[str, ...], Output],
    name: str,
    decode: bool,
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
) -> int:
    """Audit the dataset NAME: files, annotations, regions, and the counts of the official release."""
    # The flags may stand before or after the word check.
    config = resolve_config(config_file or above[0], (), above[1] + data, above[2] + data_options)
    from ..data.datasets.checking.audit import audit
    from ..evaluation.pairing import select_datasets
    from ..results.loaded_dataset import load_dataset
    from .audit_view import show_audit

    (chosen,) = select_datasets(config, [name])
    return show_audit(audit(load_dataset(chosen).dataset, decode=decode), output.or_else(above[3]))


def _describe(item: DatasetConfig) -> dict[str, Any]:
    from ..results.loaded_dataset import load_dataset

    row: dict[str, Any] = {
        "name": item.name,
        "root": str(item.root),
        "reader": item.reader,
        "found": has_folder(item.root),
    }
    if not row["found"]:
        return row
    try:
        loaded = load_dataset(item)
    except XBenchError as error:
        return {**row, "error": str(error)}
    cases = loaded.dataset.cases()
    pairs = sum(len(case.regions) for case in cases)
    return {
        **row,
        "title": loaded.dataset.title,
        "cases": len(cases),
        "classes": len(loaded.dataset.classes),
        "pairs": pairs,
    }


def _print(readers: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()
    console.print(shown(f"readers: {', '.join(readers)}, or module:Class, or file.py:Class"), soft_wrap=True)
    if not rows:
        console.print(
            shown("no dataset is configured; use --data NAME=PATH or [datasets.NAME] in xbench.toml"), soft_wrap=True
        )
        return
    table = Table()
    for title in ("name", "reader", "root", "state", "cases", "classes", "pairs with a region"):
        table.add_column(title, overflow="fold")
    for row in rows:
        state = "broken" if "error" in row else "found" if row["found"] else "not found"
        numbers = [str(row.get(key, "-")) for key in ("cases", "classes", "pairs")]
        table.add_row(*map(shown, (row["name"], row["reader"], row["root"], state, *numbers)))
    console.print(table)
    for row in rows:
        if "error" in row:
            console.print(shown(f"{row['name']}: {row['error']}"), soft_wrap=True)
