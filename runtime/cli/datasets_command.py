"""`xbench-fast datasets`: readers and configured folders, and the audit of one dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engines.commands import LazyGroup
from ...engines.errors import XBenchError
from ..host.config import DatasetConfig
from ..host.paths import has_folder
from .options.completing import DATASETS
from .options.shared_options import Output, config_option, data_options, json_option, resolve_config

if TYPE_CHECKING:
    from ..data.datasets.checking.audit import Audit


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
@click.option("--decode", is_flag=True, help="Decode every image too.")
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


def show_audit(audit: Audit, output: Output) -> int:
    """Prints the audit and returns the exit status: 0 when it passed, 1 when there is something to act on."""
    output.write(audit.to_json())
    if not output.piped:
        _print_audit(audit)
    return 0 if audit.passed else 1


def _print_audit(audit: Audit) -> None:
    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()
    console.print(shown(f"{audit.title} ({audit.dataset})", style="bold"))
    if audit.card:
        console.print(shown(audit.card), soft_wrap=True)
    counts = Table("what", "number")
    for name, value in _audit_counts(audit):
        counts.add_row(name, str(value))
    console.print(counts)
    classes = Table("class", "positive", "negative", "unknown", "pairs with a region", "boxes")
    for name in audit.pairs_per_class:
        numbers = (audit.positives, audit.negatives, audit.unknown, audit.pairs_per_class, audit.boxes_per_class)
        classes.add_row(shown(name), *(str(column.get(name, 0)) for column in numbers))
    console.print(classes)
    if audit.checks:
        checks = Table("official count", "expected", "found", "")
        for check in audit.checks:
            state = "equal" if check.passed else "differs" if audit.is_official else "not the complete set"
            checks.add_row(shown(check.name), str(check.expected), str(check.found), state)
        console.print(checks)
    for title, lines in (
        ("warnings", audit.warnings),
        ("missing images", audit.missing),
        ("unreadable images", audit.unreadable_reasons),
        ("files without annotation", audit.unannotated),
        ("images of one content", audit.same_content_images),
        ("degenerate regions", audit.degenerate_regions),
        ("regions outside their image", audit.outside_regions),
        ("regions partly outside their image", audit.clipped_regions),
        ("boxes that probably belong to an image of another size", audit.misfit_regions),
        ("unknown classes", tuple(f"{name}: {count} times" for name, count in audit.unknown_classes.items())),
        ("notes", audit.note_texts),
    ):
        if lines:
            console.print(shown(f"{title}:", style="bold"))
            for line in lines:
                console.print(shown(f"  {line}"), soft_wrap=True)
    console.print(shown("passed" if audit.passed else "not passed", style="bold"))


def _audit_counts(audit: Audit) -> list[tuple[str, int | str]]:
    seen: list[tuple[str, int | None]] = [
        ("cases", audit.images_expected),
        *((f"cases of the split {name}", count) for name, count in audit.splits.items() if len(audit.splits) > 1),
        ("patients", audit.patients),
        ("images without a named patient", audit.images_without_patient),
        *(
            [(f"images of the patient with most, {audit.largest_patient}", audit.largest_patient_images)]
            if audit.largest_patient_images > 1
            else []
        ),
        ("images present", audit.images_present),
        ("images missing", audit.images_missing),
        ("images unreadable", audit.unreadable),
        ("constant images", audit.constant),
        ("images of another size than their annotation", audit.size_differs),
        ("files without annotation", audit.unannotated_files),
        ("copies of an image under another name", audit.same_content),
        *(
            [(f"uncertain labels (uncertain={audit.uncertain})", audit.uncertain_labels)]
            if audit.uncertain_labels
            else []
        ),
        ("cases with a region", audit.with_region),
        ("cases without finding", audit.without_finding),
        ("pairs with a region", audit.pairs),
        *([("distinct phrases", audit.phrases)] if audit.phrases else []),
        ("boxes", audit.boxes),
        ("degenerate regions", audit.degenerate),
        ("sub-pixel regions on the 224 grid", audit.sub_pixel),
        ("regions outside their image", audit.outside),
        ("regions partly outside their image", audit.clipped),
        ("boxes that probably belong to an image of another size", audit.misfits),
        ("regions of unknown image size", audit.regions_unchecked),
    ]
    return [(name, "not decoded (--decode)" if value is None else value) for name, value in seen]
