"""docs/recipes/datasets.md: the sections whose images a script converts, on made files of the published layout."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from dataset_recipes import boxes, loaded, passes, run, same, sections, stored, write_files
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.engines.errors import DataError


@pytest.fixture
def texts(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The sections of the page; the test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return sections(root)


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
