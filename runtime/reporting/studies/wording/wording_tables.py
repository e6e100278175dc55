"""The tables of `study prompts` that do not grow with the number of prompt sets (docs/metrics.md §8.4)."""

from __future__ import annotations

from typing import Final

from .....metrics_gpu.statistics.intervals import MANY_PATIENTS
from ..columns import StudyTable, of_measure, percents, text
from ..variants import MEASURE
from ..writing import CROSS_FITTED, IN_SAMPLE

_WINNERS: Final = (
    "best, worst and farthest in the data are too good, too bad and too far: they are the extremes of noisy values "
    "(the winner's curse). Chosen on other patients: for each half of the patients by the other half, "
    "mean of 20 divisions; intervals keep the choices and are somewhat too narrow. This value is of the choice, not of "
    "one set; a spread chosen so is too small on average"
)

SHARES: Final = StudyTable(
    "Findings that change by more than 10 %",
    "shares",
    (
        text("model"),
        MEASURE,
        text("findings"),
        *(
            column
            for kind, words in (("relative", "relative"), ("absolute", "10 points"))
            for column in (
                percents(f"seen_{kind}", "in the data", words),
                percents(f"elsewhere_{kind}", "other patients", words),
                percents(f"confirmed_{kind}", "significant", words),
            )
        ),
        text("family", "m"),
    ),
    (
        "percent of the findings; relative: by more than 10 % of the value of the reference; in the data: of any set, "
        "too many by noise; other patients: of the farthest set, chosen on other patients, with a bootstrap interval; "
        "significant: at least one set is beyond the bound after Holm's correction for m tests, all findings and sets",
        f"tests: one-sided t by patient beyond the bound, doubled; of findings with {MANY_PATIENTS} or more patients",
    ),
    lead=2,
)

FINDINGS: Final = StudyTable(
    "Spread of each finding",
    "findings",
    (
        *map(text, ("model", "dataset", "class")),
        MEASURE,
        text("n"),
        of_measure("reference", "reference"),
        of_measure("smallest", "smallest"),
        text("smallest_in", "of"),
        of_measure("largest", "largest"),
        text("largest_in", "of"),
        of_measure("deviation", "sd"),
        of_measure("spread_elsewhere", "spread, other patients"),
        of_measure("change_elsewhere", "change, other patients"),
        text("confirmed_relative", "> 10 %"),
        text("confirmed_absolute", "> 10 points"),
    ),
    (
        "percent; sd: standard deviation over the sets; change: of the farthest set from the reference; > 10 %, > 10 "
        "points: sets with a significant change",
        _WINNERS,
        IN_SAMPLE,
        CROSS_FITTED,
    ),
    lead=4,
)

CHOICES: Final = StudyTable(
    "Best and worst prompt set",
    "choices",
    (
        *map(text, ("model", "dataset")),
        MEASURE,
        text("end", ""),
        text("variant", "in the data"),
        of_measure("value", "value"),
        percents("often", "chosen again"),
        of_measure("elsewhere", "other patients"),
        of_measure("gain", "minus the reference"),
    ),
    ("mean over classes; chosen again: percent of pairs for which the other half chooses the same set", _WINNERS),
    lead=4,
)
