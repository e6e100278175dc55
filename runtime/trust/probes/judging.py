"""Questions of probes -> verdicts, and their table, rows and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from ....metrics_gpu.trust.verdicts import LEAST_PATIENTS, verdicts
from ...reporting.tables.console import make_console, print_line, print_table
from ...reporting.tables.metric_names import NONE, p_value, percent, plain_number
from ...reporting.tables.table import Cell, Column, Table
from .effects import effect_of
from .probe import FLIPS

if TYPE_CHECKING:
    from rich.console import Console

    from .probe import Question


_RECORDED: Final = ("patients", "criterion", "word", "left_out", "degenerate")
"""Fields of a verdict that trust.json holds as they are."""


def judged(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """The verdicts of questions about one model and dataset, which are one family, as records for JSON."""
    judged_verdicts = verdicts(list(map(effect_of, questions)), [question.criterion for question in questions])
    return [
        {
            "question": question.key,
            "line": question.line,
            "text": question.text,
            **verdict.limits(),
            "pairs": verdict.n,
            **verdict.test,
            **{name: getattr(verdict, name) for name in _RECORDED},
            "level": 0.95 if verdict.interval is None else verdict.interval.level,
            "verdict": verdict.text,
            "disagrees": verdict.disagrees,
        }
        for question, verdict in zip(questions, judged_verdicts, strict=True)
    ]


def verdict_table(entries: Sequence[Mapping[str, Any]], title: str, stamps: tuple[str, ...]) -> Table:
    """The verdicts of cells, and the notes of their probes below."""
    heads = ("model", "dataset", "line", "number", "value", "p (Holm)", "m", "pairs", "patients", "verdict")
    rows = []
    for entry in entries:
        for record in entry["questions"]:
            rows.append(
                (
                    entry["model"],
                    _title(entry),
                    str(record["line"]),
                    record["text"],
                    _value(record),
                    p_value(record["p_holm"], record["p_bound"]),
                    str(record["family"]),
                    str(record["pairs"]),
                    str(record["patients"]),
                    record["verdict"] or NONE,
                )
            )
    notes = [f"{entry['model']} on {_title(entry)}: {note}" for entry in entries for note in entry["notes"]]
    notes += [
        f"{entry['model']} on {_title(entry)}, {record['question']}: the interval and the test answer differently"
        for entry in entries
        for record in entry["questions"]
        if record["disagrees"]
    ]
    notes += [
        f"{entry['model']} on {_title(entry)}, {record['question']}: {count} pairs left out, {why}"
        for entry in entries
        for record in entry["questions"]
        for why, count in record["left_out"].items()
        if count
    ]
    if rows:
        notes += [
            "[low, high]: 95 % patient bootstrap; p: sign flips by patient, corrected for the m tests of the model and "
            f"dataset; with pairs of fewer than {LEAST_PATIENTS} patients nothing can be told"
        ]
    columns = tuple(Column(name) for name in heads)
    return Table(title, columns, tuple(rows), stamps, tuple(notes), name="trust", lead=4)


def change_table(entries: Sequence[Mapping[str, Any]], stamps: tuple[str, ...]) -> Table:
    """The numbers of each change of `stability`."""
    lead, point, alike = ("model", "dataset", "change", "pairs"), ("flips", "gained", "lost"), ("Spearman", "SSIM")
    columns = [*map(Column, lead), *(Column(title, "pointing") for title in point), Column("moved", "map")]
    columns += [*(Column(title, "map") for title in alike), Column("change of p", "score")]
    rows = [
        (
            row["model"],
            _title(entry),
            row["question"],
            str(row["pairs"]),
            _percent(row),
            str(row["gained"]),
            str(row["lost"]),
            *(
                plain_number(row[name], digits)
                for name, digits in (("distance_median", 0), ("spearman", 2), ("ssim", 2), ("score_change", 3))
            ),
        )
        for entry in entries
        for row in change_rows([entry])
    ]
    notes = (
        "flips: share of pairs whose pointing hit changes, in %, with a 95 % interval by patient; moved: how far the "
        "maximum moves, median, in pixels of 224; change of p: mean size; more numbers are in trust.csv",
    )
    return Table("Stability: each change", tuple(columns), tuple(rows), stamps, notes, "changes", lead=3)


def change_rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each change of `stability`: the share of flips as its value, and what else is known of it."""
    return [
        {**_lead(entry), "question": change, "text": "share of pointing flips", **_flat(numbers)}
        for entry in entries
        for change, numbers in entry["facts"].items()
        if entry["probe"] == "stability" and "flip" in numbers
    ]


def csv_rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each verdict, with the pairs left out and why, and the rows of `change_rows`."""
    verdicts = [
        _lead(entry)
        | {name: value for name, value in record.items() if name != "left_out"}
        | {
            "left_out": sum(record["left_out"].values()),
            "why": "; ".join(f"{why}: {count}" for why, count in record["left_out"].items() if count),
        }
        for entry in entries
        for record in entry["questions"]
    ]
    return verdicts + change_rows(entries)


def print_verdicts(console: Console, tables: Sequence[Table]) -> None:
    """Prints tables, of one without rows the lines above and below alone."""
    for table in tables:
        if table.rows:
            print_table(console, table)
        else:
            for line in (*table.stamps, *table.notes):
                print_line(console, line)


def as_text(tables: Sequence[Table]) -> str:
    """The tables as a file of text."""
    text = StringIO()
    print_verdicts(make_console(file=text), tables)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n") + "\n"


def _lead(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("model", "dataset", "probe")}


def _flat(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a change without nesting; those of flips are the value."""
    columns = {name: numbers["flip"][name] for name in ("value", "low", "high")}
    for name, number in numbers.items():
        if isinstance(number, Mapping) and name != "flip":
            columns |= {name: number["value"], f"{name}_low": number["low"], f"{name}_high": number["high"]}
        elif name != "flip":
            columns[name] = number
    return columns


def _title(entry: Mapping[str, Any]) -> str:
    """The name of the dataset in tables; a trust directory of an earlier version has its key alone."""
    return str(entry.get("title", entry["dataset"]))


def _percent(row: Mapping[str, Any]) -> Cell:
    """A share in percent, without the sign."""
    around = "" if row["low"] is None else f"[{percent(row['low'], 1)}, {percent(row['high'], 1)}]"
    return Cell(percent(row["value"], 1), around, inline=True)


def _value(record: Mapping[str, Any]) -> Cell:
    """The number of a verdict: flips in percent with the unit, as on the card, others as they are."""
    if record["question"] == FLIPS and record["value"] is not None:
        share = _percent(record)
        return Cell(share.text, f"{share.interval} %".strip(), inline=True)
    around = "" if record["low"] is None else f"[{plain_number(record['low'], 3)}, {plain_number(record['high'], 3)}]"
    return Cell(plain_number(record["value"], 3), around, inline=True)
