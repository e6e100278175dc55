"""Study of asked models: kinds of answers, tokens, latency, and cost by given prices (docs/studies.md §2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from .....engines.errors import RunError, XBenchError
from ....asking.answer_log import KeptAnswers
from ....asking.ask_plan import AskPlan, read_plan
from ....asking.asked_file import TOKENS, WITHOUT, AnswerCounts, answer_counts, answer_lines, cost, latency, store_of
from ....data.answers.dialects.dialect_registry import DIALECTS
from ..columns import StudyTable, numbers, text, texts
from ..material import Material
from ..study_cell import StudyCell
from ..study_outcome import StudyOutcome

Prices = tuple[float, float]

_LEAD: Final = texts("model", "dataset", "truth")
_KINDS: Final = StudyTable(
    "Answers",
    "asked",
    (*_LEAD, *texts("asked", "answered", "empty", "refused", "truncated"), text("without_answer", WITHOUT)),
    (
        "pairs of image and finding or phrase, also those that the evaluation left out; without answer: failed, "
        "rejected, or not asked yet; kinds: docs/ask.md §5",
    ),
    lead=3,
)
_SPENT: Final = (
    *_LEAD,
    text("prompt_tokens", "sum", "tokens of prompts"),
    numbers("prompt_tokens_mean", "mean", "tokens of prompts", decimals=1),
    text("completion_tokens", "sum", "tokens of answers"),
    numbers("completion_tokens_mean", "mean", "tokens of answers", decimals=1),
    text("counted", "answers", "tokens known"),
    numbers("latency_median", "median", "latency, ms", decimals=1),
    numbers("latency_p95", "p95", "latency, ms", decimals=1),
    numbers("latency_max", "max", "latency, ms", decimals=1),
)
_COST: Final = numbers("cost", decimals=4)
_NOTES: Final = (
    "tokens as the server counted them, of the answers where it did; latency of the try that was answered; an answer "
    "that several pairs share has its tokens and its latency once",
)


def study_asked(material: Material, prices: Prices | None = None) -> StudyOutcome:
    """How the models answered whose files `ask` wrote, by the log beside each file, which is only read.

    prices: of a million prompt tokens and a million answer tokens. Raises RunError if no file has a log.
    """
    rows: list[dict[str, Any]] = []
    remarks, others, controls, used = list[str](), list[str](), list[str](), list[StudyCell]()
    for cell in material.cells:
        about = cell.rows.entry.get("boxes", {})
        store = store_of(Path(about["file"])) if about.get("file") else None
        if store is None:
            others.append(cell.model)
        elif about.get("moved") or about.get("mirrored"):
            controls.append(cell.model)
        else:
            try:
                rows += _rows_of(cell, *store, prices)
                used.append(cell)
            except (XBenchError, OSError) as error:
                remarks.append(f"{cell.model} on {cell.title}: left out, {error}")
    if not (used or remarks):
        raise RunError(
            f"{material.path} has no result of a file with a log of xbench-fast ask beside it; evaluate such a file "
            "(eval --model boxes:FILE)."
        )
    if controls:
        remarks.append(f"Left out, because their answers are those of another result: {_named(controls)}.")
    if others:
        remarks.append(f"Left out, because no file of theirs has a log of xbench-fast ask beside it: {_named(others)}.")
    shown = replace(material, cells=tuple(used))
    spent = StudyTable("Tokens and latency", "asked-spent", (*_SPENT, *([_COST] if prices else [])), _NOTES, lead=3)
    priced = "{:g} for a million tokens of prompts, {:g} for a million of answers"
    return StudyOutcome(
        name="asked",
        title="Answers of asked models",
        facts=(
            f"{len(used)} of {len(material.cells)} finished cells are of files with a log of xbench-fast ask",
            *([f"cost: {priced.format(*prices)}"] if prices else []),
            *material.unfinished,
        ),
        tables=(shown.table(_KINDS, rows), shown.table(spent, rows)),
        data={"asked": rows},
        settings={"prices": list(prices) if prices else None},
        remarks=tuple(remarks),
        results=material.basis((cell.model, cell.dataset) for cell in used),
    )


def _rows_of(cell: StudyCell, folder: Path, attempt: int, prices: Prices | None) -> list[dict[str, Any]]:
    """A row for the present and one for the absent pairs, if any were asked. Raises RunError for a store that does not
    give the file that was evaluated."""
    plan = read_plan(folder)
    if plan is None:
        raise RunError(f"{folder} has no plan; ask again with another --out.")
    about = cell.rows.entry["boxes"]
    _check_names(folder, plan, about)
    log = KeptAnswers(folder, plan.rules.dialect)
    content = hashlib.sha256()
    for line in answer_lines(plan, log, attempt):
        content.update(line)
    if content.hexdigest() != about["sha256"]:
        raise RunError(
            f"the answers in {folder} do not give the file that was evaluated; run xbench-fast ask --write, then the "
            "same eval command again."
        )
    lead = {"model": cell.model, "dataset": cell.dataset}
    source = {"asked_model": plan.rules.model, "dialect": plan.rules.dialect, "attempt": attempt}
    return [
        {**lead, "truth": truth, **source, **_numbers(counts, prices)}
        for truth, counts in answer_counts(plan, log, (attempt,)).items()
        if counts.kinds
    ]


def _check_names(folder: Path, plan: AskPlan, about: Mapping[str, Any]) -> None:
    """Raises RunError for a plan of another dataset or dialect than the file that was evaluated."""
    dataset = about.get("provenance", {}).get("dataset")
    dialects = [name.split()[0] for name in about.get("frames", {}) if name.split()[0] in DIALECTS]
    for what, own, told in (
        ("about the dataset", plan.dataset, [dataset] if dataset else []),
        ("in the dialect", plan.rules.dialect, dialects),
    ):
        if told and own not in told:
            raise RunError(f"{folder} has answers {what} {own}, not {', '.join(told)}; evaluate what ask wrote.")


def _numbers(counts: AnswerCounts, prices: Prices | None) -> dict[str, Any]:
    sums = {name: sum(counts.tokens[name]) if counts.tokens[name] else None for name in TOKENS}
    known = {name: total for name, total in sums.items() if total is not None}
    spread = latency(counts.times)
    return {
        "asked": counts.kinds.total(),
        "answered": counts.kinds["answer"],
        **{kind: counts.kinds[kind] for kind in ("empty", "refused", "truncated")},
        "without_answer": counts.kinds[WITHOUT],
        **sums,
        **{f"{name}_mean": known[name] / len(counts.tokens[name]) if name in known else None for name in TOKENS},
        "counted": max(map(len, counts.tokens.values())),
        **{f"latency_{name}": spread.get(name) for name in ("median", "p95", "max")},
        "cost": cost(prices, known) if prices and len(known) == len(TOKENS) else None,
    }


def _named(models: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(models))
