"""`xbench-fast models`: the bundles in the configured folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...engines.commands import echo
from ...engines.manifest import parity_summary
from ..host.options import EvaluationOptions
from .options.declared_options import options_of
from .options.shared_options import Output, config_option, json_option, resolve_config


@click.command()
@options_of(EvaluationOptions, "bundles")
@config_option
@json_option
def models(bundles: tuple[Path, ...], config_file: Path | None, output: Output) -> int:
    """List the bundles found: model, weights, grid, geometry, prompt sets, parity."""
    config = resolve_config(config_file, bundles)
    from ...engines.bundle import find_bundles

    rows = [_describe(path) for folder in config.bundles for path in find_bundles(folder)]
    damaged = sum("error" in row for row in rows)
    output.write(rows)
    if output.piped:
        return 1 if damaged else 0
    if not rows:
        where = ", ".join(str(folder) for folder in config.bundles) or "no folder is configured, use --bundles DIR"
        echo(f"No bundle was found ({where}); make one with xbench-export (its --list names the known models).")
        return 0
    _print(rows)
    return 1 if damaged else 0


def _describe(path: Path) -> dict[str, Any]:
    from ...engines.bundle import Bundle
    from ...engines.errors import BundleError

    try:
        bundle = Bundle.load(path)
    except BundleError as error:
        return {"name": path.name, "path": str(path), "error": str(error)}
    manifest = bundle.manifest
    return {
        "name": bundle.name,
        "path": str(path),
        "model": manifest.model,
        "variant": manifest.variant,
        "weights": manifest.weights,
        "grid": list(manifest.grid),
        "geometry": manifest.geometry.key,
        **({"resized": manifest.resized} if manifest.resized else {}),
        **({"fixed_findings": list(manifest.findings)} if manifest.findings else {}),
        "prompt_sets": {name: len(record.findings) for name, record in sorted(manifest.prompt_sets.items())},
        "parity": dict(manifest.parity),
        "digest": bundle.digest,
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()
    table = Table()
    for title in ("name", "model", "variant", "weights", "grid", "geometry", "prompt sets (findings)", "parity"):
        table.add_column(title, overflow="fold")
    for row in rows:
        if "error" not in row:
            sets = ", ".join(f"{name} ({count})" for name, count in row["prompt_sets"].items())
            cells = (row["name"], row["model"], row["variant"], row["weights"], "x".join(map(str, row["grid"])))
            geometry = ", ".join(filter(None, (row["geometry"], row.get("resized"))))
            table.add_row(*map(shown, (*cells, geometry, sets, parity_summary(row["parity"]))))
    if table.row_count:
        console.print(table)
    for row in rows:
        if "error" in row:
            console.print(shown(f"damaged: {row['error']}"), soft_wrap=True)
