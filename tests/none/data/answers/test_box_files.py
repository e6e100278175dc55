"""Files of predicted boxes: what stops, what is counted, and in which columns it stands (docs/boxes.md §1, §2)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_files import CLASSES, FIXTURES, HEADER, case, read, small, written
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.answers.answered import State
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.answers.coordinate_frames import FRAMES
from xbench_fast.runtime.data.answers.lines import MAX_LINE
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes

BAD = json.loads((FIXTURES / "bad_lines.json").read_text())["lines"]
FINDINGS = (
    "Atelectasis", "Calcification", "Consolidation", "Effusion", "Emphysema", "Fibrosis", "Fracture", "Mass", "Nodule",
    "Pneumothorax",
)  # fmt: skip


def one_image() -> Questions:
    """The case of bad_lines.json."""
    return Questions([case("36302", {name: int(name == "Effusion") for name in FINDINGS})], FINDINGS, ("chestxdet10",))


def answer(**keys: Any) -> dict[str, Any]:
    return {"case": "a", "finding": "Mass", **keys}


@pytest.mark.parametrize("number", range(len(BAD)))
def test_every_bad_line(number: int, tmp_path: Path) -> None:
    item = BAD[number]
    path = written(tmp_path / "answers.jsonl", item["header"], item["line"])
    if item["expect"] == "stop":
        with pytest.raises(DataError) as error:
            read_boxes(path, one_image())
        told = str(error.value)
        assert told.startswith(f"{path}, line 2") and told.endswith(".") and "\n" not in told
        assert item["key"] is None or f"key '{item['key']}'" in told
        return
    found = read_boxes(path, one_image()).positives
    np.testing.assert_allclose(found.boxes, np.reshape(item["boxes"], (-1, 4)), rtol=0, atol=1e-6)
    assert {name: count for name, count in found.counts().items() if count} == item["counts"]


def test_there_are_51_bad_lines() -> None:
    assert len(BAD) == 51


def test_the_nearest_names_are_suggested(tmp_path: Path) -> None:
    for line, hint in (
        (answer(finding="mas", boxes=[]), "did you mean 'Mass'"),
        (answer(boxes=[], frame="pixles"), "did you mean 'pixels'"),
        (answer(text="", dialect="qwen2.5vl"), "did you mean 'qwen25vl'"),
        (answer(boxs=[]), "did you mean 'boxes'"),
    ):
        with pytest.raises(DataError, match=hint):
            read(tmp_path, line)
    many = Questions([case(f"image-{number:03d}", {"Mass": 1}) for number in range(300)], CLASSES)
    with pytest.raises(DataError, match="none of the 300 known ones is similar"):
        read(tmp_path, {"case": "@", "finding": "Mass", "boxes": []}, questions=many)
    with pytest.raises(DataError) as error:
        read(tmp_path, {"case": "image-0077", "finding": "Mass", "boxes": []}, questions=many)
    assert "did you mean 'image-" in str(error.value) and len(str(error.value)) < 300


def test_a_message_is_one_line_of_printable_text(tmp_path: Path) -> None:
    for line, words in (
        ({"a\n\x1b[31m": 1}, r"key 'a\n\x1b[31m'"),
        (answer(case="a\r\ud800", boxes=[]), r"no case 'a\r\ud800'"),
    ):
        with pytest.raises(DataError) as error:
            read(tmp_path, line)
        assert words in str(error.value) and str(error.value).isprintable()


def test_columns_stand_in_the_order_of_the_dataset(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"case": "b", "finding": "Mass", "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]]},
        {"case": "c", "finding": "Effusion", "boxes": [[1, 1, 9, 9]]},
        {"case": "b", "finding": "Nodule", "boxes": [[1, 1, 9, 9]]},
        {"case": "c", "finding": "Nodule", "boxes": [[1, 1, 9, 9]]},
        {"case": "a", "finding": "Nodule", "boxes": []},
        {"case": "a.png", "finding": "Effusion", "boxes": [[9, 8, 20, 30]]},
    )
    positives, negatives = found.positives, found.negatives
    assert positives.pairs == (("a", "Effusion"), ("a", "Mass"), ("b", "Mass"))
    assert positives.state.tolist() == [State.ANSWERED, State.MISSING, State.ANSWERED]
    assert positives.offsets.tolist() == [0, 1, 1, 3] and positives.lines.tolist() == [7, 0, 2]
    assert positives.boxes[1:].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]] and positives.scores is None
    assert positives.sizes.tolist() == [[1024, 1024]] * 3
    assert negatives.pairs == (("a", "Nodule"), ("c", "Effusion")) and negatives.tried.tolist() == [False, True]
    assert (found.not_asked, found.unknown_label, found.no_region, found.lines) == (2, 1, 1, 6)
    assert found.missing_share == pytest.approx(1 / 3)
    assert found.sha256 == hashlib.sha256(found.path.read_bytes()).hexdigest()


def test_scores_follow_their_boxes(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"case": "b", "finding": "Mass", "boxes": [[1, 2, 3, 4], [9, 9, 1, 1], [5, 6, 7, 8]], "scores": [0.1, 0.9, 2]},
        {"case": "a", "finding": "Effusion", "boxes": []},
        {"case": "a", "finding": "Mass", "boxes": [[9, 8, 20, 30]], "scores": [-5]},
    ).positives
    assert found.scores is not None and found.scores.tolist() == [-5, 0.1, 2] and found.illegal.tolist() == [0, 0, 1]


def test_scores_are_in_all_lines_or_in_none(tmp_path: Path) -> None:
    scored = answer(boxes=[[1, 2, 3, 4]], scores=[1])
    for line in ({"case": "b", "finding": "Mass", "boxes": [[1, 2, 3, 4]]},
                 {"case": "b", "finding": "Mass", "text": "[0.1, 0.1, 0.5, 0.5]", "dialect": "radvlm"}):  # fmt: skip
        with pytest.raises(DataError, match="line 3, key 'scores'"):
            read(tmp_path, scored, line)
        found = read(tmp_path, scored, line, count_bad_lines=True)
        assert found.rejected == 1 and found.positives.state.tolist() == [State.MISSING, State.ANSWERED, State.MISSING]
    with pytest.raises(DataError, match="key 'scores'"):
        read(tmp_path, answer(text="[0.1, 0.1, 0.5, 0.5]", dialect="radvlm", scores=[1]))


def test_the_first_hundred_boxes_are_kept(tmp_path: Path) -> None:
    boxes = [[0, 0, 10 + number, 20] for number in range(130)]
    found = read(tmp_path, answer(boxes=boxes)).positives
    assert found.boxes[:, 2].tolist() == list(range(10, 110)) and found.counts()["over_limit"] == 1
    scores = [number % 130 for number in range(7, 137)]
    found = read(tmp_path, answer(boxes=boxes, scores=scores)).positives
    kept = [10 + number for number in range(130) if scores[number] >= 30]
    assert found.boxes[:, 2].tolist() == kept and found.scores is not None and min(found.scores) == 30
    found = read(tmp_path, answer(boxes=[[9, 9, 1, 1], *boxes], scores=[0, *scores])).positives
    assert found.boxes[:, 2].tolist() == kept and found.counts()["illegal"] == 1
    assert read(tmp_path, answer(boxes=boxes[:100])).positives.counts()["over_limit"] == 0


@pytest.mark.parametrize(("x", "clipped"), [(-2, 0), (-2.001, 1), (0, 0)])
def test_two_pixels_outside_are_rounding(x: float, clipped: int, tmp_path: Path) -> None:
    found = read(tmp_path, answer(boxes=[[x, 5, 50, 60]])).positives
    assert found.boxes.tolist() == [[0, 5, 50, 60]] and found.counts()["clipped"] == clipped
    found = read(tmp_path, answer(boxes=[[5, 5, 60, 1024 - x]])).positives
    assert found.boxes.tolist() == [[5, 5, 60, 1024]] and found.counts()["clipped"] == clipped


def test_a_box_that_touches_the_image_from_outside_is_outside(tmp_path: Path) -> None:
    boxes = [[-5, 1, 0, 9], [1024, 1, 1030, 9], [1, -5, 9, 0], [1, 1024, 9, 1030]]
    found = read(tmp_path, answer(boxes=boxes)).positives
    assert found.counts()["outside"] == 4 and found.state[1] == State.UNPARSABLE and found.tried[1]


@pytest.mark.parametrize("frame", [frame for frame in FRAMES if frame != "999"])
def test_every_frame_gives_the_same_boxes(frame: str, tmp_path: Path) -> None:
    values = json.loads((FIXTURES / "frames.json").read_text())
    questions = Questions([case("a", {"Mass": 1}, (3056, 2544))], CLASSES)
    given = values[frame] if isinstance(values[frame], dict) else {"boxes": values[frame]}
    found = read(tmp_path, answer(**given, frame=frame), questions=questions)
    np.testing.assert_allclose(found.positives.boxes, values["pixels"], rtol=0, atol=1e-6)
    assert bool(found.positives.cropped[0]) == (frame == "crop")


@pytest.mark.parametrize(("frame", "box"), [("crop", [0, 0, 100, 100]), ("pad", [0, 0, 101, 100])])
def test_half_pixels_of_crop_and_pad_are_dropped(frame: str, box: list[int], tmp_path: Path) -> None:
    """An image of 101 x 100: the offset is 1 // 2 on the left, or on the top."""
    side = 100 if frame == "crop" else 101
    questions = Questions([case("a", {"Mass": 1}, (100, 101))], CLASSES)
    found = read(tmp_path, answer(boxes=[[0, 0, side, side]], frame=frame, view=[side, side]), questions=questions)
    assert found.positives.boxes.tolist() == [box]


def test_a_dialect_has_its_own_view(tmp_path: Path) -> None:
    line = answer(text="<box><x10><y20><x30><y40></box>", dialect="maira2", view=[518, 518])
    assert read(tmp_path, line).positives.boxes.tolist() == [[107, 209, 312, 414]]


def test_every_order_gives_the_same_boxes(tmp_path: Path) -> None:
    values = json.loads((FIXTURES / "frames.json").read_text())
    questions = Questions([case("a", {"Mass": 1}, (3056, 2544))], CLASSES)
    centres = [[(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1] for x1, y1, x2, y2 in values["pixels"]]
    for frame, order, boxes in (
        ("permille", "yxyx", values["yxyx_permille"]),
        ("999", "xyxy", [[value * 0.999 for value in box] for box in values["permille"]]),
        ("pixels", "xywh", values["xywh_pixels"]),
        ("pixels", "cxcywh", centres),
    ):
        found = read(tmp_path, answer(boxes=boxes, frame=frame, order=order), questions=questions)
        np.testing.assert_allclose(found.positives.boxes, values["pixels"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (answer(boxes=[[1, 2, 3, 4]], frame="resized"), "view"),
        (answer(boxes=[[1, 2, 3, 4]], frame="pad", view={"min_pixels": 1, "max_pixels": 9}), "view"),
        (answer(boxes=[[1, 2, 3, 4]], frame="resized", view={"min_pixels": 9, "max_pixels": 1}), "view"),
        (answer(boxes=[[1, 2, 3, 4]], frame="resized", view={"max_pixels": 1}), "view"),
        (answer(boxes=[[1, 2, 3, 4]], frame="crop", view=[0, 5]), "view"),
        (answer(boxes=[[1, 2, 3, 4]], frame="crop", view=[True, 5]), "view"),
        (answer(text='{"bbox_2d": [1, 2, 3, 4]}', dialect="qwen25vl"), "view"),
        (answer(text="[0.1, 0.2, 0.3, 0.4]", dialect="radvlm", frame="percent"), "frame"),
        (answer(text=5, dialect="radvlm"), "text"),
        (answer(boxes=[], size=[1024.0, 1024]), "size"),
        (answer(boxes=[], temperature=float("nan")), "temperature"),
        (answer(boxes=[], dataset="vindr"), "dataset"),
        (answer(boxes=[], order="yxxy"), "order"),
        (answer(boxes=[[1, 2, 1e400, 4]]), "boxes"),
        (answer(boxes={}), "boxes"),
        (answer(boxes=[], case=36302), "case"),
        (answer(boxes=[], finding=None), "finding"),
        (answer(boxes=[], xbench_boxes=1), "xbench_boxes"),
    ],
)
def test_lines_that_stop(line: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"line 2, key '{key}': "):
        read(tmp_path, line)


def test_numbers_of_any_size(tmp_path: Path) -> None:
    found = read(tmp_path, answer(boxes=[[0, 0, 1e308, 1e308], [-1e308, -1e308, 9, 9]])).positives
    assert found.boxes.tolist() == [[0, 0, 1024, 1024], [0, 0, 9, 9]] and found.counts()["clipped"] == 2
    for order in ("xywh", "cxcywh"):
        found = read(tmp_path, answer(boxes=[[1.7e308] * 4, [-1.7e308] * 4, [3, 3, 2, 2]], order=order)).positives
        assert len(found.boxes) == 1 and np.isfinite(found.boxes).all()
    with pytest.raises(DataError, match=r"key 'boxes'.*not finite"):
        read(tmp_path, f'{{"case": "a", "finding": "Mass", "boxes": [[1, 2, 3, {"9" * 400}]]}}')


def test_hostile_lines(tmp_path: Path) -> None:
    for text, told in (
        ("[" * 100_000, "line 2: it is nested too deeply"),
        ('{"case": ' + '{"a": ' * 100_000, "line 2: it is nested too deeply"),
        ('{"case": "a", "case": "b", "finding": "Mass", "boxes": []}', "line 2: .*'case' appears twice"),
        ('{"case": "a", "finding": "Mass", "boxes": [[1, 2, 3, ' + "9" * 5000 + "]]}", "line 2"),
        ('{"case": "a\\ud800", "finding": "Mass", "boxes": []}', "line 2, key 'case'"),
    ):
        with pytest.raises(DataError, match=told):
            read(tmp_path, text)
    long = answer(boxes=[], note="x" * MAX_LINE)
    with pytest.raises(DataError, match="line 2: it is longer than 8 MiB"):
        read(tmp_path, long)
    found = read(tmp_path, long, answer(boxes=[]), count_bad_lines=True)
    assert (found.rejected, found.lines) == (1, 2) and found.positives.lines.tolist() == [0, 3, 0]
    assert found.sha256 == hashlib.sha256(found.path.read_bytes()).hexdigest()
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"xbench_boxes": 1, "note": "\xe9"}\n')
    with pytest.raises(DataError, match="line 1: it is not UTF-8"):
        read_boxes(path, small())


def test_marks_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    lines = [json.dumps(HEADER), "", "  ", json.dumps(answer(boxes=[[1, 2, 3, 4]]))]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_boxes(path, small()).positives.lines.tolist() == [0, 4, 0]


def test_files_without_answers(tmp_path: Path) -> None:
    for text in ("", "\n\n", json.dumps(HEADER)):
        with pytest.raises(DataError, match="no line with an answer"):
            read_boxes(written(tmp_path / "f.jsonl", text), small())
    with pytest.raises(DataError, match="does not exist"):
        read_boxes(tmp_path / "g.jsonl", small())
    with pytest.raises(DataError, match="is a folder"):
        read_boxes(tmp_path, small())


@pytest.mark.parametrize(
    ("header", "key"),
    [({"xbench_boxes": 2}, "xbench_boxes"), ({"xbench_boxes": True}, "xbench_boxes"),
     ({"xbench_boxes": 1, "case": "a"}, "case"),
     ({"xbench_boxes": 1, "dataset": "vindr"}, "dataset"), ({"xbench_boxes": 1, "frame": "px"}, "frame")],
)  # fmt: skip
@pytest.mark.parametrize("count", [False, True])
def test_headers_that_stop(header: dict[str, Any], key: str, count: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "f.jsonl", header, answer(boxes=[], frame="pixels"))
    with pytest.raises(DataError, match=f"line 1, key '{key}': "):
        read_boxes(path, small(), ReadOptions(count_bad_lines=count))


def test_bad_lines_are_rejected_when_asked(tmp_path: Path) -> None:
    lines = [
        answer(boxes=[[1, 2, 3]]),
        "{",
        answer(boxes=[[1, 2, 3, 4]]),
        answer(boxes=[[5, 6, 7, 8]]),
        answer(boxs=[]),
    ]
    found = read(tmp_path, *lines, count_bad_lines=True)
    assert (found.rejected, found.lines) == (4, 5)
    assert found.positives.boxes.tolist() == [[1, 2, 3, 4]] and found.positives.counts()["missing"] == 2
    for line in (answer(boxes=[[1, 2, 3, 4]], frame="px"), answer(boxes=[[9, 9, 9.9, 9.9]], frame="unit")):
        with pytest.raises(DataError, match="key 'frame'"):
            read(tmp_path, line, count_bad_lines=True)


def test_a_frame_is_judged_by_the_whole_file(tmp_path: Path) -> None:
    small_box, large = [[0.1, 0.1, 0.5, 1]], [[0, 0, 1.5, 1]]
    with pytest.raises(DataError, match=r"line 2, key 'frame'.*no coordinate"):
        read(tmp_path, answer(boxes=small_box), {"case": "b", "finding": "Mass", "boxes": small_box})
    assert len(
        read(tmp_path, answer(boxes=small_box), {"case": "b", "finding": "Mass", "boxes": large}).positives.boxes
    )
    assert len(read(tmp_path, answer(boxes=large, frame="unit")).positives.boxes) == 1
    text = {"dialect": "json", "frame": "unit"}
    wide, fine = answer(text="[[1, 2, 300, 400]]", **text), {**answer(text="[[0, 0, 1, 1]]", **text), "case": "b"}
    with pytest.raises(DataError, match=r"line 2, key 'frame'.*every box"):
        read(tmp_path, wide)
    assert read(tmp_path, wide, fine).positives.counts()["outside"] == 1


def test_sizes(tmp_path: Path) -> None:
    unknown = Questions([case("a", {"Mass": 1}, None)], CLASSES)
    with pytest.raises(DataError, match="line 2, key 'size'"):
        read(tmp_path, answer(boxes=[[1, 2, 3, 4]]), questions=unknown)
    found = read(tmp_path, answer(boxes=[[1, 2, 300, 400]], size=[200, 300]), questions=unknown).positives
    assert found.boxes.tolist() == [[1, 2, 200, 300]] and found.sizes.tolist() == [[200, 300]]
    assert read(tmp_path, answer(boxes=[]), questions=unknown).positives.sizes.tolist() == [[0, 0]]


def test_a_file_name_of_several_cases_is_refused(tmp_path: Path) -> None:
    cases = [case(name, {"Mass": 1}) for name in ("a", "b")]
    twins = [type(each)(each.case_id, Path("same.png"), each.labels, each.regions, "test") for each in cases]
    with pytest.raises(DataError, match=r"key 'case'.*file of 2 cases"):
        read(tmp_path, {"case": "same.png", "finding": "Mass", "boxes": []}, questions=Questions(twins, CLASSES))


def test_a_file_may_be_named_without_its_extension(tmp_path: Path) -> None:
    """Unless such a name is the id of another case: it would then depend on the others which image is meant."""
    line = answer(case="x", boxes=[[1, 2, 3, 4]])
    plain = case("7", {"Mass": 1})
    cases = [type(plain)("7", Path("x.png"), plain.labels, plain.regions, "test", size=plain.size), case("8", {})]
    assert read(tmp_path, line, questions=Questions(cases, CLASSES)).unknown_label == 0
    with pytest.raises(DataError, match="no case 'xx': did you mean 'x'"):
        read(tmp_path, {**line, "case": "xx"}, questions=Questions(cases, CLASSES))
    other = type(plain)("x", Path("y.png"), {}, {}, "test", size=plain.size)
    with pytest.raises(DataError, match="no case 'y'"):
        read(tmp_path, {**line, "case": "y"}, questions=Questions([*cases, other], CLASSES))


def test_origins_are_kept(tmp_path: Path) -> None:
    header = {**HEADER, "model": "m", "dataset": "Small", "prompt": ["where is {}?"]}
    lines = [answer(boxes=[], seed=1), {"case": "b", "finding": "Mass", "boxes": [], "seed": 2, "frame": "unit"}]
    found = read_boxes(written(tmp_path / "f.jsonl", header, *lines), small())
    assert found.provenance == {"model": "m", "dataset": "Small", "prompt": ["where is {}?"]}
    assert found.line_provenance == {"seed": (1, 2)} and found.frames == {"pixels": 1, "unit": 1}
