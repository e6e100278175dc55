"""Files of words: keys, bad lines, and places drawn in pixels (docs/words.md §1, §4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_files import written
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.answers.answered import BoxFile, State
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.answers.unread_answers import unread_answers
from xbench_fast.runtime.data.answers.words.class_answers import Remark, WordState
from xbench_fast.runtime.data.answers.words.thorax_frames import WordOptions
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

FIXTURES = Path(__file__).parents[4] / "text"
CLASSES = ("Consolidation", "Effusion", "Fracture", "Mass", "Nodule", "Pneumothorax", "Calcification")
HEADER = {"xbench_boxes": 1, "dialect": "text"}


def world(labels: dict[str, dict[str, int | None]]) -> Questions:
    cases = []
    for name, of_case in labels.items():
        regions = {finding: Boxes(((600, 600, 700, 700),)) for finding, label in of_case.items() if label == 1}
        every = {finding: of_case.get(finding) for finding in CLASSES}
        cases.append(Case(name, Path(f"{name}.png"), every, regions, "test", size=(1024, 1024)))
    return Questions(cases, CLASSES, ("small",))


def films() -> Questions:
    return world({name: dict.fromkeys(CLASSES, 1) for name in ("36302", "36331")})


def read(folder: Path, *lines: Any, questions: Questions | None = None, **options: Any) -> BoxFile:
    path = written(folder / "f.jsonl", HEADER, *lines)
    return read_boxes(path, questions or films(), ReadOptions(words=WordOptions(**options)))


def test_every_bad_line(tmp_path: Path) -> None:
    entries = json.loads((FIXTURES / "bad_lines.json").read_text())
    assert len(entries) == 15
    for entry in entries:
        lines = entry["line"] if isinstance(entry["line"], list) else [entry["line"]]
        lines = [
            {**line, "text": "left lower zone. " * 61681} if str(line.get("text")).startswith("@1MiB") else line
            for line in lines
        ]
        path = written(tmp_path / "f.jsonl", *lines)
        if entry["must"].startswith("stops"):
            with pytest.raises(DataError) as caught:
                read_boxes(path, films())
            words = {
                "neither finding nor phrase, dialect zones": "only the dialect text may leave out finding",
                "sides unknown": "patient",
                "unknown finding": "Effusion",
                "words and boxes in one file": "write two files",
                "no text beside dialect text": "boxes are not read by a dialect",
                "text is null": '""',
                "report and line of the same pair": "was answered before",
                "two reports of a case": "was answered before",
                "sides beside boxes": "dialects text and zones",
            }.get(entry["what"], "")
            assert words in str(caught.value), entry["what"]
        elif entry["line"]["case"] != "LATERAL":
            file = read_boxes(path, films())
            (answer,) = [word for word in file.positives.words or () if word.state is not WordState.MISSING]
            state = WordState.EMPTY if entry["must"] == "counted: empty" else WordState.ANSWERED
            assert answer.state is state
            assert bool(answer.remarks & Remark.BOX_IN_TEXT) == (entry["what"] == "boxes in a text")
            assert answer.places.names == (("LL",) if answer.places.names else ())


def test_a_line_without_text_is_a_bad_line_of_words(tmp_path: Path) -> None:
    path = written(
        tmp_path / "f.jsonl", HEADER, {"case": "36302", "finding": "Mass"}, {"case": "36302", "text": "Mass."}
    )
    with pytest.raises(DataError, match="line 2, key 'text': the line has no text"):
        read_boxes(path, films())
    assert read_boxes(path, films(), ReadOptions(count_bad_lines=True)).rejected == 1


def test_how_an_answer_ended_is_read_of_words_too(tmp_path: Path) -> None:
    ends = [("Mass.", "length"), ("", "refusal"), ("Sorry.", "content_filter"), ("Left nodule.", "refusal"),
            ("No fracture.", "length"), ("", "length")]  # fmt: skip
    findings = ("Mass", "Effusion", "Consolidation", "Nodule", "Fracture", "Calcification")
    lines = [
        {"case": "36302", "finding": finding, "text": text, "finish": finish}
        for finding, (text, finish) in zip(findings, ends, strict=True)
    ]
    file = read(tmp_path, *lines)
    given = file.positives
    told = {
        CLASSES[place % len(CLASSES)]: (State(int(state)).name, bool(cut))
        for place, state, cut, line in zip(given.places, given.state, given.truncated, given.lines, strict=True)
        if line
    }
    assert told == {
        "Mass": ("SILENT", True), "Effusion": ("REFUSED", False), "Consolidation": ("REFUSED", False),
        "Nodule": ("ANSWERED", False), "Fracture": ("SILENT", True), "Calcification": ("NO_BOX_IN_TEXT", True),
    }  # fmt: skip
    unread = unread_answers(file)
    assert (unread.count, unread.cut) == (1, 1), "what denies before the text is cut is read"
    with pytest.raises(DataError, match="key 'finish'"):
        read(tmp_path, {"case": "36302", "finding": "Mass", "text": "Mass.", "finish": 3})


def test_places_are_drawn_as_the_fixtures_say(tmp_path: Path) -> None:
    for name in ("answers", "dialects"):
        for entry in json.loads((FIXTURES / f"{name}.json").read_text()):
            line = {"case": "36302", "finding": entry.get("finding", "Mass"), "text": entry["text"]}
            if entry.get("line") == "report":
                del line["finding"]
            file = read(tmp_path, {**line, "dialect": entry.get("dialect", "text")})
            finding = entry.get("finding", "Mass")
            at = [pair.case_id == "36302" and pair.asked == finding for pair in file.positives.pairs].index(True)
            start, stop = file.positives.offsets[at : at + 2]
            boxes = np.array(entry["boxes"]).reshape(-1, 4)
            np.testing.assert_allclose(file.positives.boxes[start:stop], boxes, rtol=0, atol=1e-6)
            if name == "dialects":
                state = State(int(file.positives.state[at])).name.lower()
                assert (state, file.positives.illegal[at]) == (entry["state"], entry["illegal"])


def test_every_place_in_pixels_of_both_sizes() -> None:
    from xbench_fast.metrics_gpu.zones.cells import cells_of
    from xbench_fast.metrics_gpu.zones.thorax_places import FIXED, cell_names, rectangle_of

    places = json.loads((FIXTURES / "places.json").read_text())
    assert len(places) == 49
    for name, entry in places.items():
        np.testing.assert_allclose(rectangle_of(name), entry["frame"], rtol=0, atol=1e-12)
        for key, size in (("pixels_1024", (1024, 1024)), ("pixels_2544x3056", (2544, 3056))):
            box = FIXED.pixels(rectangle_of(name), size)
            np.testing.assert_allclose(box, entry[key], rtol=0, atol=1e-6)
            assert list(cell_names(cells_of(np.array([box]), FIXED, size))) == entry["cells"], name


def test_a_report_answers_every_class_of_its_case(tmp_path: Path) -> None:
    questions = world({"a": {"Effusion": 1, "Mass": 0, "Nodule": None}, "b": {"Effusion": 1, "Mass": 1}})
    lines = {"case": "a.png", "text": "Left effusion. No mass."}, {"case": "b", "text": "Normal chest."}
    file = read(tmp_path, *lines, questions=questions)
    states = [answer.state for answer in file.positives.words or ()]
    assert states == [WordState.ANSWERED, WordState.DENIED, WordState.DENIED]
    assert [answer.state for answer in file.negatives.words or ()] == [WordState.DENIED]
    assert (file.unknown_label, file.no_region, file.lines) == (0, 0, 2)
    again = read(tmp_path, *reversed(lines), questions=questions)
    assert again.positives.words == file.positives.words
    np.testing.assert_array_equal(again.positives.boxes, file.positives.boxes)


def test_sides_of_the_image_and_a_mirrored_file(tmp_path: Path) -> None:
    line = {"case": "36302", "finding": "Mass", "text": "Mass in the left upper zone."}

    def places(*lines: Any, **options: Any) -> list[tuple[str, ...]]:
        words = read(tmp_path, *lines, **options).positives.words or ()
        return [answer.places.names for answer in words if answer.places.names]

    assert places(line) == [("LU",)] and places({**line, "sides": "image"}) == [("RU",)]
    assert places(line, mirrored=True) == [("RU",)] and places({**line, "sides": "image"}, mirrored=True) == [("LU",)]


def test_codes_of_whole_sides_state_no_level(tmp_path: Path) -> None:
    lines = [
        {"case": "36302", "finding": name, "text": text, "dialect": "zones"}
        for name, text in [("Mass", "left"), ("Nodule", "RUZ, LLZ"), ("Effusion", "none")]
    ]
    answers = {answer.places.names: answer.remarks for answer in read(tmp_path, *lines).positives.words or ()}
    assert answers == {("LU", "LM", "LL"): Remark.LEVEL_UNSTATED, ("RU", "LL"): Remark(0), (): Remark(0)}


def test_what_a_file_of_boxes_reads_of_an_answer_in_words(tmp_path: Path) -> None:
    texts = {
        "Mass": "Mass in the left upper zone.", "Nodule": "A nodule.", "Effusion": "No effusion.", "Fracture": "",
        "Consolidation": "Kein Erguss.", "Pneumothorax": "The image is of good quality.",
        "Calcification": "Cardiomegaly.",
    }  # fmt: skip
    lines = [{"case": "36302", "finding": finding, "text": text} for finding, text in texts.items()]
    counts = read(tmp_path, *lines).positives.counts()
    assert (counts["silent"], counts["no_box_in_text"], counts["unparsable"], counts["missing"]) == (4, 1, 2, 7)
    assert read(tmp_path, *lines).first_unread == "line 6: 'Kein Erguss.'"
