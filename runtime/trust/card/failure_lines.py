"""Line 9 of a card: the smallest stratum, the worst finding, and the worst cases of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.strata import strata_of
from ...host.config import DatasetConfig
from ...reporting.studies.failures_study import study_failures
from ...reporting.studies.material import Material
from ...reporting.studies.strata_study import strata_of_cell
from ...reporting.studies.study_cell import PIXELS, StudyCell
from ...reporting.studies.study_outcome import StudyOutcome
from ...reporting.tables.metric_names import percent
from .card import DESCRIBED, CardLine, CardNumber, Picture, rows_of, unjudged_line

CASES: Final = 3
"""How many cases a card shows."""


def failures_of(block: Material, folders: Mapping[str, DatasetConfig] | None, *, pictures: bool) -> StudyOutcome:
    """The study of failures of a block: of each result the worst finding and its worst cases."""
    return study_failures(block, top=1, cases=CASES, overlays=pictures, datasets=folders)


def failure_line(cell: StudyCell, block: Material, study: StudyOutcome) -> tuple[CardLine, tuple[Picture, ...]]:
    """The line, and the cases."""
    if cell.weights == "baseline":
        return unjudged_line(DESCRIBED, "not applicable", "a baseline ignores the image"), ()
    smallest = next(row for row, _ in strata_of_cell(cell, False, block.sampling.level) if row["n"])
    worst = rows_of(study.data["classes"], cell)[0]
    cases = rows_of(study.data["cases"], cell, end="worst")
    index, names = strata_of(cell.counts.region, PIXELS)
    small = index == names.index(smallest["stratum"])
    sizes = f"{smallest['stratum']}, {_size(smallest)} of the image"
    numbers = (
        CardNumber.of(
            smallest,
            "pointing",
            what=f"pointing on the smallest regions ({sizes})",
            label=f"smallest regions ({smallest['stratum']})",
            **_basis(smallest, _patients(cell, small)),
        ),
        CardNumber.of(
            worst,
            "pointing",
            what=f"pointing on the worst finding ({worst['class']})",
            label=f"worst: {worst['class']}",
            **_basis(worst, _patients(cell, cell.class_of == cell.classes.index(worst["class"]))),
        ),
    )
    shown = ", ".join(str(row["case"]) for row in cases)
    finding = (
        f"On these {cell.n} pairs of {_patients(cell, cell.class_of >= 0)} patients pointing hits {_share(smallest)} "
        f"of the {smallest['n']} smallest regions ({sizes}) and {_share(worst)} of the {worst['n']} of "
        f"{worst['class']}, the worst finding. Its worst cases: {shown}."
    )
    table = f"xbench-fast study strata {block.path}, xbench-fast study failures {block.path}"
    line = CardLine(DESCRIBED, "no verdict", "no verdict", finding, numbers, table=table)
    pictures = tuple(
        Picture(
            f"{row['case']}, {row['class']}: Dice {percent(row['dice'], 1)} at {row['tau']:.2f}, "
            f"pointing {'hit' if row['hit'] > 0 else 'miss'}",
            study.files.get(str(row["overlay"])),
        )
        for row in cases
    )
    return line, pictures


def _basis(row: Mapping[str, Any], patients: int) -> dict[str, Any]:
    """The fields of a number that a row of a study of pointing names otherwise."""
    chance = "" if row["chance"] is None else f"chance {percent(row['chance'], 1)} %"
    return {"unit": "pointing", "baseline": chance, "pairs": row["n"], "patients": patients}


def _patients(cell: StudyCell, pairs: NDArray[np.bool_]) -> int:
    return len(np.unique(cell.patient_of[pairs]))


def _size(row: Mapping[str, Any]) -> str:
    low, high = (percent(row[f"size_{end}"], 1) for end in ("smallest", "largest"))
    return f"{low} to {high} %"


def _share(row: Mapping[str, Any]) -> str:
    return f"{percent(row['pointing'], 1)} %"
