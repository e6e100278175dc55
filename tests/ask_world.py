"""The dataset of tests/ask, cut from the demo's radiographs, and runs of `ask` on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from xbench_fast.runtime.asking.ask_dataset import ask_dataset
from xbench_fast.runtime.asking.ask_options import AskOptions
from xbench_fast.runtime.asking.ask_rules import AskRequest
from xbench_fast.runtime.asking.runner import Waiting
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.host.config import DatasetConfig

ASK = Path(__file__).parent / "ask"
RADIOGRAPHS = Path(__file__).parents[1] / "demo" / "chestxdet10" / "test_data"
PAIRS: list[dict[str, Any]] = [json.loads(line) for line in (ASK / "pairs.jsonl").read_text().splitlines()]
OPTIONS = {"images": ".", "annotations": "coco.json", "title": "fixture"}


def cut(folder: Path, pairs: Iterable[Mapping[str, Any]] = PAIRS, *, own: bool = False) -> DatasetConfig:
    """The cases of these pairs as a COCO dataset in `folder`; own: with the labels of their pairs alone."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(pairs)
    for pair in chosen:
        with Image.open(RADIOGRAPHS / pair["image"]) as image:
            image.convert("L").crop(pair["cut"]).save(folder / f"{pair['case']}.png")
    data = json.loads((ASK / "coco.json").read_text())
    names = {f"{pair['case']}.png": pair for pair in chosen}
    data["images"] = [image for image in data["images"] if image["file_name"] in names]
    about = {image["id"]: names[image["file_name"]] for image in data["images"]}
    classes = {category["id"]: category["name"] for category in data["categories"]}
    data["annotations"] = [
        each
        for each in data["annotations"]
        if each["image_id"] in about and (not own or about[each["image_id"]]["finding"] == classes[each["category_id"]])
    ]
    (folder / "coco.json").write_text(json.dumps(data))
    return DatasetConfig("fixture", folder, "coco", options=OPTIONS)


def run(
    config: DatasetConfig, url: str, dialect: str, out: Path, waiting: Waiting | None = None, **options: Any
) -> tuple[dict[str, Any], list[str]]:
    """A call of `ask`: its counts, and the lines that it says."""
    lines: list[str] = []
    model = options.pop("model", None)
    request = AskRequest(out, url, dialect, config.name, model, AskOptions(**options))
    return ask_dataset(request, config, PlainProgress(lines.append), waiting), lines


def pixels_sha256(path: Path) -> str:
    """The SHA-256 of the pixels of an image, as the server has them."""
    with Image.open(path) as image:
        return hashlib.sha256(image.convert("L").tobytes()).hexdigest()
