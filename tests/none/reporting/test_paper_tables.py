"""The paper's numbers as package data: complete, as specified, and consistent where they are said to be."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.reporting.paper import paper
from xbench_fast.runtime.reporting.paper.paper_numbers import FIELDS

PAPER = paper()
KEYS = {metric: key for key, metric in FIELDS.items()}
NAMES = {
    "COVID-19 Rural": "covid_rural",
    "RSNA Pneumonia": "rsna",
    "SIIM-ACR Pneumothorax": "siim",
    "ChestX-ray14": "chestxray14",
    "ChestX-Det10": "chestxdet10",
    "CheXlocalize": "chexlocalize",
    "VinDr-CXR": "vindr",
}


def rows(reference_files: Path, name: str) -> list[dict[str, str]]:
    with (reference_files / "spec" / "paper_tables" / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_seven_models_on_seven_datasets() -> None:
    assert PAPER.families == ("clip", "biomedclip", "medklip", "kad", "mavl", "carzero", "devide")
    assert set(PAPER.datasets) == set(NAMES.values())
    assert len(PAPER.table1) == 7 * 7 * 3 and len(PAPER.classes) == 7 * (21 + 8 + 10 + 13)
    assert PAPER.delta_dice["kad"].value == 9.7 and len(PAPER.delta_dice) == 7 and PAPER.r2.value == 0.92


@pytest.mark.parametrize("dataset", ["vindr", "chestxray14", "chestxdet10", "chexlocalize"])
def test_classes_are_those_of_the_readers(dataset: str) -> None:
    reader = DATASETS.load(dataset)
    printed = {name for _, where, name in PAPER.classes if where == dataset}
    assert printed <= set(reader.classes)
    assert set(reader.classes) - printed == ({"Edema"} if dataset == "vindr" else set())


def test_table_1_is_the_mean_of_the_cells() -> None:
    """Repaired cells included; the printed means of Tables 4 and 5 are not, and are flagged."""
    for family in PAPER.families:
        for dataset in ("vindr", "chestxray14", "chestxdet10", "chexlocalize"):
            cells = [p.value for (f, d, _), p in PAPER.classes.items() if (f, d) == (family, dataset)]
            mean, table1 = sum(cells) / len(cells), PAPER.table1[family, dataset, "pointing"].value
            assert mean == pytest.approx(table1, abs=0.0101), (family, dataset)
            printed = PAPER.means[family, dataset]
            if abs(printed.value - mean) > 0.0101:
                assert printed.flag, (family, dataset)


def test_cells_are_fractions_of_the_pairs_they_are_said_to_fit() -> None:
    known = 0
    for key, printed in PAPER.classes.items():
        if printed.pairs is None:
            continue
        known += 1
        hits = round(printed.value * printed.pairs / 100)
        assert 100 * hits / printed.pairs == pytest.approx(printed.value, abs=0.0051), key
    assert known > 300


def test_what_is_known_against_a_number_is_flagged() -> None:
    flagged = {key for key, printed in PAPER.table1.items() if printed.flag}
    assert flagged == {("mavl", "rsna", "dice_best"), ("mavl", "rsna", "iou_best"), ("biomedclip", "siim", "pointing")}
    repaired = {key for key, printed in PAPER.classes.items() if "repaired" in printed.flag}
    lesions = ("Other lesion", "Pleural effusion", "Pleural thickening")
    assert repaired == {*(("carzero", "vindr", name) for name in lesions), ("devide", "vindr", "Mediastinal shift")}
    assert PAPER.classes["carzero", "vindr", "Other lesion"].text == "18.52\u2020"
    assert PAPER.classes["kad", "vindr", "Other lesion"].text == "3.37"


def test_table_1_is_the_papers(reference_files: Path) -> None:
    for row in rows(reference_files, "table1_grounding.csv"):
        printed = PAPER.table1[row["model"].lower(), NAMES[row["dataset"]], KEYS[row["metric"]]]
        assert (printed.digits, printed.underlined) == (row["value_percent"], row["underline_seen_in_text"] == "1")


def test_class_tables_are_the_papers(reference_files: Path) -> None:
    for file, dataset in [
        ("table3_chestxray14_pointing.csv", "chestxray14"),
        ("table4_chexdet10_pointing.csv", "chestxdet10"),
        ("table5_chexlocalize_pointing.csv", "chexlocalize"),
    ]:
        for row in rows(reference_files, file):
            family, mean = row.pop("model").lower(), float(row.pop("Mean"))
            cells = [p.value for (f, d, _), p in PAPER.classes.items() if (f, d) == (family, dataset)]
            assert cells == [float(value) for value in row.values()]
            assert PAPER.means[family, dataset].value == mean
    found: dict[str, list[str]] = {}
    for row in rows(reference_files, "table2_vindr_pointing.csv"):
        if row["class"] != "Mean":
            found.setdefault(row["model"].lower(), []).append(row["value_mean_consistent"])
    for family, digits in found.items():
        cells = [p.digits for (f, d, _), p in PAPER.classes.items() if (f, d) == (family, "vindr")]
        assert cells == digits


def test_denominators_are_the_shared_ones(reference_files: Path) -> None:
    """Of the classes whose abbreviation the paper prints alone: the fits of one dataset and group of models."""
    with (Path(__file__).parents[3] / "runtime/reporting/paper/classes.csv").open(newline="") as stream:
        ours = {(row["dataset"], row["label"], row["family"]): row["pairs"] for row in csv.DictReader(stream)}
    checked = 0
    for row in rows(reference_files, "reconstructed_denominators.csv"):
        dataset, fit = NAMES[row["dataset"]], row["denominator_fit_from_printed_percentages"]
        for (where, label, family), pairs in ours.items():
            if (where, label) != (dataset, row["class"]):
                continue
            named = [name.lower() for name in row["models"].split(";")]
            if row["models"] == "all" or family in named or (named == ["all but carzero"] and family != "carzero"):
                assert pairs == (fit if fit.isdigit() else ""), (dataset, label, family)
                checked += 1
    assert checked == len(ours)
