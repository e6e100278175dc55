"""`boxes check`: what a file of predicted boxes holds, before it is scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.runtime.cli import main


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A COCO dataset of four images without image files: each has a Mass, the even ones no Nodule."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "images").mkdir(parents=True)
    images = [
        {
            "id": n,
            "file_name": f"i{n}.png",
            "width": 200,
            "height": 100,
            "labels": {"Nodule": 0 if n % 2 == 0 else None},
        }
        for n in range(4)
    ]
    boxes = [{"image_id": n, "category_id": 1, "bbox": [10, 10 + n, 50, 40]} for n in range(4)]
    names = [{"id": 1, "name": "Mass"}, {"id": 2, "name": "Nodule"}]
    document = {"images": images, "annotations": boxes, "categories": names}
    (tmp_path / "data" / "annotations.json").write_text(json.dumps(document))


def lines(boxes: Any = lambda n: [[10, 10 + n, 60, 50 + n]], **keys: Any) -> list[dict[str, Any]]:
    return [{"case": f"{n}", "finding": "Mass", "boxes": boxes(n), **keys} for n in range(4)]


def checked(capsys: pytest.CaptureFixture[str], answers: list[Any], *more: str, **header: Any) -> tuple[int, str, str]:
    """(status, output, errors) of `boxes check` of a file with these lines, in one line of words each."""
    header = {"xbench_boxes": 1, "frame": "pixels", **header}
    Path("f.jsonl").write_text("\n".join(json.dumps(line) for line in [header, *answers]))
    with pytest.raises(SystemExit) as ended:
        main(["boxes", "check", "f.jsonl", "--dataset", "coco", "--data", "coco=data", *more])
    said = capsys.readouterr()
    return int(ended.value.code or 0), " ".join(said.out.split()), " ".join(said.err.split())


def test_a_file_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    absent = {"case": "0", "finding": "Nodule", "boxes": [[1, 1, 9, 9], [-9, 0, -5, 5]]}
    unknown = {"case": "1", "finding": "Nodule", "boxes": []}
    status, out, err = checked(capsys, [*lines(), absent, unknown], model="m", prompt="where?")
    assert (status, err) == (0, "")
    for words in ("f.jsonl: 6 answers, without scores", "coordinates: pixels (6)", "model: m", "prompt: where?",
                  "pairs │ 4 │ 1", "boxes │ 4 │ 1", "outside │ 0 │ 1", "1 lines about a finding that the dataset",
                  "1 pairs whose finding is absent and that were not asked"):  # fmt: skip
        assert words in out, words
    assert "warning" not in out


def test_a_frame_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = checked(capsys, lines(lambda n: [[140, 10 + n, 190, 50 + n]]))
    assert status == 1 and "warning: f.jsonl: read as mirrored" in out


def test_a_file_is_checked_for_several_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--dataset", "again", "--data", "again=data", "--data-option", "again.reader=coco")
    status, out, _ = checked(capsys, lines(), *both)
    assert status == 0 and "f.jsonl on coco: 4 answers" in out and "f.jsonl on again: 4 answers" in out
    status, out, _ = checked(capsys, lines(), *both, "--json", "-")
    record = json.loads(out)
    others = record.pop("other_datasets")
    assert status == 0 and others == {"again": record}


def test_missing_and_rejected_lines(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [*lines()[:3], {"case": "3", "finding": "Mas", "boxes": []}]
    status, out, err = checked(capsys, answers)
    assert status == 1 and not out and "f.jsonl, line 5, key 'finding': " in err and "did you mean 'Mass'" in err
    status, out, err = checked(capsys, answers, "--bad-lines", "count")
    assert status == 1 and "1 lines rejected" in out and "warning: 25.0% of the pairs with a region have no line" in out


def test_answers_that_could_not_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the case: Qwen2-VL's answers without special tokens, in the dialect of another model."""
    raw = (Path(__file__).parents[2] / "cases/boxes-all-unparsable-no-word/pairs.jsonl").read_text().splitlines()[1:5]
    unread = [{**json.loads(line), "dialect": "radvlm"} for line in raw]
    fine = {"dialect": "radvlm", "text": "[0.05, 0.1, 0.3, 0.5]"}
    header = {"frame": "unit"}
    status, out, _ = checked(capsys, unread, **header)
    first = "4 of 4 answers (100.0%) could not be read; the first is line 2: 'effusion(100,300),(300,500)'"
    assert status == 1 and f"warning: {first}; the dialect or the frame is most likely wrong" in out
    status, out, _ = checked(capsys, [*unread[:1], *({**line, **fine} for line in unread[1:])], **header)
    assert status == 1 and "warning: 1 of 4 answers (25.0%) could not be read" in out and "most likely" not in out
    status, out, _ = checked(capsys, [*unread[:2], *({**line, **fine} for line in unread[2:])], **header)
    assert "2 of 4 answers (50.0%)" in out and "most likely" in out
    _, out, _ = checked(capsys, list(map(json.loads, raw)), **header)
    assert "could not be read" not in out and "answered │ 4" in out, "the dialect of the case reads them"
    answers = lines(lambda n: [[900, 10, 990, 50]])
    status, out, _ = checked(capsys, answers)
    assert "4 of 4 answers (100.0%) could not be read; the first is line 2: '[[900, 10, 990, 50]]'" in out


def test_boxes_with_the_name_of_another_finding(capsys: pytest.CaptureFixture[str]) -> None:
    box = {"bbox_2d": [100, 100, 300, 500]}
    texts = [[{**box, "label": "mass"}, {**box, "label": "Nodules"}], [{**box, "label": "effusion"}], [box], []]
    answers = [{"case": f"{n}", "finding": "Mass", "text": json.dumps(text)} for n, text in enumerate(texts)]
    status, out, _ = checked(capsys, answers, "--json", "f.json", dialect="qwen3vl", frame="permille")
    assert status == 0 and "2 of 3 labelled boxes bear the name of another finding than asked; they are scored" in out
    told = json.loads(Path("f.json").read_text())
    assert (told["labelled"], told["other_finding"], told["positive"]["boxes"]) == (3, 2, 4)


def test_texts_that_lost_the_tokens_of_their_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [{"case": f"{n}", "finding": "Mass", "text": "mass"} for n in range(4)]
    told = "warning: none of the 4 answers in the dialect florence2 has a token of it (<loc_); a server that leaves"
    status, out, _ = checked(capsys, answers, dialect="florence2")
    assert status == 1 and told in out
    answers[3]["text"] = "mass<loc_1><loc_2><loc_3><loc_4>"
    assert "has a token of it" not in checked(capsys, answers, dialect="florence2")[1]
    assert "has a token of it" not in checked(capsys, answers[:2], dialect="florence2")[1], "two answers are no sign"
    assert "has a token of it" not in checked(capsys, answers[:3], dialect="radvlm")[1]


def test_boxes_in_a_tag_of_unknown_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["<plan>[0, 0, 1, 1]</plan>[0.05, 0.1, 0.3, 0.5]"] + ["[0.05, 0.1, 0.3, 0.5]"] * 3
    answers = [{"case": f"{n}", "finding": "Mass", "text": text} for n, text in enumerate(texts)]
    status, out, _ = checked(capsys, answers, frame="unit", dialect="radvlm")
    told = "warning: 1 of 4 answers have boxes before </plan> and after it, and all were read; if it ends a thought"
    assert status == 1 and told in out and '{"thoughts": [["<plan>", "</plan>"]]}' in out
    status, out, _ = checked(capsys, answers, frame="unit", dialect="radvlm", thoughts=[["<plan>", "</plan>"]])
    assert status == 0 and "warning" not in out and "boxes │ 4" in out


def test_what_a_model_did_not_see(capsys: pytest.CaptureFixture[str]) -> None:
    """The centre square of 200 x 100 is columns 50 to 150, of which the regions have 10."""
    answers = [{**line, "frame": "crop", "view": [100, 100]} for line in lines(lambda n: [[0, 10, 10, 50]])]
    _, out, _ = checked(capsys, answers, "--json", "f.json")
    assert "4 pairs whose region lies mostly outside what the model saw" in out
    told = json.loads(Path("f.json").read_text())
    assert told["out_of_view"] == 4 and told["positive"]["boxes"] == 4 and told["coordinates"] == {"crop": 4}


def test_other_formats(capsys: pytest.CaptureFixture[str]) -> None:
    results = [{"image_id": 0, "category_id": 1, "bbox": [10, 10, 50, 40], "score": 1}]
    Path("results.json").write_text(json.dumps(results))
    for more, status, words in (
        ((), 1, "--coco FILE"),
        (("--coco", "data/annotations.json"), 0, "1 answers, with scores"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["boxes", "check", "results.json", "--dataset", "coco", "--data", "coco=data", *more])
        said = capsys.readouterr()
        assert (ended.value.code or 0) == status and words in said.out + said.err
    Path("grounded.json").write_text(json.dumps({"0": [{"text": "the lump", "boxes": None}]}))
    Path("map.json").write_text(json.dumps({"The lump": "Mass"}))
    with pytest.raises(SystemExit) as ended:
        main(["boxes", "check", "grounded.json", "--dataset", "coco", "--data", "coco=data", "--mapping", "map.json"])
    assert ended.value.code == 1 and "75.0% of the pairs" in capsys.readouterr().out
