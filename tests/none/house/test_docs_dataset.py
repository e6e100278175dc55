"""docs/add-a-dataset.md: its files are written down, read and audited as it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from make_images import encode
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes
from xbench_fast.runtime.host.config import load_config
from xbench_fast.runtime.results.loaded_dataset import load_dataset

FILE = re.compile(r"^File `([^`]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMAGES = {"my_coco": "images", "my_csv": "images", "my_radiographs": "radiographs"}


@pytest.fixture
def text(root: Path) -> str:
    return (root / "docs/add-a-dataset.md").read_text()


@pytest.fixture
def world(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file of the document, and two images of 60 x 80 for each dataset."""
    found = FILE.findall(text)
    assert len(found) == 5
    for name, content in found:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    picture = encode(np.arange(4800, dtype=np.uint16).astype(np.uint8).reshape(60, 80), "PNG")
    for dataset, folder in IMAGES.items():
        (tmp_path / dataset / folder).mkdir()
        for number in (1, 2):
            (tmp_path / dataset / folder / f"image-{number}.png").write_bytes(picture)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def datasets(world: Path) -> dict[str, Dataset]:
    config = load_config(world / "xbench.toml")
    return {name: load_dataset(item).dataset for name, item in config.datasets.items()}


def test_the_three_ways_give_what_the_document_says(world: Path) -> None:
    found = datasets(world)
    assert list(found) == list(IMAGES)
    coco, boxes, circles = (found[name].cases() for name in IMAGES)
    assert coco[0].labels == {"Mass": 1, "Effusion": 1} and coco[1].labels == {"Mass": 0, "Effusion": None}
    assert coco[0].regions["Mass"].mask(60, 80).sum() == 30 * 15 and coco[0].patient_id == "p1"
    assert coco[0].regions["Effusion"].mask(60, 80)[6, 10]
    assert boxes[0].regions["Mass"].mask(60, 80).sum() == 30 * 15 + 10 * 15
    assert boxes[1].labels == {"Mass": 0} and boxes[1].patient_id == "p2"
    mask = circles[0].regions["Mass"].mask(60, 80)
    assert mask[17, 27] and mask[41, 51] and mask.sum() == 25 * 25 and not circles[1].regions
    assert not any(dataset.notes for dataset in found.values())


def test_the_commands_of_the_document(text: str, world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *lines = [line for block in SHELL.findall(text) for line in block.splitlines()]
    assert len(lines) == 3 and first.endswith("mine --data mine=FOLDER --data-option mine.reader=yolo")
    for line in lines:
        program, *arguments = shlex.split(line)
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--json", "-"])
        found = json.loads(capsys.readouterr().out)
        assert program == "xbench-fast" and left.value.code == 0 and found["passed"], line
        assert (found["images_present"], found["unreadable"]) == (2, 0) and found["pairs"] >= 1
    with pytest.raises(SystemExit):
        main(["datasets", "check", "my_radiographs"])
    assert "for internal use" in capsys.readouterr().out


def test_a_mistake_in_a_users_file_names_file_and_row(world: Path) -> None:
    (world / "my_radiographs/circles.csv").write_text("image,x,y,radius\nimage-1,40,30,wide\n")
    with pytest.raises(DataError, match=r"circles\.csv, row 2: radius is 'wide', not a number"):
        datasets(world)


def test_the_columns_named_in_the_document_are_those_of_the_reader(text: str) -> None:
    table = text.split("| column | meaning |")[1].split("\n\n")[0]
    named = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.count("|") > 2))
    )
    assert CsvBoxes.__doc__ is not None and named == {
        "image", "class", "x_min", "y_min", "x_max", "y_max", "x", "y", "width", "height", "patient_id", "split",
        "image_width", "image_height",
    }  # fmt: skip
    assert all(name in CsvBoxes.__doc__ for name in named)


def test_every_reader_of_a_format_is_in_the_table(text: str) -> None:
    named = set(re.findall(r"^\| [^|]+ \| `(\w+)` \|", text, re.MULTILINE))
    folder = "xbench_fast.runtime.data.datasets.formats."
    assert named == {name for name in DATASETS.names() if DATASETS.load(name).__module__.startswith(folder)}
