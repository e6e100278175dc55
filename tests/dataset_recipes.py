"""docs/recipes/datasets.md: its files are written into a folder and read; masks and pictures made for its tests.

Regions are compared with masks that the tests draw themselves, by slices and by the equation of an ellipse.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from make_images import encode
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.host.config import load_config
from xbench_fast.runtime.results.loaded_dataset import load_dataset

FILE = re.compile(r"^File `([^`]+)`:\n\n(?:<!-- [^\n]* -->\n)?```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Mask = NDArray[np.bool_]


def sections(root: Path) -> dict[str, str]:
    """The sections of the page by title."""
    text = (root / "docs/recipes/datasets.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def write_files(section: str) -> list[str]:
    """Writes the files of a section into the current folder; their names."""
    files = FILE.findall(section)
    for name, content in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")
    return [name for name, _ in files]


def loaded() -> dict[str, Dataset]:
    """The datasets of xbench.toml in the current folder."""
    return {name: load_dataset(item).dataset for name, item in load_config(Path("xbench.toml")).datasets.items()}


def picture(path: str, height: int, width: int, kind: str = "PNG") -> None:
    """A grey picture that differs from all others by its size or its name."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    values = np.arange(height * width, dtype=np.uint32).reshape(height, width) + sum(path.encode())
    Path(path).write_bytes(encode(values.astype(np.uint8), kind))


def boxes(height: int, width: int, *corners: tuple[int, int, int, int]) -> Mask:
    """The union of boxes (x1, y1, x2, y2)."""
    mask = np.zeros((height, width), np.bool_)
    for x1, y1, x2, y2 in corners:
        mask[y1:y2, x1:x2] = True
    return mask


def same(case: Case, expected: Mapping[str, Mask]) -> None:
    """Each region of the case is the expected mask, and no other class is positive."""
    assert case.regions.keys() == expected.keys() == {name for name, label in case.labels.items() if label}
    for name, mask in expected.items():
        assert np.array_equal(case.regions[name].mask(*mask.shape), mask), name


def passes(dataset: str, capsys: pytest.CaptureFixture[str], *options: str) -> Mapping[str, int]:
    """The counts of an audit that passes. options: of the command."""
    with pytest.raises(SystemExit) as left:
        main(["datasets", "check", dataset, "--json", "-", *options])
    audit: dict[str, int] = json.loads(capsys.readouterr().out)
    assert left.value.code == 0 and audit["passed"], audit
    return audit


def run(script: str) -> None:
    """Runs a script of the page in the current folder."""
    runpy.run_path(script, run_name="__main__")


def stored(path: str) -> NDArray[np.generic]:
    """The pixels of a PNG file as they are stored."""
    with Image.open(path) as image:
        return np.asarray(image)
