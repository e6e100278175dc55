"""COCO results, grounded phrases, and datasets that ask phrases (docs/boxes.md §1, §6)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_files import CLASSES, case, read, small, written
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.answers.answered import BoxFile, State
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.answers.lines import JsonFile
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr

NAMES = {
    "images": [
        {"id": 1, "file_name": "x/a.png", "width": 1024, "height": 1024},
        {"id": "two", "file_name": "b.png"},
        {"id": 9, "file_name": "of-another-dataset.png"},
    ],
    "categories": [{"id": 5, "name": "Mass"}, {"id": 6, "name": "Effusion"}],
}


def detection(image: Any = 1, category: Any = 5, bbox: Any = (10, 20, 30, 40), score: Any = 0.5) -> dict[str, Any]:
    return {"image_id": image, "category_id": category, "bbox": list(bbox), "score": score, "id": 7}


def coco(folder: Path, results: Any, names: Any = NAMES, **options: Any) -> BoxFile:
    (folder / "names.json").write_text(json.dumps(names))
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    return read_boxes(folder / "results.json", small(), ReadOptions(coco=folder / "names.json", **options))


def test_coco_results(tmp_path: Path) -> None:
    found = coco(tmp_path, [detection("two"), detection(score=2), detection(category=6), detection("two", 6)])
    positives = found.positives
    assert positives.state.tolist() == [State.ANSWERED] * 3 and positives.lines.tolist() == [3, 2, 1]
    assert positives.boxes.tolist() == [[10, 20, 40, 60]] * 3 and positives.scores is not None
    assert positives.scores.tolist() == [0.5, 2, 0.5]
    # c is no image of the COCO file, and Nodule no category, so neither was asked.
    assert found.negatives.pairs == (("b", "Effusion"),) and found.not_asked == 3 and found.lines == 4
    assert (found.file_format, found.silence) == ("coco", "absent")
    assert found.sha256 == hashlib.sha256((tmp_path / "results.json").read_bytes()).hexdigest()


def test_absent_detections_are_silence(tmp_path: Path) -> None:
    names = {**NAMES, "images": NAMES["images"][:1]}
    found = coco(tmp_path, [detection(), detection(bbox=(2000, 1, 5, 5))], names)
    assert found.positives.state.tolist() == [State.SILENT, State.ANSWERED, State.MISSING]
    assert found.positives.counts()["outside"] == 1
    found = coco(tmp_path, [])
    assert found.positives.state.tolist() == [State.SILENT] * 3
    assert found.negatives.state.tolist() == [State.SILENT] and not found.negatives.tried.any()


def test_detections_of_a_pair_stay_in_the_order_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xbench_fast.runtime.data.answers.collecting.CHECKED", 1)
    found = coco(tmp_path, [detection(("two", 1, 1)[n % 3], bbox=(n, 2, 5, 5)) for n in range(90)]).positives
    assert found.pairs == (("a", "Effusion"), ("a", "Mass"), ("b", "Mass")) and found.lines.tolist() == [0, 2, 1]
    assert found.boxes[:, 0].tolist() == [n for n in range(90) if n % 3] + list(range(0, 90, 3))
    assert coco(tmp_path, [detection("two"), detection(1)]).written.pairs.tolist() == [2]
    mass = found.places[1]
    assert found.positions(np.array([[mass + 1, mass], [99, -1]])).tolist() == [[-1, 1], [-1, -1]]


def test_coco_results_and_studies_in_one_line_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xbench_fast.runtime.data.answers.lines.MAX_LINE", 100)
    (tmp_path / "names.json").write_text(json.dumps(NAMES))
    (tmp_path / "f.json").write_text(f"\n {json.dumps([detection()] * 5)}")
    assert read_boxes(tmp_path / "f.json", small(), ReadOptions(coco=tmp_path / "names.json")).file_format == "coco"
    (tmp_path / "f.json").write_text(json.dumps({"a": [{"text": "mass", "boxes": None}] * 5}))
    assert read_boxes(tmp_path / "f.json", small()).file_format == "radfact"


def parsed(path: Path, text: str) -> tuple[Any, str]:
    """The value that a file gives entry by entry, and the error if it is none."""
    path.write_text(text)
    try:
        found = list(JsonFile(path).entries())
    except DataError as error:
        return None, str(error)
    return ([value for _, value in found] if text.lstrip().startswith("[") else dict(found)), ""


@pytest.mark.parametrize(
    "text", [' [1, {"a": [2, "}"]}, "x,]", [] ] ', '{"a": {"b": 1}, "c" : [1, 2], "d":"]"}\n', "[]", "{ }"]
)
def test_entries_are_those_of_the_whole(text: str, tmp_path: Path) -> None:
    """Also where one sign is left out or another one stands in its place: the same value, or the same sentence."""
    path, wrong = tmp_path / "f.json", 0
    signs = ["", *'[]{},:"1 ']
    for changed in {text, *(text[:at] + sign + text[at + 1 :] for at in range(len(text)) for sign in signs)}:
        path.write_text(changed)
        found, told = parsed(path, changed)
        try:
            whole = JsonFile(path).document()
        except DataError as error:
            wrong += 1
            assert told == str(error) or not changed.strip().startswith(("[", "{"))
        else:
            assert (found, told) == (whole, "") or not isinstance(whole, list | dict)
    assert wrong > len(text)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        (detection(7), "image_id"),
        (detection(True), "image_id"),
        (detection([1]), "image_id"),
        (detection(9), "case"),
        (detection(category=1), "category_id"),
        (detection(bbox=(1, 2, 3)), "bbox"),
        (detection(bbox=(1, 2, 3, "4")), "bbox"),
        (detection(score=None), "score"),
        (detection(score=float("inf")), "score"),
        ({"image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4]}, "score"),
        ({"image_id": 1, "category_id": 5, "score": 1}, "bbox"),
        (detection(bbox=(0.1, 0.1, 0.2, 0.2)), "frame"),
    ],
)
def test_coco_entries_that_stop(entry: Any, key: str, tmp_path: Path) -> None:
    results = [entry] if key == "frame" else [detection(), entry]
    with pytest.raises(DataError, match=f"results.json, entry {len(results)}, key '{key}': "):
        coco(tmp_path, results)
    if key != "frame":
        found = coco(tmp_path, results, count_bad_lines=True)
        assert found.rejected == 1 and len(found.positives.boxes) == 1


def test_coco_files_that_stop(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--coco FILE"):
        read_boxes(written(tmp_path / "f.jsonl", "[1, 2, 3]"), small())
    other = {**NAMES, "images": [{"id": 1, "file_name": "a.png", "width": 512, "height": 512}]}
    with pytest.raises(DataError, match=r"entry 1, key 'image_id': the COCO file says 512 x 512"):
        coco(tmp_path, [detection()], other)
    with pytest.raises(DataError, match=r"no list 'categories'"):
        coco(tmp_path, [], {"images": []})
    with pytest.raises(DataError, match=r"entry 1 of images: it needs id and file_name"):
        coco(tmp_path, [], {"images": [{"id": 1}], "categories": []})
    (tmp_path / "names.json").write_text(json.dumps(NAMES))
    (tmp_path / "twice.json").write_text('[{"image_id": 1, "image_id": 2}]')
    with pytest.raises(DataError, match="'image_id' appears twice"):
        read_boxes(tmp_path / "twice.json", small(), ReadOptions(coco=tmp_path / "names.json"))


@pytest.mark.parametrize("name", ["f.json", "f.jsonl"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_coco_file_of_annotations_is_named_and_so_is_its_option(
    name: str, indent: int | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    for keys in ({}, {"info": {}, "annotations": []}):
        path.write_text(json.dumps({**NAMES, **keys}, indent=indent))
        told = "it is not valid JSON" if indent and name == "f.jsonl" else f"COCO file of annotations.*--coco {path}"
        with pytest.raises(DataError, match=told):
            read_boxes(path, small())


@pytest.mark.parametrize(
    "line",
    [
        "case,finding,x1,y1,x2,y2",
        "a,Mass,1,2,3,4",
        "0 0.5 0.5 0.25 0.25",
        "0.5",
        "<annotation>",
        "a;Mass;1;2",
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".txt", ".jsonl"])
def test_a_file_of_another_tool_is_answered_with_the_formats(line: str, suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"f{suffix}", line, line)
    with pytest.raises(DataError, match=r"line 1: .*JSON Lines, COCO results or RadFact's grounded phrases") as caught:
        read_boxes(path, small())
    assert str(caught.value).endswith("(docs/boxes.md), so convert the file.") and ";" in str(caught.value)
    with pytest.raises(DataError, match=r"line 2: it is not valid JSON .*; write one object a line"):
        read_boxes(
            written(path, json.dumps({"case": "a", "finding": "Mass", "boxes": [], "frame": "unit"}), "a,b"), small()
        )


def radfact(
    folder: Path, studies: Any, mapping: Any = None, questions: Questions | None = None, **options: Any
) -> BoxFile:
    path = None
    if mapping is not None:
        path = folder / "mapping.json"
        path.write_text(json.dumps(mapping))
    (folder / "grounded.json").write_text(json.dumps(studies, indent=1))
    return read_boxes(folder / "grounded.json", questions or small(), ReadOptions(mapping=path, **options))


def unit(*corners: float) -> dict[str, float]:
    return dict(zip(("x_min", "y_min", "x_max", "y_max"), corners, strict=True))


STUDIES = {
    "a": [
        {"text": " mass", "boxes": [unit(0.25, 0.5, 0.75, 1)]},
        {"text": "A large mass.", "boxes": [unit(0, 0, 0.5, 0.5), unit(0, 0, 0, 0)]},
        {"text": "No effusion.", "boxes": None},
        {"text": "NODULE", "boxes": []},
    ],
    "b": [{"text": "Mass", "boxes": None}],
}


def test_grounded_phrases(tmp_path: Path) -> None:
    found = radfact(tmp_path, STUDIES)
    assert found.positives.boxes.tolist() == [[256, 512, 768, 1024]] and found.unmatched == 2 and found.lines == 5
    assert found.positives.state.tolist() == [State.SILENT, State.ANSWERED, State.SILENT]
    assert found.negatives.pairs == (("a", "Nodule"), ("b", "Effusion")) and not found.negatives.tried.any()
    assert (found.file_format, found.silence, found.not_asked) == ("radfact", "absent", 2)


def test_texts_are_mapped_to_findings(tmp_path: Path) -> None:
    found = radfact(tmp_path, STUDIES, {"a large mass.": "Mass", "No effusion.": "Effusion", "nodule": None})
    assert found.positives.boxes.tolist() == [[256, 512, 768, 1024], [0, 0, 512, 512]]
    assert found.positives.illegal.tolist() == [0, 1, 0] and found.unmatched == 1
    with pytest.raises(DataError, match="--mapping FILE"):
        radfact(tmp_path, {"a": STUDIES["a"][1:3]})
    with pytest.raises(DataError, match="mapped to int"):
        radfact(tmp_path, STUDIES, {"mass": 5})


@pytest.mark.parametrize(
    ("studies", "told"),
    [
        ({"z": []}, "key 'case'"),
        ({"a": [{"text": "mass"}]}, "entry 1, key 'boxes'"),
        ({"a": [{"text": "mass", "boxes": None}, {"text": "mass", "boxes": [{"x_min": 0}]}]}, "entry 2, key 'boxes'"),
        ({"a": [{"text": "mass", "boxes": [unit(0, 0, "1", 1)]}]}, "entry 1, key 'boxes'"),
        ({"a": [{"text": "mass", "boxes": [unit(10, 10, 500, 500)]}]}, "entry 1, key 'frame'"),
        ({"a": ["mass"]}, "entry 1, key 'text'"),
    ],
)
def test_grounded_phrases_that_stop(studies: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=told):
        radfact(tmp_path, studies)


def test_a_json_file_without_studies(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"a":\n')
    with pytest.raises(DataError, match="is not a JSON file"):
        read_boxes(tmp_path / "f.json", small())
    (tmp_path / "f.jsonl").write_text('{"a":\n')
    with pytest.raises(DataError, match="line 1: it is not valid JSON"):
        read_boxes(tmp_path / "f.jsonl", small())


def phrases() -> Questions:
    """Image a asks "Left effusion" and "Small one" for Effusion, and "small one" for Mass; image b asks one phrase."""
    given = {
        "a": {"Effusion": "Left effusion", "Mass": "small one"},
        "a~2": {"Effusion": "Small one"},
        "b": {"Mass": "It"},
    }
    cases = []
    for name, asked in given.items():
        plain = case(name, {finding: 1 if finding in asked else None for finding in CLASSES})
        image = Path(name.partition("~")[0] + ".png")
        cases.append(type(plain)(name, image, plain.labels, plain.regions, "test", size=(1024, 1024), phrases=asked))
    return Questions(cases, CLASSES)


def test_phrases_name_their_pairs(tmp_path: Path) -> None:
    lines = [
        {"case": "a", "phrase": " LEFT effusion", "boxes": [[1, 1, 9, 9]]},
        {"case": "a.png", "phrase": "small one", "boxes": [[2, 2, 9, 9]]},
        {"case": "b", "finding": "Mass", "boxes": [[3, 3, 9, 9]]},
    ]
    found = read(tmp_path, *lines, questions=phrases()).positives
    assert found.pairs == (("a", "Effusion"), ("a", "Mass"), ("a~2", "Effusion"), ("b", "Mass"))
    assert found.boxes[:, 0].tolist() == [1, 2, 2, 3] and found.lines.tolist() == [2, 3, 3, 4]
    lines[1]["finding"] = "Effusion"
    found = read(tmp_path, *lines, questions=phrases()).positives
    assert found.state.tolist() == [State.ANSWERED, State.MISSING, State.ANSWERED, State.ANSWERED]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ({"case": "b", "phrase": "small one"}, "phrase"),
        ({"case": "c", "phrase": "small one"}, "case"),
        ({"case": "b", "phrase": "it", "finding": "Effusion"}, "finding"),
        ({"case": "b", "phrase": 5}, "phrase"),
        ({"case": "b"}, "finding"),
    ],
)
def test_phrases_that_stop(line: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"line 2, key '{key}': ") as error:
        read(tmp_path, {**line, "boxes": []}, questions=phrases())
    assert "small one" not in str(error.value).lower()  # a phrase is a text of a report
    with pytest.raises(DataError, match="key 'phrase': this dataset asks findings"):
        read(tmp_path, {"case": "a", "phrase": "mass", "boxes": []})


def test_a_phrase_without_a_region_is_counted(reference_files: Path, tmp_path: Path) -> None:
    """The box of the last image has no width."""
    dataset = MsCxr(reference_files / "boxes/ms_cxr")
    questions = Questions(dataset.cases(), dataset.classes, ("mscxr",))
    asked = {"case": "invented-0001", "phrase": "right basal opacity", "boxes": [[1, 1, 90, 90]]}
    line = {"case": "invented-0004.jpg", "phrase": "Hazy opacity", "boxes": [[1, 1, 9, 9]]}
    found = read(tmp_path, asked, line, questions=questions)
    assert (found.lines, found.no_region, found.rejected) == (2, 1, 0) and found.positives.counts()["missing"] == 4
    with pytest.raises(DataError, match="line 3, key 'boxes'"):
        read(tmp_path, asked, {**line, "boxes": [[1, 1, 9]]}, questions=questions)
    with pytest.raises(DataError, match="line 3, key 'phrase': the image 'invented-0001' is not asked this phrase"):
        read(tmp_path, asked, {**line, "case": "invented-0001"}, questions=questions)


def test_a_phrase_is_answered_once(tmp_path: Path) -> None:
    lines = [
        {"case": "a~2", "finding": "Effusion", "boxes": []},
        {"case": "a", "phrase": "small one", "boxes": [[1, 1, 9, 9]]},
    ]
    with pytest.raises(DataError, match=r"line 3, key 'case'.*answered before"):
        read(tmp_path, *lines, questions=phrases())
    found = read(tmp_path, *lines, questions=phrases(), count_bad_lines=True).positives
    assert found.state.tolist() == [State.MISSING, State.MISSING, State.SILENT, State.MISSING]


def test_grounded_phrases_answer_phrases(tmp_path: Path) -> None:
    studies = {"a": [{"text": "Left EFFUSION", "boxes": [unit(0, 0, 1, 1)]}], "b": [{"text": "there", "boxes": None}]}
    found = radfact(tmp_path, studies, {"there": "it"}, phrases())
    assert found.positives.state.tolist() == [State.ANSWERED, State.SILENT, State.SILENT, State.SILENT]


def test_phrases_of_a_real_layout(reference_files: Path, tmp_path: Path) -> None:
    dataset = MsCxr(reference_files / "boxes/ms_cxr")
    questions = Questions(dataset.cases(), dataset.classes, ("mscxr",))
    lines = [
        {"case": entry.case_id.partition("~")[0], "phrase": phrase, "boxes": [[1, 1, 90, 90]]}
        for entry in dataset.cases()
        for phrase in set(entry.phrases.values())
    ]
    found = read(tmp_path, *lines, questions=questions).positives
    assert len(found) == 5 and set(found.state.tolist()) == {State.ANSWERED}
