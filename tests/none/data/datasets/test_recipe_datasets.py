"""docs/recipes/datasets.md: each section reads made files of the published layout, with its text as it stands.

Regions are compared with masks that the tests draw themselves, by slices and by the equation of an ellipse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from make_images import dicom, encode
from numpy.typing import NDArray
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.host.config import load_config
from xbench_fast.runtime.results.loaded_dataset import load_dataset

FILE = re.compile(r"^File `([^`]+)`:\n\n(?:<!-- .* -->\n)?```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Mask = NDArray[np.bool_]


@pytest.fixture
def texts(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The sections of the page by title; the test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    parts = re.split(r"^## (.+)\n", (root / "docs/recipes/datasets.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
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
    """The counts of an audit that passes."""
    with pytest.raises(SystemExit) as left:
        main(["datasets", "check", dataset, "--decode", "--json", "-", *options])
    audit: dict[str, int] = json.loads(capsys.readouterr().out)
    assert left.value.code == 0 and audit["passed"], audit
    return audit


def test_tbx11k(texts: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Images in three folders, two boxes of one class with fractions of pixels, a category without a box."""
    assert write_files(texts["TBX11K"]) == ["xbench.toml"]
    names = ("tb/tb0003.png", "tb/tb0004.png", "health/h0001.png", "sick/s0001.png")
    categories = ("ActiveTuberculosis", "ObsoletePulmonaryTuberculosis", "PulmonaryTuberculosis")
    drawn = [
        (1, 1, [99.4, 50.2, 40.0, 30.0]),
        (1, 1, [300, 60, 20, 10]),
        (1, 2, [10, 400, 50, 60]),
        (2, 2, [5, 6, 7, 8]),
    ]
    Path("TBX11K/annotations/json").mkdir(parents=True)
    Path("TBX11K/annotations/json/TBX11K_val.json").write_text(
        json.dumps(
            {
                "info": [{"description": "TBX11K Dataset"}],
                "licenses": [{"id": 1}],
                "categories": [
                    {"id": number, "name": name, "supercategory": "Tuberculosis"}
                    for number, name in enumerate(categories, 1)
                ],
                "images": [
                    {"id": number, "file_name": name, "width": 512, "height": 512, "license": 1}
                    for number, name in enumerate(names, 1)
                ],
                "annotations": [
                    {"id": number, "image_id": image, "category_id": category, "bbox": box, "iscrowd": 0, "area": 1.0}
                    for number, (image, category, box) in enumerate(drawn, 1)
                ],
            }
        )
    )
    for name in (*names, "extra/da+db/train/n1.png"):
        picture(f"TBX11K/imgs/{name}", 512, 512)
    (dataset,) = loaded().values()
    assert dataset.classes == categories[:2] and dataset.title == "TBX11K"
    cases = dataset.cases()
    assert [case.image for case in cases] == [Path("TBX11K/imgs", name) for name in names]
    active, latent = categories[:2]
    same(
        cases[0],
        {
            active: boxes(512, 512, (99, 50, 139, 80), (300, 60, 320, 70)),
            latent: boxes(512, 512, (10, 400, 60, 460)),
        },
    )
    same(cases[1], {latent: boxes(512, 512, (5, 6, 12, 14))})
    assert cases[2].labels == cases[3].labels == {active: 0, latent: 0} and cases[2].split == "val"
    audit = passes("tbx11k", capsys)
    assert (audit["images_present"], audit["pairs"]) == (4, 3)


def test_vindr_pcxr(texts: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Ids without suffix, classes with blanks and a slash, two boxes of one class, a row `No finding`."""
    assert write_files(texts["VinDr-PCXR"]) == ["xbench.toml"]
    ids = ("6cb53aff85c71b98", "d7e71a052a753c3f", "0a9c1fd3b7e24c55")
    Path("VinDr-PCXR").mkdir()
    Path("VinDr-PCXR/annotations_test.csv").write_text(
        "image_id,rad_ID,class_name,x_min,y_min,x_max,y_max,class_id\n"
        f"{ids[0]},R3,Reticulonodular opacity,10.7,20.2,30.9,40.5,2\n"
        f"{ids[1]},R1,No finding,,,,,36\n"
        f"{ids[0]},R3,Reticulonodular opacity,25,35,60,50,2\n"
        f"{ids[2]},R1,Other nodule/mass,0,0,90,3,24\n"
    )
    Path("VinDr-PCXR/test").mkdir()
    for number, name in enumerate(ids):
        stored = np.arange(number, number + 60 * 90, dtype=np.uint16).reshape(60, 90) % 4096
        file = dicom(stored.astype(np.uint16), bits=12, photometric="MONOCHROME1" if number else "MONOCHROME2")
        Path(f"VinDr-PCXR/test/{name}.dicom").write_bytes(file)
    (dataset,) = loaded().values()
    assert dataset.classes == ("Other nodule/mass", "Reticulonodular opacity")
    cases = dataset.cases()
    assert [case.image.name for case in cases] == [f"{name}.dicom" for name in ids]
    same(cases[0], {"Reticulonodular opacity": boxes(60, 90, (10, 20, 30, 40), (25, 35, 60, 50))})
    same(cases[1], {})
    same(cases[2], {"Other nodule/mass": boxes(60, 90, (0, 0, 90, 3))})
    assert [*cases[1].labels.values()] == [0, 0] and not dataset.notes
    audit = passes("vindr_pcxr", capsys)
    assert (audit["images_present"], audit["pairs"]) == (3, 2)
