"""The dialects and answers that `ask` brought: vectors by exact arithmetic that shares nothing with the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.answers.answered import BoxAnswers, State
from xbench_fast.runtime.data.answers.coordinate_frames import in_pixels, placed_axes
from xbench_fast.runtime.data.answers.dialects.dialect_registry import DIALECTS, parse
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

ASK = Path(__file__).parents[3] / "ask"
VECTORS = json.loads((ASK / "dialects_new.json").read_text())["cases"]
PAIRS = [json.loads(line) for line in (ASK / "pairs.jsonl").read_text().splitlines()]
SILENT = {State.SILENT: "silent", State.NO_BOX_IN_TEXT: "silent"}


def questions(pairs: list[dict[str, Any]]) -> Questions:
    classes = sorted({pair["finding"] for pair in pairs})
    cases = []
    for pair in pairs:
        truth = tuple((x1, y1, x2, y2) for x1, y1, x2, y2 in pair["truth"])
        regions = {pair["finding"]: Boxes(truth)} if pair["label"] else {}
        labels = {name: pair["label"] if name == pair["finding"] else None for name in classes}
        cases.append(Case(pair["case"], Path(pair["case"]), labels, regions, "test", size=tuple(pair["size"][::-1])))
    return Questions(cases, classes)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['dialect']}: {case['text'][:30]}")
def test_vectors(case: dict[str, Any]) -> None:
    parsed, dialect = parse(case["dialect"], case["text"]), DIALECTS[case["dialect"]]
    axes = placed_axes(dialect.frame, tuple(case["image"]), dialect.view)
    boxes = np.array([in_pixels(box, axes) for box in parsed.boxes]).reshape(-1, 4)
    np.testing.assert_allclose(boxes, np.array(case["boxes"]).reshape(-1, 4), rtol=0, atol=1e-6)
    state = "answered" if len(boxes) else "unparsable" if parsed.illegal or parsed.meant else "silent"
    assert (state, parsed.illegal, parsed.truncated) == (case["state"], case["illegal"], case["truncated"])


def test_names_of_lists_are_kept() -> None:
    assert parse("internvl", "<ref>mass</ref><box>[[1, 2, 3, 4], [5, 6, 7, 8]]</box>").labels == ["mass", "mass"]
    assert parse("deepseekvl2", "<|ref|>a<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>").labels == ["a"]
    assert parse("medrega", "[[1, 2, 3, 4]]").labels == [""]


@pytest.mark.parametrize(
    ("text", "illegal", "truncated", "meant"),
    [
        ("<|ref|>a<|/ref|><|det|>[[1.5, 2, 3, 4]]<|/det|>", 1, False, True),
        ("<|ref|>a<|/ref|><|det|>[[-1, 2, 3, 4]]<|/det|>", 1, False, True),
        ("<|ref|>a<|/ref|><|det|>", 0, True, True),
        ("<|ref|>a<|/r", 0, True, False),
        ("<|ref|>a<|/ref|> is not there.", 0, False, False),
        ("[]", 0, False, False),
    ],
)
def test_what_is_no_box_of_deepseek(text: str, illegal: int, truncated: bool, meant: bool) -> None:
    parsed = parse("deepseekvl2", text)
    assert (parsed.boxes, parsed.illegal, parsed.truncated, parsed.meant) == ([], illegal, truncated, meant)
    assert parsed.empty == (text == "[]")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[BoxAnswers, BoxAnswers, Questions]:
    asks = questions(PAIRS)
    file = tmp_path_factory.mktemp("asked") / "lines.jsonl"
    lines = (json.dumps(pair["line"] | {"dialect": pair["dialect"]}) for pair in PAIRS)
    file.write_text("\n".join(['{"xbench_boxes": 1}', *lines]))
    read = read_boxes(file, asks)
    return read.positives, read.negatives, asks


def test_each_pair_has_the_state_and_the_boxes_of_exact_arithmetic(
    asked: tuple[BoxAnswers, BoxAnswers, Questions],
) -> None:
    found: dict[str, tuple[str, bool, list[list[float]]]] = {}
    for answers in asked[:2]:
        for row, pair in enumerate(answers.pairs):
            state = State(answers.state[row])
            boxes = answers.boxes[answers.offsets[row] : answers.offsets[row + 1]].tolist()
            found[pair.case_id] = SILENT.get(state, state.name.lower()), bool(answers.truncated[row]), boxes
    assert len(found) == len(PAIRS) == 40
    for pair in PAIRS:
        state, truncated, boxes = found[pair["case"]]
        assert (state, truncated) == (pair["state"], pair["truncated"]), pair["id"]
        np.testing.assert_allclose(
            np.array(boxes).reshape(-1, 4), np.array(pair["boxes"]).reshape(-1, 4), rtol=0, atol=1e-6
        )


def test_counters_of_both_truths(asked: tuple[BoxAnswers, BoxAnswers, Questions]) -> None:
    expected = json.loads((ASK / "expected.json").read_text())
    for answers, truth in zip(asked[:2], ("positive", "negative"), strict=True):
        counts = answers.counts()
        assert counts["refused"] == expected[truth]["refused"]
        assert counts["silent"] == expected[truth]["silent"] + expected[truth]["refused"], "refusal is silence"
        assert counts["unparsable"] == expected[truth]["unparsable"]
        assert int((answers.state == State.ANSWERED).sum()) == expected[truth]["answered"]
    assert asked[0].counts()["truncated"] + asked[1].counts()["truncated"] == expected["truncated"]
    assert len(asked[0].boxes) == expected["boxes_positive"] and len(asked[1].boxes) == expected["boxes_negative"]


def read_one(tmp_path: Path, **line: object) -> BoxAnswers:
    file = tmp_path / "one.jsonl"
    case = PAIRS[0]["case"]
    file.write_text(json.dumps({"case": case, "finding": PAIRS[0]["finding"], "frame": "unit", **line}))
    return read_boxes(file, questions(PAIRS[:1])).positives


BOX = [[0.1, 0.1, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("line", "state", "truncated"),
    [
        ({"boxes": BOX, "finish": "stop"}, State.ANSWERED, False),
        ({"boxes": BOX, "finish": "length"}, State.ANSWERED, True),
        ({"boxes": BOX, "finish": "content_filter"}, State.ANSWERED, False),
        ({"boxes": [], "finish": "refusal"}, State.REFUSED, False),
        ({"boxes": [], "finish": "other"}, State.SILENT, False),
        ({"text": "No.", "dialect": "radvlm", "finish": "refusal"}, State.REFUSED, False),
        ({"text": "[1, 2]", "dialect": "radvlm", "finish": "content_filter"}, State.REFUSED, False),
        ({"text": "[1, 2]", "dialect": "radvlm", "finish": "length"}, State.UNPARSABLE, True),
    ],
)
def test_finish_says_what_an_answer_is(tmp_path: Path, line: dict[str, Any], state: State, truncated: bool) -> None:
    if "text" in line:
        line = line | {"frame": "unit"}
    answers = read_one(tmp_path, **line)
    assert (State(answers.state[0]), bool(answers.truncated[0])) == (state, truncated)


@pytest.mark.parametrize("value", ["eos", None, 1])
def test_another_finish_is_a_fault_of_the_writer(tmp_path: Path, value: object) -> None:
    with pytest.raises(DataError, match="line 1, key 'finish': there is no finish"):
        read_one(tmp_path, boxes=BOX, finish=value)


def test_finish_is_no_key_of_a_header(tmp_path: Path) -> None:
    file = tmp_path / "header.jsonl"
    file.write_text('{"xbench_boxes": 1, "finish": "stop"}\n')
    with pytest.raises(DataError, match="'finish' is not a key of the format"):
        read_boxes(file, questions(PAIRS[:1]))


@pytest.mark.parametrize(
    ("text", "meant", "empty"),
    [("Answer: B 3", True, False), ("Answer: B3B4", True, False), ("answer: column B, row 3", True, False),
     ("C7 is broken. Answer: none of 64", False, True), ("C7 is broken. Answer: unclear", False, False)],
)  # fmt: skip
def test_a_cell_in_another_spelling_is_no_silence(text: str, meant: bool, empty: bool) -> None:
    parsed = parse("grid", text)
    assert (parsed.meant, parsed.empty, parsed.boxes, parsed.illegal) == (meant, empty, [], 0)


def test_an_unread_answer_to_a_phrase_is_not_quoted(tmp_path: Path) -> None:
    """It repeats the phrase, which is a text of a report."""
    found = {"Mass": Boxes(((1, 1, 5, 5),))}
    case = Case("a", Path("a"), {"Mass": 1}, found, "test", size=(9, 9), phrases={"Mass": "a CANARY mass"})
    line = {"case": "a", "phrase": "a CANARY mass", "dialect": "radvlm", "text": "a CANARY mass at [1, 2, 3]"}
    file = tmp_path / "o.jsonl"
    file.write_text(json.dumps(line) + "\n")
    read = read_boxes(file, Questions([case], ["Mass"]))
    assert read.positives.state.tolist() == [State.UNPARSABLE] and read.first_unread == "line 1"
