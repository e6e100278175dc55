"""Match the cells of two runs by model and dataset."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ....engines.errors import RunError
from ....engines.registry import did_you_mean
from ..load_rows import StoredRun


@dataclass(frozen=True)
class Match:
    """Two finished cells of one dataset to be compared."""

    model_a: str
    model_b: str
    dataset: str

    @property
    def models(self) -> str:
        """The model's name, or both names if they differ."""
        return self.model_a if self.model_a == self.model_b else f"{self.model_a} → {self.model_b}"


@dataclass(frozen=True)
class Lone:
    """A finished cell without a counterpart: `run` is "A" or "B", the one that has it; `reason` why the other lacks it;
    `rows` how many scored rows it holds."""

    run: str
    model: str
    dataset: str
    reason: str
    rows: int


@dataclass(frozen=True)
class Matches:
    """Cells to compare, and finished cells that have no counterpart."""

    pairs: tuple[Match, ...]
    alone: tuple[Lone, ...]


def match_cells(
    a: StoredRun, b: StoredRun, models: tuple[str, str] | None = None, datasets: Collection[str] = ()
) -> Matches:
    """Cells of the same model and dataset in both runs; with `models` (of A, of B) those of these two models.

    datasets: only these; empty for all. Raises RunError when nothing can be compared, or a named model or dataset does
    not exist.
    """
    _check_names(a, b, models, datasets)
    left = _wanted(a, models[0] if models else None, datasets)
    right = _wanted(b, models[1] if models else None, datasets)
    other = dict([models]) if models else {}
    back = {name_b: name_a for name_a, name_b in other.items()}
    pairs = [
        Match(model, other.get(model, model), dataset)
        for model, dataset in left
        if (other.get(model, model), dataset) in right
    ]
    if not pairs:
        raise RunError(_nothing(a, b, models, left, right))
    matched_a = {(match.model_a, match.dataset) for match in pairs}
    matched_b = {(match.model_b, match.dataset) for match in pairs}
    alone = [
        Lone(name, model, dataset, _reason(there, partner.get(model, model), dataset), _rows(here, model, dataset))
        for name, here, there, wanted, matched, partner in (
            ("A", a, b, left, matched_a, other),
            ("B", b, a, right, matched_b, back),
        )
        for model, dataset in wanted
        if (model, dataset) not in matched
    ]
    return Matches(tuple(pairs), tuple(alone))


def _wanted(run: StoredRun, model: str | None, datasets: Collection[str]) -> list[tuple[str, str]]:
    finished = set(run.finished)
    return [
        (name, dataset)
        for name in run.models
        for dataset in run.datasets
        if (name, dataset) in finished and model in (None, name) and (not datasets or dataset in datasets)
    ]


def _rows(run: StoredRun, model: str, dataset: str) -> int:
    return int(run.cell(model, dataset).logits.size)


def _reason(run: StoredRun, model: str, dataset: str) -> str:
    return run.unfinished.get((model, dataset), f"{model} was not evaluated on {dataset}")


def _check_names(a: StoredRun, b: StoredRun, models: tuple[str, str] | None, datasets: Collection[str]) -> None:
    for run, model in zip((a, b), models or (), strict=False):
        if model not in run.models:
            raise RunError(f"{run.path} has no model '{model}': {did_you_mean(model, run.models)}.")
    for dataset in datasets:
        if dataset not in {*a.datasets, *b.datasets}:
            known = list(dict.fromkeys([*a.datasets, *b.datasets]))
            raise RunError(f"Neither run has a dataset '{dataset}': {did_you_mean(dataset, known)}.")


def _nothing(
    a: StoredRun,
    b: StoredRun,
    models: tuple[str, str] | None,
    left: list[tuple[str, str]],
    right: list[tuple[str, str]],
) -> str:
    said = [
        f"{run.path} has {_names([f'{model} on {dataset}' for model, dataset in found]) or 'none'}"
        for run, found in ((a, left), (b, right))
    ]
    hint = "" if models else "; to compare two models of different names give --model twice"
    return f"The two runs have no finished (model, dataset) cell in common: {', '.join(said)}{hint}."


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
