"""A dataset of boxes without images, files of answers to it, and the command line in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from xbench_fast.runtime.cli import main

Line = dict[str, Any]
SIZES = [(60, 40), (90, 120), (300, 200), (50, 50)]
CLASSES = ("Mass", "Effusion", "Nodule")


def command(*arguments: object) -> int:
    """The exit status of `xbench-fast ARGUMENTS`."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as caught:
        return int(caught.code or 0)
    return 0


def make_box_data(folder: Path) -> Path:
    """14 images of several sizes and 6 patients; every one has a Mass, every second an Effusion, two of one patient
    a Nodule. There are no files of images."""
    rng = np.random.default_rng(5)
    images, annotations = [], []
    for index in range(14):
        width, height = SIZES[index % 4]
        image = {"id": f"c{index}", "file_name": f"c{index}.png", "width": width, "height": height}
        images.append({**image, "patient_id": f"p{index // 3 if index < 9 else index % 3}"})
        for category in [1, *[2] * (index % 2 == 0), *[3] * (index in (6, 7))]:
            x, y = rng.integers(0, width // 2), rng.integers(0, height // 2)
            box = [int(x), int(y), int(rng.integers(3, width // 2)), int(rng.integers(3, height // 2))]
            annotations.append({"image_id": f"c{index}", "category_id": category, "bbox": box})
    (folder / "images").mkdir(parents=True)
    categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
    told = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(told))
    return folder


def pairs_of(data: Path) -> list[tuple[str, str, str, tuple[int, int]]]:
    """(case, finding, patient, size) in the order of the dataset."""
    told = json.loads((data / "annotations.json").read_text())
    has = {(entry["image_id"], CLASSES[entry["category_id"] - 1]) for entry in told["annotations"]}
    return [
        (image["id"], name, image["patient_id"], (image["width"], image["height"]))
        for image in told["images"]
        for name in CLASSES
        if (image["id"], name) in has
    ]


def answers(data: Path, path: Path, without: tuple[str, ...] = (), seed: int = 8) -> dict[tuple[str, str], Line]:
    """A file with an answer to each pair; every fifth is silent."""
    rng = np.random.default_rng(seed)
    lines: dict[tuple[str, str], Line] = {}
    for place, (case, finding, _, (width, height)) in enumerate(pairs_of(data)):
        low = rng.random((1 + place % 2, 2)) * (width / 2, height / 2)
        boxes = np.hstack([low, low + 1 + rng.random(low.shape) * (width / 3, height / 3)]).tolist()
        if case not in without:
            lines[case, finding] = {"case": case, "finding": finding, "boxes": [] if place % 5 == 4 else boxes}
    path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "pixels"}, *lines.values()])) + "\n")
    return lines


def rows(run: Path, model: str) -> list[dict[str, Any]]:
    file = json.loads((run / "run.json").read_text())["cells"][f"{model}--coco"]["file"]
    found: list[dict[str, Any]] = pq.read_table(run / file).to_pylist()
    return found


def evaluate(data: Path, *more: object) -> int:
    place = ["--data", f"coco={data}", "--data-option", "coco.reader=coco", "--out", data.parent / "run"]
    return command("eval", *place, *more)
