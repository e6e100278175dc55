"""The memory that a file of boxes takes: some dozen bytes a line, and 40 for each box with a score."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path

import pytest
from xbench_fast.runtime.data.answers import collecting
from xbench_fast.runtime.data.answers.answered import State
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

CASES, FEW, MANY = 5000, 2000, 10_000
REGION = {"Mass": Boxes(((10.0, 10.0, 90.0, 90.0),))}
LABELS = {"Mass": 1, "Nodule": 0}


def test_a_line_takes_some_dozen_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines a case, one of them about an absent finding, backwards; each has two boxes with scores."""
    monkeypatch.setattr(collecting, "CHECKED", 64)  # those of the frame's check are as many in any file
    cases = [
        Case(f"c{number}", Path(f"c{number}.png"), LABELS, REGION, "test", size=(400, 500)) for number in range(CASES)
    ]
    header = json.dumps({"xbench_boxes": 1, "frame": "pixels"})
    lines = [
        json.dumps(
            {"case": f"c{n}", "finding": name, "boxes": [[n % 90, 9, 95, 200], [5, 9, 99, 99]], "scores": [n, 1]}
        )
        for n in reversed(range(CASES))
        for name in LABELS
    ]
    kept, most = [], []
    for count in (FEW, MANY):
        path = tmp_path / f"{count}.jsonl"
        path.write_text("\n".join([header, *lines[:count]]))
        questions = Questions(cases, tuple(LABELS))
        assert (len(questions.positives), questions.negatives) == (CASES, CASES)
        gc.collect()
        tracemalloc.start()
        found = read_boxes(path, questions)
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        kept.append(now)
        most.append(peak)
        assert len(found.negatives) == count // 2 == (found.positives.state == State.ANSWERED).sum()
        assert found.positives.scores[-2:].tolist() == [CASES - 1, 1]  # type: ignore[index]
    # 80 bytes of boxes and scores; then the columns, and while it is read those in the order of the file.
    assert (kept[1] - kept[0]) / (MANY - FEW) < 80 + 40
    assert (most[1] - most[0]) / (MANY - FEW) < 2 * 80 + 140


def test_an_entry_of_coco_results_takes_its_text_and_some_numbers(tmp_path: Path) -> None:
    cases = [Case(f"c{n}", Path(f"c{n}.png"), LABELS, REGION, "test", size=(400, 500)) for n in range(20)]
    images = [{"id": n, "file_name": f"c{n}.png"} for n in range(20)]
    (tmp_path / "names.json").write_text(json.dumps({"images": images, "categories": [{"id": 1, "name": "Mass"}]}))
    most = []
    for count in (FEW, MANY):
        entry = {"category_id": 1, "bbox": [10.25, 9, 40, 20], "score": 0.5}
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps([{"image_id": n % 20, **entry} for n in range(count)]))
        questions = Questions(cases, tuple(LABELS))
        gc.collect()
        tracemalloc.start()
        assert read_boxes(path, questions, ReadOptions(coco=tmp_path / "names.json")).lines == count
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (most[1] - most[0]) / (MANY - FEW) < 240
