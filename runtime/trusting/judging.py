"""Questions of probes -> verdicts, and their table, rows and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from io import StringIO
from typing import TYPE_CHECKING, Any

from ...metrics_gpu.statistics.bootstrap import draw_patients, patient_index
from ...metrics_gpu.trust.verdicts import LEAST_PATIENTS, MOST_DEGENERATE, Effect, PairGroups, effects_of, verdicts
from ..tables.console import print_line, print_table
from ..tables.metrics import NONE, p_value
from ..tables.table import Cell, Column, Table

if TYPE_CHECKING:
    from rich.console import Console

    from .probe import Question

__all__ = ["as_text", "judged", "print_verdicts", "verdict_table"]


def judged(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """The verdicts of questions about one model and dataset, which are one family, as records for JSON."""
    effects = []
    for question in questions:
        names = tuple(dict.fromkeys(question.patients))
        if not names:
            raise ValueError(f"the question {question.key} has no pair")
        class_of, _ = patient_index(question.findings)
        patient_of, count = patient_index(question.patients)
        groups = PairGroups(class_of, patient_of, names, draw_patients(count))
        (of_question,) = effects_of(question.values[:, None], groups, [question.left_out], question.degenerate[:, None])
        effects.append(_void(of_question[0], question))
    found = verdicts(effects, [question.criterion for question in questions])
    return [
        {
            "question": question.key,
            "line": question.line,
            "text": question.text,
            **asdict(verdict),
            "verdict": verdict.text,
            "disagrees": verdict.disagrees,
        }
        for question, verdict in zip(questions, found, strict=True)
    ]


def _void(effect: Effect, question: Question) -> Effect:
    """The effect, in which pairs without a score count where so many maps are degenerate that the test is void."""
    flagged, pairs = int(question.degenerate.sum()), len(question.values)
    return replace(effect, pairs=pairs, degenerate=flagged) if flagged > MOST_DEGENERATE * pairs else effect


def verdict_table(entries: Sequence[Mapping[str, Any]], title: str, stamps: tuple[str, ...]) -> Table:
    """The verdicts of cells, and the notes of their probes below."""
    heads = ("model", "dataset", "line", "what", "value", "p (Holm)", "m", "pairs", "patients", "verdict")
    rows = []
    for entry in entries:
        for record in entry["questions"]:
            rows.append(
                (
                    entry["model"],
                    entry["dataset"],
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
    notes = [f"{entry['model']} on {entry['dataset']}: {note}" for entry in entries for note in entry["notes"]]
    notes += [
        f"{entry['model']} on {entry['dataset']}, {record['question']}: the interval and the test answer differently"
        for entry in entries
        for record in entry["questions"]
        if record["disagrees"]
    ]
    notes += [
        f"{entry['model']} on {entry['dataset']}, {record['question']}: {count} pairs left out, {why}"
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


def print_verdicts(console: Console, table: Table) -> None:
    """Prints the table, of probes without a question their notes alone."""
    if table.rows:
        print_table(console, table)
    else:
        for line in (*table.stamps, *table.notes):
            print_line(console, line)


def as_text(table: Table) -> str:
    """The table as a file of text."""
    from rich.console import Console

    text = StringIO()
    print_verdicts(Console(file=text, width=200, color_system=None), table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n") + "\n"


def _value(record: Mapping[str, Any]) -> Cell:
    if record["value"] is None:
        return Cell(NONE)
    around = "" if record["low"] is None else f"[{record['low']:+.2f}, {record['high']:+.2f}]"
    return Cell(f"{record['value']:+.2f}", around, inline=True)
