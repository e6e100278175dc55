"""Tables of variants side by side, for the studies of prompts and of resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...results.comparing.cell_variants import Variants
from ...results.comparing.difference import TESTS
from ..tables.metric_names import NONE, heading, p_value
from ..tables.table import Column, Item, Table
from .study_outcome import Rows
from .variant_rows import MEASURES
from .writing import CROSS_FITTED, IN_SAMPLE, between, metric_cell

_PLURAL = {"class": "classes", "stratum": "strata"}


def all_stamps(groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The stamps of several runs, each once."""
    return tuple(dict.fromkeys(line for stamps in groups for line in stamps))


def value_table(group: Variants, rows: Rows, kind: str, title: str, stamps: tuple[str, ...]) -> Table:
    """One group: classes or strata down, measures and their variants across."""
    labels = group.labels
    measures = [name for name in MEASURES if any(row["measure"] == name for row in rows)]
    columns = [Column(kind), Column("n")]
    for measure in measures:
        columns += [Column(label, heading(measure, True)) for label in labels]
        columns += [Column("spread", heading(measure, True))]
    found: Mapping[tuple[str, str], Mapping[str, Any]] = {(row[kind], row["measure"]): row for row in rows}
    body: list[tuple[Item, ...]] = []
    for name in dict.fromkeys(row[kind] for row in rows):
        line: list[Item] = [str(name), str(next(row["pairs"] for row in rows if row[kind] == name))]
        for measure in measures:
            row = found.get((name, measure))
            line += [metric_cell(measure, row[label], between(row, label)) if row else "-" for label in labels]
            line.append(metric_cell(measure, row["spread"]) if row else "-")
        body.append(tuple(line))
    conflicts = group.shared.conflicts
    lost = [f"{label}: {count}" for label, count in zip(labels, group.left_out, strict=True) if count]
    notes = (
        IN_SAMPLE,
        CROSS_FITTED,
        f"percent; n: pairs with a region that all variants share (images for AUC: {len(group.shared.cases)}); "
        "spread: largest minus smallest",
        *((f"pairs that not all variants have, left out: {', '.join(lost)}",) if lost else ()),
        *(
            f"other {what}: {len(images)} of {conflicts.images} images, left out, as they are not the same for all "
            "variants"
            for what, images in (("image files", conflicts.files), ("patients", conflicts.patients))
            if images
        ),
    )
    return Table(title, tuple(columns), tuple(body), stamps, notes)


def difference_table(rows: Rows, kind: str, title: str, stamps: tuple[str, ...]) -> Table:
    """Paired differences, with the size of the family that each p is corrected for."""
    columns = ("model", "dataset", kind, "measure", "variant", "minus", "n", "difference", "p", "p (Holm)", "m")
    body: tuple[tuple[Item, ...], ...] = tuple(
        (
            *(str(row[name]) for name in ("model", "dataset", kind)),
            heading(row["measure"], True),
            *(str(row[name]) for name in ("variant", "reference", "n")),
            metric_cell(row["measure"], row["difference"], between(row, "difference")),
            p_value(row["p"], row["p_bound"]),
            p_value(row["p_holm"], row["p_bound"]),
            str(row["family"]) if row["p"] is not None else NONE,
        )
        for row in rows
    )
    notes = (
        "percentage points on the same pairs; intervals: bootstrap over patients, of AUC DeLong's by patient",
        *TESTS,
        f"a family is one measure over all means, or over all rows of single {_PLURAL[kind]} (exploratory)",
        IN_SAMPLE,
        CROSS_FITTED,
    )
    return Table(title, tuple(map(Column, columns)), body, stamps, notes, "differences", lead=6)
