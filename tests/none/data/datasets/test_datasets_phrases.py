"""MS-CXR and PadChest-GR as published (docs/phrase-grounding.md §11): counts, spellings, odd rows, hostile rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.attributes.lookup import look_up
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr
from xbench_fast.runtime.data.datasets.phrases.padchest_gr import PadChestGr
from xbench_fast.runtime.data.datasets.phrases.phrase_pairs import asked, image_id, phrase_key

HEADER = "dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split\n"
PLACE = "files/p10/p10000001/s1"
ROW = f"a,Edema,one phrase,{PLACE}/a.jpg,1,2,3,4,12,10,train\n"
CSV, JSON = (f"MS_CXR_Local_Alignment_v1.1.0.{form}" for form in ("csv", "json"))
REPORTS = "grounded_reports_20240819.json"


def ms_cxr(root: Path, rows: str = ROW, **options: Any) -> MsCxr:
    (root / CSV).write_text(HEADER + rows)
    return MsCxr(root, **options)


def padchest(root: Path, *findings: dict[str, Any], **options: Any) -> PadChestGr:
    study = {"StudyID": "1", "ImageID": "a.png", "findings": list(findings)}
    (root / REPORTS).write_text(json.dumps([study]))
    return PadChestGr(root, **options)


def seen(text: str = "A.", **more: Any) -> dict[str, Any]:
    return {"sentence_en": text, "abnormal": True, "boxes": [[0.1, 0.2, 0.3, 0.4]], "labels": ["x"], **more}


@pytest.fixture
def expected(reference_files: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((reference_files / "boxes/phrase_layouts_expected.json").read_text())
    return found


@pytest.mark.parametrize("file", [CSV, JSON])
def test_the_published_layout_of_ms_cxr(reference_files: Path, expected: dict[str, Any], file: str) -> None:
    want = expected["ms_cxr"]
    dataset = MsCxr(reference_files / "boxes/ms_cxr", annotations=file)
    found = audit(dataset)
    assert (found.images_expected, found.pairs) == (want["images"], want["pairs_after_lower_case"])
    assert found.boxes == want["rows"] - want["degenerate_rows"] and found.phrases == found.pairs
    assert [note.kind for note in dataset.notes if note.kind != "no_images_folder"] == ["degenerate"]
    if file == CSV:
        assert found.splits == want["splits"]
    first, _, third, last = dataset.cases()
    assert first.patient_id == "p10000001" and first.size == (3056, 2544)
    assert first.phrases == {"Pneumonia": "Right basal opacity", "Cardiomegaly": "heart size is mildly enlarged"}
    assert first.image == reference_files / "boxes/ms_cxr/files/p10/p10000001/s50000001/invented-0001.jpg"
    assert third.phrases["Consolidation"] == "left lower lobe consolidation, unchanged", "a comma, two spellings"
    area = third.regions["Consolidation"].mask(2022, 2022).sum()
    assert area == 420 * 510 + 380 * 300 - (1830 - 1500) * (1910 - 1700), "the union of both spellings"
    assert not last.phrases and not last.regions and set(last.labels.values()) == {None}
    assert all(phrase not in str(note) for note in dataset.notes for case in dataset.cases() for phrase in case.phrases)


def test_both_files_of_ms_cxr_say_the_same(reference_files: Path) -> None:
    table, document = (MsCxr(reference_files / "boxes/ms_cxr", annotations=file).cases() for file in (CSV, JSON))
    for one, other in zip(table, document, strict=True):
        assert (one.case_id, one.image, one.regions, one.phrases) == (
            other.case_id, other.image, other.regions, other.phrases,
        )  # fmt: skip
        assert (one.patient_id, one.size, one.labels) == (other.patient_id, other.size, other.labels)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_split_of_ms_cxr(reference_files: Path, expected: dict[str, Any], split: str) -> None:
    cases = MsCxr(reference_files / "boxes/ms_cxr", split=split).cases()
    assert len(cases) == expected["ms_cxr"]["splits"][split] and {case.split for case in cases} == {split}


def test_a_second_phrase_of_a_finding_is_a_second_case(tmp_path: Path) -> None:
    other = f"b,Edema,one phrase,{PLACE}/b.jpg,1,2,3,4,12,10,train\n"
    rows = ROW + ROW.replace("one phrase", "Another").replace("1,2,3,4", "5,2,3,4") + other
    dataset = ms_cxr(tmp_path, rows + ROW.replace("Edema,one", "Pneumonia,ONE"))
    first, second, third = dataset.cases()
    assert [case.case_id for case in dataset.cases()] == ["a", "a~2", "b"]
    assert first.phrases == {"Edema": "one phrase", "Pneumonia": "ONE phrase"} and second.phrases == {
        "Edema": "Another"
    }
    assert first.image == second.image and first.patient_id == second.patient_id == "p10000001"
    assert second.regions["Edema"].mask(10, 12)[2, 5] and not first.regions["Edema"].mask(10, 12)[2, 5]
    assert second.labels["Pneumonia"] is None and image_id(second.case_id) == image_id("a") == "a"
    assert asked(dataset.cases()) == {
        ("a", "one phrase"): [("a", "Edema"), ("a", "Pneumonia")],
        ("a", "another"): [("a~2", "Edema")],
        ("b", "one phrase"): [("b", "Edema")],
    }
    assert third.rows == (4,)


def test_phrases_without_a_box_are_kept_as_not_asked(tmp_path: Path) -> None:
    flat = "1,2,0,4"
    rows = ROW + ROW.replace("one phrase", "Another").replace("1,2,3,4", flat) + ROW.replace("1,2,3,4", flat)
    (case,) = ms_cxr(tmp_path, rows + ROW.replace("Edema,one", "Pneumonia,ONE").replace("1,2,3,4", flat)).cases()
    assert case.phrases == {"Edema": "one phrase"} and case.unasked == ("another",)
    first, second = padchest(
        tmp_path, seen("A."), seen("B."), seen("C.", boxes=[]), seen("D.", boxes=[], abnormal=False)
    ).cases()
    assert first.unasked == ("c.",) and second.unasked == ()


def test_cases_of_one_image_are_one_patient(tmp_path: Path) -> None:
    first, second = padchest(tmp_path, seen("A."), seen("B.")).cases()
    assert first.patient_id == second.patient_id == "image a", "a patient of their own, as its files name none"
    assert padchest(tmp_path, seen("A.")).cases()[0].patient_id is None


def test_phrases_are_compared_stripped_and_in_lower_case(tmp_path: Path) -> None:
    assert phrase_key(" Left\r\nBase ") == "left base"
    rows = ROW + ROW.replace("one phrase", '" One\nPHRASE "').replace("1,2,3,4", "5,2,3,4") + ROW
    dataset = ms_cxr(tmp_path, rows)
    assert [case.phrases for case in dataset.cases()] == [{"Edema": "one phrase"}]
    assert [note.kind for note in dataset.notes] == ["duplicate"]
    (case,) = dataset.cases()
    assert case.regions["Edema"].mask(10, 12).sum() == 2 * 12


def test_images_are_found_by_path_or_by_name(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat/a.png").touch()
    assert ms_cxr(tmp_path, images="flat").cases()[0].image == tmp_path / "flat/a.png"
    (tmp_path / PLACE).mkdir(parents=True)
    (tmp_path / PLACE / "a.jpg").touch()
    assert ms_cxr(tmp_path).cases()[0].image == tmp_path / PLACE / "a.jpg"
    (case,) = ms_cxr(tmp_path, ROW.replace(f"{PLACE}/a.jpg", ""), images="none").cases()
    assert case.image == tmp_path / "none/a.jpg" and case.patient_id is None


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (ROW.replace("1,2,3,4", "1,2,-3,4"), "has a negative size"),
        (ROW.replace("1,2,3,4", "1,nan,3,4"), "y is 'nan', not a finite number"),
        (ROW.replace("one phrase", " "), "label_text is empty"),
        (ROW.replace("a,Edema", ",Edema"), "dicom_id is empty"),
        (ROW.replace("12,10", "12,10.5"), "the image's size 12 x 10.5 is not in whole pixels"),
        (ROW.replace("12,10", "12,11"), "'a' has another size than in row 2"),
        (ROW.replace("p10000001", "p10000002"), "'a' has another patient than in row 2"),
        (ROW.replace("train", "val"), "'a' has another split than in row 2"),
        (ROW.replace("train", "other"), "split is 'other', not one of train, val, test"),
        (ROW.replace("a,Edema", "b,Edema").replace("files/", "../"), "leads out of the folder"),
        (ROW.replace("one phrase", "one, phrase"), "12 cells, the header has 11"),
    ],
)
def test_a_row_of_ms_cxr_that_cannot_be_used(tmp_path: Path, row: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"row 3: .*{cause}") as error:
        ms_cxr(tmp_path, ROW + row).cases()
    assert "phrase" not in str(error.value)


def test_the_first_version_of_ms_cxr_has_no_split(tmp_path: Path) -> None:
    table = (HEADER + ROW).replace(",split", "").replace(",train", "")
    (tmp_path / "MS_CXR_Local_Alignment_v1.0.0.csv").write_text(table)
    assert [case.split for case in MsCxr(tmp_path).cases()] == ["all"]
    with pytest.raises(DataError, match="the header lacks split"):
        MsCxr(tmp_path, split="test").cases()
    with pytest.raises(ConfigError, match=r"cannot take split=test from a\.json, which has no split"):
        MsCxr(tmp_path, split="test", annotations="a.json")
    with pytest.raises(DataError, match=r"MS_CXR_Local_Alignment_v1\.1\.0\.csv does not exist"):
        (tmp_path / "empty").mkdir()
        MsCxr(tmp_path / "empty").cases()


def test_unknown_categories_are_noted(tmp_path: Path) -> None:
    dataset = ms_cxr(tmp_path, ROW + ROW.replace("Edema", "Fracture"))
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("unknown_class", "Fracture", 3)]
    assert [case.phrases for case in dataset.cases()] == [{"Edema": "one phrase"}]


def count_pairs(dataset: Dataset) -> int:
    return sum(len(case.phrases) for case in dataset.cases())


def test_the_published_layout_of_padchest_gr(reference_files: Path, expected: dict[str, Any]) -> None:
    want, folder = expected["padchest_gr"], reference_files / "boxes/padchest_gr"
    dataset = PadChestGr(folder)
    found = audit(dataset)
    assert (found.images_expected, found.pairs, found.boxes) == (want["studies"], want["grounded_pairs"], want["boxes"])
    assert found.splits == want["splits"] and found.notes["no_region"] == want["positive"] - want["grounded_pairs"]
    first, second, third = dataset.cases()
    assert first.case_id == "900000001_invented_01" and first.patient_id == "P1" and first.attributes == {"sex": "F"}
    assert first.phrases == {"Pleural effusion": "Small left pleural effusion."}
    assert second.phrases == {"Nodule": "Nodules in both upper lobes."} and not third.phrases
    spanish = PadChestGr(folder, language="es", category="label").cases()[0]
    assert spanish.phrases == {"pleural effusion": "Pequeño derrame pleural izquierdo."}
    assert [case.case_id for case in PadChestGr(folder, split="test").cases()] == ["900000002_invented_01"]
    extra, union = (PadChestGr(folder, region=region) for region in ("extra", "union"))
    assert audit(extra).boxes == count_pairs(extra) == want["extra_boxes"]
    assert audit(union).boxes == want["boxes"] + want["extra_boxes"]
    assert union.cases()[0].regions["Pleural effusion"].mask(1000, 1000)[690, 600], "only the second reader's box"


def test_odd_sentences_of_padchest_gr(tmp_path: Path) -> None:
    dataset = padchest(
        tmp_path,
        seen("B.", boxes=[[0.1, 0.2, 0.1, 0.4]]),
        {"sentence_en": "C.", "abnormal": False, "boxes": [[0.1, 0.2, 0.3, 0.4]]},
        {"sentence_en": "D."},
        seen("E.", labels=[]),
        seen("e. ", labels=None, boxes=[[0.5, 0.2, 0.7, 0.4]]),
    )
    assert [note.kind for note in dataset._early] == ["degenerate", "no_region", "disagreement"]
    (case,) = dataset.cases()
    assert case.phrases == {"No label": "E."} and case.split == "all"
    assert case.regions["No label"].mask(10, 10).sum() == 2 * 4


@pytest.mark.parametrize(
    ("finding", "cause"),
    [
        (seen(boxes=[[0.1, 0.2, 0.3]]), "not a list of 4 numbers"),
        (seen(boxes=[[0.3, 0.2, 0.1, 0.4]]), "ends before it begins"),
        (seen(boxes=[[10, 20, 30, 40]]), "is not in fractions of the image"),
        (seen(boxes="x"), "boxes is not a list"),
        (seen(labels=[1]), "labels is not a list of texts"),
        (seen(sentence_en=None), "has no sentence_en"),
        ({"abnormal": False}, "no positive sentence has boxes"),
    ],
)
def test_a_study_that_cannot_be_used(tmp_path: Path, finding: dict[str, Any], cause: str) -> None:
    with pytest.raises(DataError, match=cause):
        padchest(tmp_path, finding)


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        ("ImageID,split\na.png,testing\n", "row 2: split is 'testing', not one of train, validation, test"),
        ("ImageID,split\na.png,test\na.png,train\n", "row 3: 'a' has another split"),
        ("ImageID,PatientID\na.png,1\na.png,2\n", "row 3: 'a' has another PatientID"),
        ("label,split\nx,test\n", "row 2: the row has neither ImageID nor StudyID"),
    ],
)
def test_a_table_that_contradicts_itself(tmp_path: Path, table: str, cause: str) -> None:
    (tmp_path / "master_table.csv").write_text(table)
    with pytest.raises(DataError, match=cause):
        padchest(tmp_path, seen())


def test_the_sex_of_the_table_is_an_attribute(tmp_path: Path) -> None:
    table = "StudyID,ImageID,PatientSex_DICOM\n"
    for rows, wanted in (
        ("1,a.png,f\n1,a.png,\n", {"sex": "F"}),
        ("1,,M\n", {"sex": "M"}),
        ("1,a.png,F\n1,a.png,M\n", {}),
    ):
        (tmp_path / "master_table.csv").write_text(table + rows)
        dataset = padchest(tmp_path, seen())
        found = look_up([case.case_id for case in dataset.cases()], dataset)
        assert found.cases == (wanted,) and found.source == "the reader padchest_gr"
    (tmp_path / "master_table.csv").write_text("StudyID,label\n1,x\n")
    (case,) = padchest(tmp_path, seen()).cases()
    assert case.attributes is None


def test_the_table_is_joined_by_study_too(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("StudyID,label,label_group,split\n1,X,Group,test\n")
    (case,) = padchest(tmp_path, seen(), table="table.csv", split="test").cases()
    assert case.split == "test" and case.phrases == {"Group": "A."}
    with pytest.raises(ConfigError, match=r"has split=test but no master_table\.csv"):
        padchest(tmp_path, seen(), split="test")
