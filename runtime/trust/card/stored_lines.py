"""Lines 1 to 3 of a card, from the study of trust, and what a radiologist gets on the same pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....engines.errors import RunError
from ...reporting.studies.kept_maps import kept_maps, map_places
from ...reporting.studies.material import Material
from ...reporting.studies.readers.ceiling import ceiling_rows, is_reader
from ...reporting.studies.study_cell import StudyCell
from ...reporting.studies.study_outcome import StudyOutcome
from ...reporting.tables.metric_names import percent
from ..questions.trust_study import study_trust
from .card import CardLine, CardNumber, judged_line, rows_of, unjudged_line

_BASELINES: Final = {1: "chance", 2: "prior", 3: "other_finding"}
_WORDS: Final = {
    "chance": ("average precision: the map - chance", "AP - chance"),
    "prior": ("average precision: the map - the mean map of the finding in other patients", "AP - mean map of others"),
    "other_finding": (
        "average precision: the map - maps of other present findings of the image",
        "AP - other findings",
    ),
}


def asked_of_maps(block: Material) -> StudyOutcome | None:
    """The study of trust of a block; None where no result has maps."""
    try:
        return study_trust(block)
    except RunError:
        return None


def why_no_map(cell: StudyCell, block: Material) -> str:
    """Why the study of trust has nothing of a cell."""
    if is_reader(cell):
        return "a reader marks regions, and has no map"
    try:
        map_places(cell, kept_maps(cell, block.run)[0])
    except RunError as error:
        return str(error)
    return "its maps could not be tested"


def stored_line(number: int, cell: StudyCell, block: Material, study: StudyOutcome | None) -> CardLine:
    """Line 1, 2 or 3 by the maps that the run keeps."""
    baseline = _BASELINES[number]
    table = f"xbench-fast study trust {block.path}"
    rows = [] if study is None else rows_of(study.data["verdicts"], cell, baseline=baseline)
    if not rows:
        why = why_no_map(cell, block)
        without = not cell.has_thresholds or cell.weights == "baseline"
        return unjudged_line(number, "not applicable" if without else "not run", why)
    (row,) = rows
    counts = {why: int(count) for why, count in (each.rsplit(": ", 1) for each in row["why"].split("; ") if each)}
    what, label = _WORDS[baseline]
    asked = CardNumber.of(
        row,
        "difference",
        what=what,
        label=label,
        unit="average precision",
        baseline=_against(row),
        word=row["verdict"],
        left_out=counts,
        degenerate=row["degenerate"],
    )
    more = _more(cell, study, number) if study is not None else []
    told = "" if row["difference"] is None else f"{row['difference']:+.3f} in average precision"
    return judged_line(number, [asked, *more], table=table, told=told)


def _more(cell: StudyCell, study: StudyOutcome, number: int) -> list[CardNumber]:
    """Pointing beside average precision on line 1, and ROC AUC on the others."""
    keys = {"class": "mean", "measure": "pointing" if number == 1 else "roc_auc"}
    if number == 1:
        (score,) = rows_of(study.data["scores"], cell, **keys)
        against = rows_of(study.data["differences"], cell, baseline="chance", **keys)
        reference = against[0]["reference"] if against else None
        baseline = "" if reference is None else f"chance {percent(reference, 1)} %"
        words = {"what": "pointing", "label": "pointing", "unit": "pointing"}
        return [CardNumber.of(score, "value", baseline=baseline, **words)]
    words = {"what": "ROC AUC, the same difference", "label": "ROC AUC", "unit": "ROC AUC"}
    return [
        CardNumber.of(row, "difference", baseline=_against(row), **words)
        for row in rows_of(study.data["differences"], cell, baseline=_BASELINES[number], **keys)
        if row["difference"] is not None
    ]


def beside_readers(cell: StudyCell, block: Material) -> tuple[list[CardNumber], list[str]]:
    """Pointing and Dice of a model minus those of each reader of its dataset, on the pairs of both, and sentences."""
    numbers: list[CardNumber] = []
    remarks: list[str] = []
    for reader in block.paired:
        if reader.dataset != cell.dataset or not is_reader(reader) or cell.weights == "baseline" or is_reader(cell):
            continue
        only = Material(block.run, (reader, cell), (), block.sampling)
        rows, more_remarks = ceiling_rows(only, reader)
        remarks += more_remarks
        for row in rows:
            if row["finding"] == "mean" and row["measure"] in ("pointing", "dice_fixed"):
                numbers.append(_beside(row))
    return numbers, remarks


def _beside(row: Mapping[str, Any]) -> CardNumber:
    name = "pointing" if row["measure"] == "pointing" else "Dice at 0.5"
    values = f"map {percent(row['value'], 1)} %, radiologist {percent(row['reader_value'], 1)} %"
    return CardNumber.of(
        row,
        "difference",
        what=f"{name}: the map - the radiologist ({row['reader']})",
        label=f"{name} - radiologist",
        unit="gap",
        baseline=values,
        pairs=row["n"],
    )


def _against(row: Mapping[str, Any]) -> str:
    if row["reference"] is None:
        return ""
    return f"map {row['own']:.3f}, {row['baseline'].replace('_', ' ')} {row['reference']:.3f}"
