"""Rows of randomised models -> verdicts (docs/trust.md §2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.trust.verdicts import MARGINS, Criterion
from .probe import Judgement, Question

if TYPE_CHECKING:
    import pyarrow as pa

    from .layers import GraphLayer
    from .probe_images import Row

Float = NDArray[np.float64]

COLUMNS: Final[Mapping[str, str]] = {
    "mode": "string",
    "seed": "int32",
    "step": "int32",
    "layers": "int32",
    "other_case": "string",
    "logit": "float64",
    "spearman": "float64",
    "ssim": "float64",
    "roc_auc": "float64",
    "average_precision": "float64",
    "degenerate": "bool",
}
"""mode: `trained`, `two patients` (trained maps of `case_id` and `other_case`), `cascade`, `independent` or `text`.
step: of the mode, from 1; layers: how many are randomised. spearman, ssim: to the trained map of the pair."""

_ALIKE: Final = {"spearman": "Spearman", "ssim": "SSIM"}
_LINE: Final = 4


def judge_randomised(table: pa.Table, layers: Sequence[GraphLayer]) -> Judgement:
    """The verdicts at the end of the cascade, the mean over the seeds of each pair, and what each step gave."""
    parts: dict[tuple[str, int, int], list[Row]] = {}
    for row in table.to_pylist():
        parts.setdefault((row["mode"], row["seed"] or 0, row["step"] or 0), []).append(row)
    trained = parts.pop(("trained", 0, 0), [])
    patients = parts.pop(("two patients", 0, 0), [])
    about = {
        "layers": len(layers),
        "layers_of_the_map": sum(layer.feeds_saliency for layer in layers),
        "layers_of_the_score_only": sum(layer.feeds_logits and not layer.feeds_saliency for layer in layers),
    }
    notes = [_layers_note(about)]
    if not trained:
        return Judgement(notes=notes, facts=about)
    findings = [row["finding"] for row in trained]
    steps = [_step_facts(findings, key, rows) for key, rows in parts.items()]
    alone = {name: _macro([row["finding"] for row in patients], _column(patients, name)) for name in _ALIKE}
    facts: dict[str, Any] = {
        **about,
        "trained": {name: _macro(findings, _column(trained, name)) for name in ("roc_auc", "average_precision")},
        "two_patients": {"pairs": len(patients), **alone},
        "steps": steps,
    }
    last = max((step for mode, _, step in parts if mode == "cascade"), default=0)
    ends = [rows for (mode, _, step), rows in parts.items() if mode == "cascade" and step == last]
    if ends:
        facts["below_two_patients"] = _first_below(steps, alone)
        notes += _cascade_notes(facts, last)
    for mode, said in (("independent", "each block alone, from the output"), ("text", "prompts exchanged")):
        means = _over_seeds(steps, mode, "spearman")
        if means:
            notes.append(f"{said}: Spearman {', '.join(_printed(value) for value in means.values())}")
    return Judgement(_questions(trained, patients, ends) if ends else (), notes, facts)


def _questions(trained: Sequence[Row], patients: Sequence[Row], ends: Sequence[Sequence[Row]]) -> list[Question]:
    findings = [row["finding"] for row in trained]
    degenerate = np.array([any(rows[at]["degenerate"] for rows in (trained, *ends)) for at in range(len(trained))])
    found = []
    for name, word in _ALIKE.items():
        of_two = {
            finding: _mean(_column([row for row in patients if row["finding"] == finding], name))
            for finding in dict.fromkeys(findings)
        }
        bound = np.array([of_two[finding] for finding in findings])
        # A mean over all seeds or none: with some alone the seeds would not be the same everywhere.
        values = np.mean([_column(rows, name) for rows in ends], axis=0) - bound
        left = {
            "no second patient has the finding": int(np.isnan(bound).sum()),
            "a map is degenerate": int((degenerate & ~np.isnan(bound)).sum()),
        }
        text = f"{word} of the maps of random and learnt weights - of the maps of two patients"
        criterion = Criterion(MARGINS["similarity"], "below")
        found.append(_question(name, text, trained, values, degenerate, criterion, left))
    falls = _column(trained, "roc_auc") - np.mean([_column(rows, "roc_auc") for rows in ends], axis=0)
    left = {"the region fills the image": int(np.isnan(falls).sum())}
    text = "ROC AUC of the map with learnt - with random weights"
    found.append(_question("roc_auc", text, trained, falls, degenerate, Criterion(MARGINS["roc_auc"]), left))
    return found


def _question(
    name: str,
    text: str,
    trained: Sequence[Row],
    values: Float,
    degenerate: NDArray[np.bool_],
    *more: Any,
) -> Question:
    findings, patients = ([row[column] for row in trained] for column in ("finding", "patient_id"))
    criterion, left = more
    return Question(f"randomisation_{name}", text, _LINE, findings, patients, values, degenerate, criterion, left)


def _step_facts(findings: Sequence[str], key: tuple[str, int, int], rows: Sequence[Row]) -> dict[str, Any]:
    mode, seed, step = key
    return {
        "mode": mode,
        "seed": seed,
        "step": step,
        "layers": rows[0]["layers"],
        **{name: _macro(findings, _column(rows, name)) for name in (*_ALIKE, "roc_auc", "average_precision")},
        "degenerate": sum(bool(row["degenerate"]) for row in rows),
    }


def _first_below(steps: Sequence[Mapping[str, Any]], alone: Mapping[str, float | None]) -> dict[str, int | None]:
    """For each measure the first step of the cascade whose mean over the seeds is below that of two patients."""
    found: dict[str, int | None] = {}
    for name, bound in alone.items():
        means = _over_seeds(steps, "cascade", name).items()
        found[name] = next((at for at, mean in means if None not in (mean, bound) and mean < bound), None)  # type: ignore[operator]
    return found


def _over_seeds(steps: Sequence[Mapping[str, Any]], mode: str, name: str) -> dict[int, float | None]:
    """The mean over the seeds of each step of a mode; None where a seed has none."""
    found: dict[int, list[float | None]] = {}
    for step in steps:
        if step["mode"] == mode:
            found.setdefault(step["step"], []).append(step[name])
    return {
        step: None if None in values else float(np.mean([value for value in values if value is not None]))
        for step, values in found.items()
    }


def _layers_note(about: Mapping[str, int]) -> str:
    text = f"{about['layers_of_the_score_only']} of {about['layers']} layers decide the score but not the map"
    return text if about["layers_of_the_map"] else f"{text}: no learnt layer feeds the map"


def _cascade_notes(facts: Mapping[str, Any], last: int) -> list[str]:
    ends = [step for step in facts["steps"] if step["mode"] == "cascade" and step["step"] == last]
    seeds = ", ".join(str(step["seed"]) for step in ends)

    def each(name: str) -> str:
        return ", ".join(_printed(step[name]) for step in ends)

    alone, trained, below = facts["two_patients"], facts["trained"], facts["below_two_patients"]
    lines = [
        f"all {ends[0]['layers']} layers random, seeds {seeds}: Spearman {each('spearman')} (two patients "
        f"{_printed(alone['spearman'])}), SSIM {each('ssim')} ({_printed(alone['ssim'])}), ROC AUC {each('roc_auc')} "
        f"(learnt {_printed(trained['roc_auc'])})"
    ]
    told = [
        f"{word} {f'after step {below[name]} of {last}' if below[name] else 'never'}" for name, word in _ALIKE.items()
    ]
    lines.append(f"less alike than two patients, mean over the seeds: {', '.join(told)}")
    return lines


def _column(rows: Sequence[Row], name: str) -> Float:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)


def _mean(values: Float) -> float:
    """The mean of what is known, NaN if nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def _macro(findings: Iterable[str], values: Float) -> float | None:
    """The mean over the findings of their means; None without a value."""
    names = np.array(list(findings))
    means = np.array([_mean(values[names == name]) for name in dict.fromkeys(names.tolist())])
    mean = _mean(means)
    return None if np.isnan(mean) else mean


def _printed(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
