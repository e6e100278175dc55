"""A comparison -> tables to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....metrics_gpu.statistics.intervals import Interval
from ....metrics_gpu.statistics.measured_numbers import disagreements
from ...results.choices import too_few_replicates
from ...results.comparing.align import OnlyIn
from ...results.comparing.difference import TESTS, Difference
from ...results.comparing.flips import DiceChange
from ..tables.metric_names import METRICS, NONE, difference_of, p_value, value_of
from ..tables.table import Column, Table
from .comparison import Comparison

_LISTED = 8  # names of cases in a line; the JSON has all of them


def comparison_facts(comparison: Comparison) -> list[str]:
    """Facts about the two runs, and how tests were made."""
    facts = [f"{name}: {run['path']}, xbench-fast {run['code_version']}, run of {run['updated']}"
             for name, run in (("A", comparison.a), ("B", comparison.b))]  # fmt: skip
    resampling = comparison.resampling
    if resampling.replicates:
        facts.append(
            too_few_replicates(resampling.replicates, resampling.level)
            or f"[low, high]: {100 * resampling.level:g} % intervals of {resampling.replicates} paired bootstrap draws "
            f"of patients, seed {resampling.seed}"
        )
    return [*facts, *(metric.fact for metric in comparison.metrics)]


def comparison_tables(comparison: Comparison, show: int | None = 20, *, classes: bool = True) -> list[Table]:
    """All tables, in the order they are read. show: rows of the lists of single pairs, None for all."""
    tables = [_overview(comparison), _changes(comparison)]
    if classes:
        tables.append(_class_changes(comparison))
    tables += [_flips(comparison, show), _dice(comparison, show), _one_sided(comparison)]
    return [table for table in tables if table.rows]


def _overview(comparison: Comparison) -> Table:
    """One line per cell: the changes of its rows."""
    columns = ("model", "dataset", "images", "pairs", "hits lost", "hits gained", "maxima moved", "Dice changed",
               "largest", "logit, largest", "logit, mean", "only A", "only B", "other image files",
               "other patients", "truth differs")  # fmt: skip
    rows = []
    for cell in comparison.cells:
        found, logits = cell.rows, cell.rows.logits
        rows.append(
            (
                cell.match.models,
                cell.title,
                *map(str, (cell.images, cell.pairs, found.lost, found.gained, found.moved, found.dice_changed)),
                value_of("dice_fixed", found.dice[0].size) if found.dice else NONE,
                f"{logits.largest:.3g}" if logits else NONE,
                f"{logits.mean:.3g}" if logits else NONE,
                *map(str, (cell.only_a.total, cell.only_b.total)),
                *map(str, (len(cell.other_files), len(cell.other_patients))),
                str(len(cell.label_changes) + len(cell.region_changes)),
            )
        )
    notes = (
        "images and pairs: shared by both runs; Dice changed: pairs with another Dice at 0.5 or at the best threshold, "
        "and the largest such change in percentage points; logit: absolute changes; only A, only B: rows and pairs one "
        "run has alone; other image files, other patients: images that both runs have under one name, but not as the "
        "same image, so that their rows are in only A and only B; truth differs: rows with another label or another "
        "region",
    )
    return Table("Rows", tuple(map(Column, columns)), tuple(rows), comparison.stamps, notes, name="rows", lead=2)


def _changes(comparison: Comparison) -> Table:
    columns = tuple(map(Column, ("model", "dataset", "number", "n", "A", "B", "B - A", "interval", "p", "p (Holm)")))
    rows: list[tuple[str, ...]] = []
    for cell in comparison.cells:
        rows += [(cell.match.models, cell.title, *_change(change)) for change in cell.whole]
    for model in comparison.models:
        several = len({other.protocol for other in comparison.cells}) > 1
        by = f", protocol {model.protocol}" if several else ""
        rows += [(model.models, f"mean of {change.n} datasets{by}", *_change(change)) for change in model.whole]
    return Table("Changes", columns, tuple(rows), comparison.stamps, _change_notes(comparison), name="changes", lead=3)


def _class_changes(comparison: Comparison) -> Table:
    heads = ("model", "dataset", "finding", "number", "n", "A", "B", "B - A", "interval", "p", "p (Holm)")
    rows = [
        (cell.match.models, cell.title, change.name, *_change(change))
        for cell in comparison.cells
        for change in cell.classes
    ]
    found = [change for cell in comparison.cells for change in cell.classes]
    notes = ("percent and percentage points", *_tests(found, "all findings of all cells, per number; exploratory"))
    return Table(
        "Changes per finding", tuple(map(Column, heads)), tuple(rows), comparison.stamps, notes, name="findings", lead=4
    )


def _change(change: Difference) -> tuple[str, ...]:
    return (
        METRICS[change.field].words,
        str(change.n),
        value_of(change.field, change.reference),
        value_of(change.field, change.minuend),
        difference_of(change.field, change.value),
        _range(change.field, change.interval),
        p_value(change.p, change.p_bound),
        p_value(change.p_holm, change.p_bound),
    )


def _change_notes(comparison: Comparison) -> tuple[str, ...]:
    found = [change for cell in comparison.cells for change in cell.whole]
    notes = [
        "percent and percentage points; means over the findings of a dataset, on the rows both runs scored",
        *_tests(found, "the cells, per number"),
        *comparison.limits,
        *_other_images(comparison),
    ]
    return tuple(notes if comparison.resampling.replicates else (*notes, "no intervals: no replicates were asked for"))


def _other_images(comparison: Comparison) -> Iterator[str]:
    """How many images are left out because they are not the same in both runs."""
    for what, field in (("image files", "other_files"), ("patients", "other_patients")):
        counts = [(cell, len(getattr(cell, field))) for cell in comparison.cells]
        if told := [f"{count} of {cell.match.models} on {cell.title}" for cell, count in counts if count]:
            yield f"other {what}: {', '.join(told)}; these images are left out, as they are not the same in both runs"


def _tests(found: Sequence[Difference], family: str) -> Iterator[str]:
    """How differences were tested and corrected."""
    yield from TESTS
    sizes = sorted({change.family for change in found if change.p is not None})
    if sizes:
        yield f"Holm: over {family}, m = {', '.join(map(str, sizes))}"
    yield from disagreements(found)


def _flips(comparison: Comparison, show: int | None) -> Table:
    rows = [
        (cell.match.models, cell.title, flip.case, flip.finding, _hit(flip.before), _hit(flip.after))
        for cell in comparison.cells
        for flip in cell.rows.flips
    ]
    columns = tuple(map(Column, ("model", "dataset", "case", "finding", "A", "B")))
    return Table("Flipped hits", columns, tuple(rows[:show]), (), _rest(len(rows), show), name="flips", lead=4)


def _dice(comparison: Comparison, show: int | None) -> Table:
    found = [(change, cell) for cell in comparison.cells for change in cell.rows.dice]
    found.sort(key=lambda item: -item[0].size)
    rows = [
        (cell.match.models, cell.title, change.case, change.finding, *_dice_texts(change)) for change, cell in found
    ]
    total = sum(cell.rows.dice_changed for cell in comparison.cells)
    columns = tuple(
        map(Column, ("model", "dataset", "case", "finding", "at 0.5, A", "B", "B - A", "best, A", "B", "B - A"))
    )
    notes = ("percent; best: at each run's own best threshold of the finding", *_rest(total, show))
    return Table("Largest changes of Dice", columns, tuple(rows[:show]), (), notes, name="dice", lead=4)


def _dice_texts(change: DiceChange) -> Iterator[str]:
    for key, a, b in (
        ("dice_fixed", change.fixed_a, change.fixed_b),
        ("dice_best", change.best_a, change.best_b),
    ):
        yield from (value_of(key, a), value_of(key, b), difference_of(key, None if a is None or b is None else b - a))


def _one_sided(comparison: Comparison) -> Table:
    """Everything that only one run has, listed one by one."""
    rows = [
        (lone.model, lone.dataset, f"only {lone.run}", str(lone.rows), "the whole cell", lone.reason)
        for lone in comparison.alone
    ]
    for cell in comparison.cells:
        for name, only in (("only A", cell.only_a), ("only B", cell.only_b)):
            rows += [(cell.match.models, cell.title, name, *line) for line in _only(only)]
        for what, names in (("label", cell.label_changes), ("region", cell.region_changes)):
            if names:
                listed = _listed([f"{case}: {finding}" for case, finding in names])
                rows.append((cell.match.models, cell.title, "both", str(len(names)), f"another {what}", listed))
    columns = tuple(map(Column, ("model", "dataset", "where", "rows", "what", "which")))
    notes = ("another label: left out of AUC and AUPRC; another region: left out of the pairs",)
    return Table(
        "Rows that only one run has, or that differ in truth", columns, tuple(rows), (), notes, name="one-sided", lead=2
    )


def _only(only: OnlyIn) -> Iterator[tuple[str, str, str]]:
    if only.rows:
        cases = _listed([f"{case} ({reason})" for case, reason in only.cases])
        findings = f"findings {_listed(list(only.findings))}" if only.findings else ""
        yield str(only.rows), f"scored rows, {len(only.cases)} cases", "; ".join(filter(None, (cases, findings)))
    if only.pairs:
        yield str(len(only.pairs)), "regions", _listed([f"{case}: {finding}" for case, finding in only.pairs])


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _rest(total: int, show: int | None) -> tuple[str, ...]:
    return () if show is None or total <= show else (f"{show} of {total}; the JSON file holds more",)


def _hit(value: float) -> str:
    return {0.0: "miss", 1.0: "hit"}.get(value, f"{value:.2f} of a hit")


def _range(key: str, interval: Interval | None) -> str:
    return NONE if interval is None else f"[{difference_of(key, interval.low)}, {difference_of(key, interval.high)}]"
