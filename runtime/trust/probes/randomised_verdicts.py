"""Rows of randomised models -> verdicts (docs/trust-probes.md §2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....metrics_gpu.trust.verdicts import MARGINS, Criterion
from .effects import macro_of, mean_of
from .probe import Judgement, Question

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from .randomised import GraphLayer

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

_SIMILARITIES: Final = {"spearman": "Spearman", "ssim": "SSIM"}
_OF_MAPS: Final = ("roc_auc", "average_precision")
_LINE: Final = 4


def judge_randomised(table: pa.Table, layers: Sequence[GraphLayer]) -> Judgement:
    """The verdicts at the end of the cascade, the mean over the seeds of each pair, and the means of each step."""
    import pandas as pd

    held = table.to_pandas()
    trained, patients = (held[held["mode"] == mode] for mode in ("trained", "two patients"))
    facts: dict[str, Any] = {
        "layers": len(layers),
        "layers_of_the_map": sum(layer.feeds_saliency for layer in layers),
        "layers_of_the_score_only": sum(layer.feeds_logits and not layer.feeds_saliency for layer in layers),
    }
    note = f"{facts['layers_of_the_score_only']} of {facts['layers']} layers decide the score but not the map"
    notes = [note if facts["layers_of_the_map"] else f"{note}: no learnt layer feeds the map"]
    if trained.empty:
        return Judgement(notes=notes, facts=facts)
    parts = dict(list(held.groupby(["mode", "seed", "step"], sort=False)))
    facts["trained"] = {name: macro_of(trained, name) for name in _OF_MAPS}
    facts["two_patients"] = {"pairs": len(patients), **{name: macro_of(patients, name) for name in _SIMILARITIES}}
    facts["steps"] = [
        {
            "mode": mode,
            "seed": int(seed),
            "step": int(step),
            "layers": int(rows["layers"].iloc[0]),
            **{name: macro_of(rows, name) for name in (*_SIMILARITIES, *_OF_MAPS)},
            "degenerate": int(rows["degenerate"].sum()),
        }
        for (mode, seed, step), rows in parts.items()
    ]
    means = pd.DataFrame(facts["steps"])
    last = max((step for mode, _, step in parts if mode == "cascade"), default=0)
    ends = [rows for (mode, _, step), rows in parts.items() if mode == "cascade" and step == last]
    if ends:
        facts["below_two_patients"] = {
            name: _first_below(_over_seeds(means, "cascade", name), facts["two_patients"][name])
            for name in _SIMILARITIES
        }
        notes += _cascade_notes(facts, int(last))
    for mode, words in (("independent", "each block alone, from the output"), ("text", "prompts exchanged")):
        if parts and not (of_mode := _over_seeds(means, mode, "spearman")).empty:
            notes.append(f"{words}: Spearman {', '.join(map(_printed, of_mode))}")
    return Judgement(_questions(trained, patients, ends) if ends else (), notes, facts)


def _questions(trained: pd.DataFrame, patients: pd.DataFrame, ends: Sequence[pd.DataFrame]) -> list[Question]:
    """The questions of a cascade. ends: the rows of each seed with all layers random, in the order of `trained`."""
    degenerate = np.any([rows["degenerate"].to_numpy(np.bool_) for rows in (trained, *ends)], axis=0)
    pairs = trained.assign(degenerate=degenerate)
    # A mean over all seeds or none: with some alone the seeds would not be the same everywhere.
    random = {
        name: np.mean([rows[name].to_numpy(np.float64) for rows in ends], axis=0)
        for name in (*_SIMILARITIES, "roc_auc")
    }
    questions = []
    for name, word in _SIMILARITIES.items():
        of_two = {finding: mean_of(rows[name]) for finding, rows in patients.groupby("finding")}
        bound = trained["finding"].map(of_two).to_numpy(np.float64)
        left_out = {
            "no second patient has the finding": int(np.isnan(bound).sum()),
            "a map is degenerate": int((degenerate & ~np.isnan(bound)).sum()),
        }
        text = f"{word} of the maps of random and learnt weights - of the maps of two patients"
        criterion = Criterion(MARGINS["similarity"], "below")
        key = f"randomisation_{name}"
        questions.append(Question(key, text, _LINE, pairs, random[name] - bound, criterion, left_out))
    falls = trained["roc_auc"].to_numpy(np.float64) - random["roc_auc"]
    left_out = {"the region fills the image": int(np.isnan(falls).sum())}
    text = "ROC AUC of the map with learnt - with random weights"
    criterion = Criterion(MARGINS["roc_auc"])
    return [*questions, Question("randomisation_roc_auc", text, _LINE, pairs, falls, criterion, left_out)]


def _over_seeds(steps: pd.DataFrame, mode: str, name: str) -> pd.Series[float]:
    """Step of a mode -> mean over the seeds, NaN where a seed has none."""
    of_mode = steps[steps["mode"] == mode].astype({name: np.float64})
    return of_mode.groupby("step")[name].agg(lambda values: values.mean(skipna=False))


def _first_below(means: pd.Series[float], bound: float | None) -> int | None:
    """The first step whose mean is below that of two patients."""
    below = means.index[means < (np.nan if bound is None else bound)]
    return int(below[0]) if len(below) else None


def _cascade_notes(facts: Mapping[str, Any], last: int) -> list[str]:
    ends = [step for step in facts["steps"] if step["mode"] == "cascade" and step["step"] == last]
    seeds = ", ".join(str(step["seed"]) for step in ends)
    of_seeds = {name: ", ".join(_printed(step[name]) for step in ends) for name in (*_SIMILARITIES, "roc_auc")}
    two, trained, below = facts["two_patients"], facts["trained"], facts["below_two_patients"]
    first_steps = ", ".join(
        f"{word} {f'after step {below[name]} of {last}' if below[name] else 'never'}"
        for name, word in _SIMILARITIES.items()
    )
    return [
        f"all {ends[0]['layers']} layers random, seeds {seeds}: Spearman {of_seeds['spearman']} (two patients "
        f"{_printed(two['spearman'])}), SSIM {of_seeds['ssim']} ({_printed(two['ssim'])}), ROC AUC "
        f"{of_seeds['roc_auc']} (learnt {_printed(trained['roc_auc'])})",
        f"less alike than two patients, mean over the seeds: {first_steps}",
    ]


def _printed(value: float | None) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.2f}"
