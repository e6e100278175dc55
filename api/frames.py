"""Numbers of a report -> rows of data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .engines.errors import RunError
from .metrics_gpu.statistics.measured_numbers import Measured
from .metrics_gpu.zones.bounds import NUMBERS
from .runtime.reporting.provenance import cell_coverage
from .runtime.results.comparing.model_differences import Differences
from .runtime.results.load_rows import StoredRun
from .runtime.results.numbers.cell_values import CellValues
from .runtime.results.numbers.fields import GROUNDING, RECOGNITION
from .runtime.results.numbers.run_numbers import Results

if TYPE_CHECKING:
    import pandas as pd

    from .runtime.reporting.box_scores import BoxScores
    from .runtime.reporting.word_scores import WordScores
    from .runtime.trust.card.card import TrustCard

__all__ = ["cards", "classes", "coverage", "differences", "frame", "grounding", "recognition", "stored_rows", "words"]

_NUMBERS = ("model", "dataset", "finding", "metric", "value", "low", "high", "n")
_COLUMNS = {
    "coverage": (*_NUMBERS, "engine", "protocol", "state"),
    "differences": ("model", "other", *_NUMBERS[1:], "p", "p_bound", "p_holm", "family", "protocol"),
    "changes": (*_NUMBERS[:4], "a", "b", *_NUMBERS[4:], "p", "p_bound", "p_holm", "family", "protocol"),
    "cards": (
        "model",
        "dataset",
        "line",
        "question",
        "verdict",
        "why",
        "metric",
        "what",
        "unit",
        *_NUMBERS[4:7],
        "baseline",
        "n",
        "patients",
        "p",
        "p_bound",
        "p_holm",
        "family",
        "criterion",
        "word",
        "protocol",
    ),
}


def frame(name: str, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """A data frame of the rows of a table, with its columns even if there is no row."""
    import pandas as pd

    table = pd.DataFrame(list(rows), columns=list(_COLUMNS.get(name, (*_NUMBERS, "protocol"))))
    numbers = [column for column in ("a", "b", "value", "low", "high", "p", "p_holm") if column in table]
    counts = [column for column in ("n", "patients", "family") if column in table]
    flags = [column for column in ("p_bound",) if column in table]
    dtypes = {"float64": numbers, "int64": counts, "bool": flags}
    return table.astype({column: dtype for dtype, columns in dtypes.items() for column in columns})


def grounding(results: Results) -> Iterator[dict[str, Any]]:
    """Every model on every dataset, then its mean over datasets if there are several; of one protocol, as all here."""
    for model in results.models:
        cells = results.row(model)
        yield from _of_model(results, model, cells, (*GROUNDING, *results.choices.own))


def classes(results: Results) -> Iterator[dict[str, Any]]:
    """Every finding of every model and dataset."""
    for cell in results.finished:
        for name in cell.grounding.names:
            for metric in (*GROUNDING, *results.choices.own):
                yield _of_cell(cell, name, metric, cell.number(metric, name))
            tau = cell.grounding.value("best_tau", name)
            scaled = None if tau is None else tau * cell.tau_scale
            yield _of_cell(cell, name, "best_threshold", Measured(scaled, n=cell.count("pointing", name)))
        for name in cell.recognition.names:
            for metric in RECOGNITION:
                yield _of_cell(cell, name, metric, cell.number(metric, name))


def recognition(results: Results) -> Iterator[dict[str, Any]]:
    """Every model that gives scores, on every dataset, then its mean over datasets if there are several."""
    for model in results.models:
        cells = [cell for cell in results.row(model) if cell.recognition.names]
        yield from _of_model(results, model, cells, RECOGNITION)


def differences(tested: Differences) -> Iterator[dict[str, Any]]:
    """Every two models on every dataset and in the mean; of AUC also every finding."""
    for item in (*tested.numbers, *tested.classes):
        row = _row(item.first, item.dataset, item.name, item.field, item)
        yield {**row, "other": item.second, **item.test, "protocol": item.protocol}


def coverage(results: Results, boxes: Sequence[BoxScores] = ()) -> Iterator[dict[str, Any]]:
    """What was evaluated and what could not be, including each model and dataset without a result."""
    answers = {(scores.model, scores.dataset): scores for scores in boxes}
    for model in results.everyone:
        for dataset in results.datasets:
            cell = results.cells.get((model, dataset))
            if cell is None:
                state = results.unfinished.get((model, dataset), "not evaluated")
                empty = {"engine": "", "protocol": "", "state": state}
                yield {**_row(model, dataset, "", "images", Measured(0.0)), **empty}
                continue
            later = cell.rows.attempt
            status = {"engine": cell.engine, "protocol": cell.protocol, "state": f"done; {later}" if later else "done"}
            for name, count in cell_coverage(cell, answers.get((model, dataset))).items():
                metric = "images" if name == "cases" else name
                value = Measured(None if count is None else float(count), n=cell.cases)
                yield {**_row(model, dataset, "", metric, value), **status}


def words(scores: Sequence[WordScores]) -> Iterator[dict[str, Any]]:
    """Every number of answers in words, of each finding and in the mean over findings."""
    for found in scores:
        protocol = {"protocol": found.stored.cell.protocol}
        class_of = found.stored.cell.class_of
        for place, finding in [*enumerate(found.names), (None, "")]:
            n = len(class_of) if place is None else int((class_of == place).sum())
            numbers = {name.replace(" ", "_"): found.number(name, place) for name in found.means}
            if place is None:
                numbers |= {f"share_of_ceiling_{name}": found.share(name) for name in NUMBERS}
                numbers |= found.presence
            for name, number in numbers.items():
                counted = number if name in found.presence else replace(number, n=n)
                yield {**_row(found.model, found.dataset, finding, name, counted), **protocol}


def cards(trust_cards: Iterable[TrustCard]) -> Iterator[dict[str, Any]]:
    """Every number of every line; a line without one has a row with its word alone."""
    for card in trust_cards:
        for line in card.lines:
            columns = {"model": card.model, "dataset": card.dataset, "line": line.number, "question": line.question}
            columns |= {"verdict": line.word, "why": line.why, "protocol": card.head["protocol"]}
            for item in line.numbers:
                numbers = {"value": item.value, "low": item.low, "high": item.high, "p": item.p, "p_holm": item.p_holm}
                counts = {"n": item.pairs or 0, "patients": item.patients or 0, "family": item.family or 0}
                words = {"metric": item.label, "what": item.what, "unit": item.unit, "baseline": item.baseline}
                judged = {"p_bound": item.p_bound, "criterion": item.criterion, "word": item.word or ""}
                yield columns | numbers | counts | words | judged
            if not line.numbers:
                empty = dict.fromkeys(("metric", "what", "unit", "baseline", "criterion", "word"), "")
                yield columns | empty | {"n": 0, "patients": 0, "family": 0, "p_bound": False}


def stored_rows(run: StoredRun) -> pd.DataFrame:
    """The rows of all finished cells, without maps and regions. Raises RunError."""
    import pandas as pd

    if not run.finished:
        raise RunError(f"{run.path} has no finished result; its table of coverage says why.")
    tables: list[pd.DataFrame] = [run.table(model, dataset).to_pandas() for model, dataset in run.finished]
    return pd.concat(tables, ignore_index=True)


def _of_model(
    results: Results, model: str, cells: Sequence[CellValues], metrics: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The numbers of each cell of a model, then their means over datasets if there are several."""
    for cell in cells:
        for metric in metrics:
            yield _of_cell(cell, "", metric, cell.number(metric))
    if len(results.datasets) > 1 and cells:
        for metric in metrics:
            yield {**_row(model, "", "", metric, results.number(model, "", metric)), "protocol": cells[0].protocol}


def _row(model: str, dataset: str, finding: str, metric: str, number: Measured) -> dict[str, Any]:
    scale = 0.01 if metric.startswith("delta_") else 1.0  # percentage points inside; in a frame all are fractions
    names = {"model": model, "dataset": dataset, "finding": finding, "metric": metric}
    return {**names, **number.limits(scale), "n": number.n}


def _of_cell(cell: CellValues, finding: str, metric: str, number: Measured) -> dict[str, Any]:
    return {**_row(cell.model, cell.dataset, finding, metric, number), "protocol": cell.protocol}
