"""Small worlds for files of boxes: cases without images, and a file of lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xbench_fast.runtime.data.answers.answered import BoxFile
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

CLASSES = ("Effusion", "Mass", "Nodule")
FIXTURES = Path(__file__).parent / "boxes"
HEADER = {"xbench_boxes": 1, "frame": "pixels"}


def case(name: str, labels: dict[str, int | None], size: tuple[int, int] | None = (1024, 1024)) -> Case:
    """A case with a region for each label 1; `size` is (height, width)."""
    regions = {finding: Boxes(((10, 20, 30, 40),)) for finding, label in labels.items() if label == 1}
    return Case(name, Path(f"{name}.png"), labels, regions, "test", size=size)


def small() -> Questions:
    """Three cases: a with Effusion and Mass, b with Mass and an unknown Nodule, c with a Nodule without a region."""
    cases = [
        case("a", {"Effusion": 1, "Mass": 1, "Nodule": 0}),
        case("b", {"Effusion": 0, "Mass": 1, "Nodule": None}),
        case("c", {"Effusion": 0, "Mass": 0, "Nodule": 1}),
    ]
    cases[2] = Case("c", Path("c.png"), cases[2].labels, {}, "test", size=(1024, 1024))
    return Questions(cases, CLASSES, ("small",))


def written(path: Path, *lines: Any) -> Path:
    """A file with these lines; a text is written as it is."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read(folder: Path, *lines: Any, questions: Questions | None = None, **options: Any) -> BoxFile:
    """The answers of a file with `HEADER` and these lines."""
    return read_boxes(written(folder / "f.jsonl", HEADER, *lines), questions or small(), ReadOptions(**options))
