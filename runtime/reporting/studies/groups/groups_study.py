"""Study of groups of models: contrasts over patients and over models, and residuals from the line of recognition and
grounding (docs/metrics.md §18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .....engines.errors import ConfigError, RunError
from .....engines.registry import did_you_mean
from ...figures.study_groups import draw_groups
from ...tables.metric_names import METRICS, NONE, heading, percent
from ..columns import Shown, StudyTable, measured, metric, p_values, percents, text, texts
from ..material import Material
from ..study_outcome import StudyOutcome
from ..writing import between
from .contrasts import Contrast, Groups, contrast_rows, contrasts, group_rows
from .model_numbers import LEAST_MODELS, MEASURES, RESIDUAL, Numbers, model_numbers, own_measures, residuals

PATIENTS, MODELS, BOTH = "patients", "models", "both"
OVER: Final = (BOTH, PATIENTS, MODELS)
"""What intervals and tests are over."""


def study_groups(
    material: Material, divisions: Mapping[str, Groups], *, chosen: Sequence[str] = (), over: str = BOTH
) -> StudyOutcome:
    """Contrasts of the groups of each division.

    divisions: of the configuration; chosen: only these. over: one of `OVER`. Raises ConfigError for an unknown division
    or model, and for a group of one model if only intervals over models are asked for; RunError if no two groups have a
    number.
    """
    used = _chosen(material, divisions, chosen)
    level = material.sampling.level
    named = dict.fromkeys(model for groups in used.values() for members in groups.values() for model in members)
    models = [model for model in material.models if model in named]
    numbers, remarks = model_numbers(material, models)
    found, left_out = residuals(numbers, level)
    if found:
        numbers[RESIDUAL] = found
    else:
        remarks.append(f"No residuals: a line needs {LEAST_MODELS} models with AUC and pointing on the same datasets.")
    every: list[Contrast] = []
    means: list[dict[str, Any]] = []
    for name, groups in used.items():
        remarks += _members(name, groups, material)
        means += group_rows(name, groups, numbers, level)
        every += contrasts(name, groups, numbers, material)
    if not every:
        raise RunError(f"{material.path} has no number in two groups of {', '.join(used)}: {'; '.join(remarks)}")
    remarks += _over_models(every, over)
    rows = contrast_rows(every)
    own = own_measures(material)
    members = _model_rows(models, used, numbers, left_out)
    hidden = {BOTH: "", PATIENTS: MODELS, MODELS: PATIENTS}[over]
    return StudyOutcome(
        name="groups",
        title="Groups of models",
        facts=(
            *(f"{name}: {_listed(groups)}" for name, groups in used.items()),
            material.sampling.fact,
            *(metric.fact for metric in material.metrics),
            *material.unfinished,
        ),
        tables=(
            material.table(_without(_CONTRASTS, hidden), rows),
            material.table(_without(_MEANS, hidden), means),
            material.table(_models_table(own), members),
        ),
        data={"contrasts": rows, "groups": means, "models": members},
        settings={
            "divisions": {name: {group: list(own) for group, own in groups.items()} for name, groups in used.items()},
            "over": over,
            **material.sampling.settings,
        },
        remarks=tuple(dict.fromkeys(remarks)),
    ).with_figures(lambda: draw_groups(rows, hidden, material))


def _chosen(material: Material, divisions: Mapping[str, Groups], only: Sequence[str]) -> dict[str, Groups]:
    if not divisions:
        raise ConfigError(
            "The configuration names no groups of models; write a table such as [groups.pretraining] with "
            'general = ["clip"] and medical = ["kad-224"] into xbench.toml.'
        )
    for name in only:
        if name not in divisions:
            raise ConfigError(f"There is no [groups.{name}] in the configuration: {did_you_mean(name, divisions)}.")
    chosen = {name: groups for name, groups in divisions.items() if not only or name in only}
    for name, groups in chosen.items():
        for group, members in groups.items():
            for model in members:
                if model not in material.run.models:
                    raise ConfigError(
                        f"[groups.{name}] names '{model}' in '{group}', but {material.path} has no such model: "
                        f"{did_you_mean(model, material.run.models)}."
                    )
    return chosen


def _members(name: str, groups: Groups, material: Material) -> list[str]:
    """Lines on models in several groups, in none, and without a result here."""
    of: dict[str, list[str]] = {}
    for group, members in groups.items():
        for model in members:
            of.setdefault(model, []).append(group)
    lines = [f"{name}: {model} is in {' and in '.join(own)}" for model, own in of.items() if len(own) > 1]
    baselines = {cell.model for cell in material.cells if cell.weights == "baseline"}
    if outside := [model for model in material.models if model not in of and model not in baselines]:
        lines.append(f"{name}: in no group: {', '.join(outside)}")
    if lacking := [model for model in of if model not in material.models]:
        lines.append(f"{name}: without a result here: {', '.join(lacking)}")
    return lines


def _over_models(found: Sequence[Contrast], over: str) -> list[str]:
    """Lines on contrasts without an interval over models, and on how little few models can show. Raises ConfigError
    where these intervals alone were asked for."""
    lines = []
    if over == PATIENTS:
        return []
    for item in found:
        what = f"{item.division}, {item.groups[0]} and {item.groups[1]}"
        if item.shared:
            lines.append(f"{what}: no interval over models, since {', '.join(item.shared)} is in both groups")
        elif min(item.sizes) < 2:
            small = [group for group, size in zip(item.groups, item.sizes, strict=True) if size < 2]
            words = f"{what}: no interval over models, since {' and '.join(small)} has one model"
            if over == MODELS:
                raise ConfigError(f"{words} with {_heading(item.measure)}; add a model or take --over patients.")
            lines.append(words)
        elif item.models.least is not None:
            lines.append(
                f"{what}: of {item.sizes[0]} and {item.sizes[1]} models p over models is never below "
                f"{item.models.least:.3g}"
            )
    return lines


def _model_rows(
    models: Sequence[str], divisions: Mapping[str, Groups], numbers: Numbers, left_out: Mapping[str, float]
) -> list[dict[str, Any]]:
    rows = []
    for model in models:
        own = [
            f"{name}: {' and '.join(group for group, members in groups.items() if model in members)}"
            for name, groups in divisions.items()
            if any(model in members for members in groups.values())
        ]
        row: dict[str, Any] = {"model": model, "groups": "; ".join(own)}
        for measure in dict.fromkeys((*MEASURES, *numbers, RESIDUAL)):
            item = numbers.get(measure, {}).get(model)
            row |= {measure: None} if item is None else measured(measure, item.number)
        rows.append({**row, "residual_of_others": left_out.get(model)})
    return rows


def _listed(groups: Groups) -> str:
    return "; ".join(f"{group}: {', '.join(members)}" for group, members in groups.items())


def _heading(measure: str) -> str:
    return heading(measure) if measure in METRICS else "residual of Point"


def _without(table: StudyTable, hidden: str) -> StudyTable:
    """The table without the columns of what was not asked for."""
    return replace(table, columns=tuple(c for c in table.columns if not hidden or c.group != f"over {hidden}"))


def _ends(key: str, unit: str) -> Shown:
    """The ends of an interval in percent."""

    def item(row: Mapping[str, Any]) -> str:
        ends = between(row, key)
        return NONE if ends is None else f"[{percent(ends[0])}, {percent(ends[1])}]"

    return Shown("interval", item, f"over {unit}")


_MEASURE: Final = Shown("measure", lambda row: _heading(row["measure"]))
_BOTH: Final = (
    "over patients: these models, other patients; over models: other models of the same kind, the same patients",
    "interval over patients: bootstrap, of AUC DeLong's by patient; over models: Student's t by Welch",
)
_CONTRASTS: Final = StudyTable(
    "Contrasts of groups",
    "contrasts",
    (
        text("division"),
        Shown("groups", lambda row: f"{row['first']} minus {row['second']}"),
        _MEASURE,
        text("models"),
        Shown("difference", lambda row: percent(row["difference"])),
        _ends("difference", PATIENTS),
        p_values("p", group=f"over {PATIENTS}", bound="p_bound"),
        p_values("p_holm", "p (Holm)", f"over {PATIENTS}", bound="p_bound"),
        _ends("models", MODELS),
        p_values("models_p", group=f"over {MODELS}"),
        p_values("models_p_holm", "p (Holm)", f"over {MODELS}"),
    ),
    (
        "percentage points, means over the models of a group, on the same images and pairs; residual of Point: "
        "pointing less the line of AUC and pointing through all models",
        *_BOTH,
        "p over patients: of sign flips by patient, of AUC by DeLong's method; over models: of all divisions of the "
        "models into groups of these sizes; p (Holm): corrected for all contrasts of a measure",
    ),
    lead=4,
)
_MEANS: Final = StudyTable(
    "Means of groups",
    "groups",
    (
        *texts("division", "group"),
        _MEASURE,
        text("models"),
        Shown("mean", lambda row: percent(row["value"])),
        _ends("value", PATIENTS),
        _ends("models", MODELS),
        Shown("deviation", lambda row: percent(row["deviation"])),
    ),
    ("percent; deviation: standard deviation over the models", *_BOTH),
    lead=3,
)


def _models_table(own: Sequence[str]) -> StudyTable:
    return StudyTable(
        "Models",
        "models",
        (
            *texts("model", "groups"),
            *(metric(measure) for measure in (*MEASURES, *own)),
            percents("residual", "all models", "residual of Point"),
            percents("residual_of_others", "the others", "residual of Point"),
        ),
        (
            "percent; means over the datasets that all models have",
            "residual: above the line of AUC and pointing a model points better than its AUC lets expect; all models: "
            "line through all, drawn again with each replicate of the patients; the others: line without the model",
        ),
        lead=2,
    )
