"""XML that says a thing twice, in another place or in another encoding, and boxes in corners where sizes are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.chestxray14 import ChestXray14
from xbench_fast.runtime.data.datasets.formats.voc import PascalVoc

BOX = "<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>40</xmax><ymax>35</ymax></bndbox>"
OBJECT = f"<object><name>Mass</name>{BOX}</object>"


def voc(root: Path, content: str | bytes) -> PascalVoc:
    for folder in ("Annotations", "JPEGImages"):
        (root / folder).mkdir(exist_ok=True)
    Image.new("L", (80, 60)).save(root / "JPEGImages" / "a.png")
    data = content if isinstance(content, bytes) else f"<annotation>{content}</annotation>".encode()
    (root / "Annotations" / "a.xml").write_bytes(data)
    return PascalVoc(root)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (OBJECT.replace("<xmin>11</xmin>", "<xmin>11</xmin><xmin>1</xmin>"), "<bndbox> has <xmin> twice"),
        (OBJECT.replace("<name>Mass</name>", "<name>Mass</name><name>Cyst</name>"), "<object> has <name> twice"),
        ("<size><width>80</width><height>60</height></size>" * 2 + OBJECT, "<annotation> has <size> twice"),
        (f"{OBJECT}<objects>{OBJECT}</objects>", "<objects> is not an object of <annotation>"),
        (f"{OBJECT}<more>{OBJECT}</more>", "<object> is not an object of <annotation>"),
        (f"{OBJECT}{OBJECT.replace('object', 'Object')}", "<Object> is not an object of <annotation>"),
        (
            OBJECT.replace(
                BOX, f"{BOX}<attributes><attribute><name>Angle</name><value>30</value></attribute></attributes>"
            ),
            "the attribute 'Angle' turns the box",
        ),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "pointer of Git LFS"),
        ('<?xml version="1.0"?><!DOCTYPE a><annotation/>'.encode("utf-16"), "document type"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        voc(tmp_path, content)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_xml_is_read_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><annotation>{OBJECT.replace("Mass", "Maß")}</annotation>'
    (case,) = voc(tmp_path, text.encode(encoding)).cases()
    assert case.regions["Maß"].mask(60, 80).sum() == 450


@pytest.mark.parametrize("mark", ["<difficult>True</difficult>", "<occluded>1</occluded>"])
def test_marks_of_voc_are_noted(tmp_path: Path, mark: str) -> None:
    dataset = voc(tmp_path, OBJECT.replace(BOX, BOX + mark))
    assert "crowd" in {note.kind for note in dataset.notes}


def test_corners_are_not_read_as_sizes(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "BBox_List_2017.csv").write_text("Image Index,Finding Label,x1,y1,x2,y2\na.png,Mass,100,100,400,250\n")
    with pytest.raises(DataError, match="row 1: the column 'x1' is a corner"):
        ChestXray14(tmp_path).cases()
