"""docs/recipes/datasets.md: each section reads made files of the published layout, with its text as it stands.

Regions are compared with masks that the tests draw themselves, by slices and by the equation of an ellipse.
"""

from __future__ import annotations

import json
import re
import runpy
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from make_images import dicom, encode
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.host.config import load_config
from xbench_fast.runtime.results.loaded_dataset import load_dataset

FILE = re.compile(r"^File `([^`]+)`:\n\n(?:<!-- [^\n]* -->\n)?```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    """The counts of an audit that passes. options: of the command."""
    with pytest.raises(SystemExit) as left:
        main(["datasets", "check", dataset, "--json", "-", *options])
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
    audit = passes("tbx11k", capsys, "--decode")
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
    audit = passes("vindr_pcxr", capsys, "--decode")
    assert (audit["images_present"], audit["pairs"]) == (3, 2)


def run(script: str) -> None:
    """Runs a script of the page in the current folder."""
    runpy.run_path(script, run_name="__main__")


def stored(path: str) -> NDArray[np.generic]:
    """The pixels of a PNG file as they are stored."""
    with Image.open(path) as image:
        return np.asarray(image)


def test_node21(texts: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """MetaImage with and without compression, two nodules in one image, zeros for an image without one."""
    assert write_files(texts["NODE21"]) == ["convert_node21.py", "xbench.toml"]
    folder = Path("NODE21/cxr_images/proccessed_data")
    (folder / "images").mkdir(parents=True)
    (folder / "metadata.csv").write_text(
        ",height,img_name,label,width,x,y\n0,10,n0001.mha,1,20,5,6\n1,8,n0001.mha,1,9,40,30\n2,0,c0002.mha,0,0,0,0\n"
    )
    ramp = np.arange(50 * 70).reshape(50, 70)
    write_mha(folder / "images/n0001.mha", (ramp - 100).astype("<i2"), "MET_SHORT", compressed=True)
    write_mha(folder / "images/c0002.mha", (3499 - ramp).astype(">u2"), "MET_USHORT", compressed=False)
    run("convert_node21.py")
    scaled = np.rint(ramp / 3499 * 65535)
    assert np.array_equal(stored("NODE21/png/n0001.png"), scaled)
    assert np.array_equal(stored("NODE21/png/c0002.png"), np.rint((3499 - ramp) / 3499 * 65535))
    (dataset,) = loaded().values()
    first, second = dataset.cases()
    assert dataset.classes == ("Nodule",) and first.image == Path("NODE21/png/n0001.png")
    same(first, {"Nodule": boxes(50, 70, (5, 6, 25, 16), (40, 30, 49, 38))})
    same(second, {})
    assert second.labels == {"Nodule": 0} and not dataset.notes
    assert passes("node21", capsys, "--decode")["boxes"] == 2


def write_mha(file: Path, values: NDArray[np.generic], element: str, *, compressed: bool) -> None:
    """A MetaImage as ITK writes it."""
    height, width = values.shape
    big = values.dtype.byteorder == ">"
    body = values.tobytes()
    lines = [
        "ObjectType = Image", "NDims = 2", "BinaryData = True", f"BinaryDataByteOrderMSB = {big}",
        f"CompressedData = {compressed}", "ElementSpacing = 1 1", f"DimSize = {width} {height}",
        f"ElementType = {element}", "ElementDataFile = LOCAL",
    ]  # fmt: skip
    file.write_bytes("".join(f"{line}\n" for line in lines).encode() + (zlib.compress(body) if compressed else body))


def test_jsrt(texts: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Rows with tabs that end with a carriage return, big-endian files without a header, masks as GIF in two folds."""
    assert write_files(texts["JSRT"]) == ["convert_jsrt.py", "readers/jsrt.py", "xbench.toml"]
    Path("JSRT/All247images").mkdir(parents=True)
    Path("JSRT/Clinical_Information").mkdir()
    Path("JSRT/Clinical_Information/CLNDAT_EN.txt").write_bytes(
        b"JPCLN001.IMG\t5\t15\t53\tmale\t1634\t692\tmalignant\tl.upper lobe\tlung cancer\r"
        b"JPCLN002.IMG\t1\t30\t?\tfemale\t14\t1090\tbenign\tl.upper lobe(S5)\tpulmonary hematoma\r"
    )
    Path("JSRT/Clinical_Information/CNNDAT_EN.TXT").write_bytes(b"JPCNN001.IMG   54  male   non-nodule\r\n")
    rows = np.arange(2048, dtype=np.uint16)[:, None]
    names = ("JPCLN001", "JPCLN002", "JPCNN001")
    for number, name in enumerate(names):
        film = np.broadcast_to(2 * rows + number, (2048, 2048)).astype(">u2")
        Path(f"JSRT/All247images/{name}.IMG").write_bytes(film.tobytes())
        organs = f"JSRT/scratch/fold{2 - number % 2}/masks"
        for organ, corners in {"left lung": (600, 100, 900, 800), "heart": (400, 500, 700, 900)}.items():
            Path(organs, organ).mkdir(parents=True, exist_ok=True)
            mask = boxes(1024, 1024, corners).astype(np.uint8) * 255
            Image.fromarray(mask).save(f"{organs}/{organ}/{name}.gif")
    run("convert_jsrt.py")
    bright = np.maximum(4093 - 2 * rows.astype(np.int64), 0)  # the last row has 4096, more than 12 bits
    assert np.array_equal(stored("JSRT/png/JPCNN001.png"), np.broadcast_to(bright, (2048, 2048)))
    nodules, organs = loaded().values()
    cases = nodules.cases()
    assert [case.case_id for case in cases] == [*names] and cases[2].labels == {"Nodule": 0}
    y, x = (axis + 0.5 for axis in np.ogrid[:2048, :2048])
    for case, (centre_x, centre_y, size) in zip(cases, ((1634, 692, 15), (14, 1090, 30)), strict=False):
        same(case, {"Nodule": ((x - centre_x) ** 2 + (y - centre_y) ** 2) * 0.175**2 <= (size / 2) ** 2})
    assert organs.classes == ("heart", "left lung") and len(organs.cases()) == 3
    expected = {"heart": boxes(1024, 1024, (400, 500, 700, 900)), "left lung": boxes(1024, 1024, (600, 100, 900, 800))}
    for case in organs.cases():
        assert case.size == (1024, 1024)
        same(case, expected)
    assert not nodules.notes and not organs.notes
    assert (passes("jsrt", capsys)["pairs"], passes("jsrt_organs", capsys)["pairs"]) == (2, 6)


def test_a_row_of_jsrt_without_a_centre_names_file_and_row(texts: Mapping[str, str]) -> None:
    write_files(texts["JSRT"])
    Path("JSRT/Clinical_Information").mkdir(parents=True)
    Path("JSRT/Clinical_Information/CLNDAT_EN.txt").write_text("JPCLN001.IMG\t5\t15\n")
    with pytest.raises(DataError, match=r"CLNDAT_EN\.txt, row 1: the row needs a file, a size and the centre"):
        loaded()["jsrt"].cases()
