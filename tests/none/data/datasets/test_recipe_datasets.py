"""docs/recipes/datasets.md: each section reads made files of the published layout, with its text as it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from dataset_recipes import boxes, loaded, passes, picture, same, sections, write_files
from make_images import dicom
from xbench_fast.engines.errors import DataError


@pytest.fixture
def texts(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The sections of the page; the test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return sections(root)


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


def test_object_cxr(texts: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Three kinds of shapes in one cell, an empty cell, an image of another split."""
    assert write_files(texts["Object-CXR"]) == ["readers/object_cxr.py", "xbench.toml"]
    Path("object-CXR").mkdir()
    Path("object-CXR/dev.csv").write_text(
        "image_name,annotation\n08001.jpg,0 5 6 25 16;1 40 10 60 50;2 70 10 90 10 90 30 70 30\n08002.jpg,\n"
        "08003.jpg,2 10 10 20 10 20 20\n"
    )
    Path("object-CXR/train.csv").write_text("image_name,annotation\n00001.jpg,0 1 1 9 9\n")
    for name in ("dev/08001", "dev/08002", "dev/08003", "train/00001"):
        picture(f"object-CXR/{name}.jpg", 60, 100, "JPEG")
    (dataset,) = loaded().values()
    first, second, third = dataset.cases()
    assert (first.case_id, first.image, first.split) == ("08001", Path("object-CXR/dev/08001.jpg"), "dev")
    y, x = np.mgrid[:60, :100] + 0.5
    ellipse = ((x - 50) / 10) ** 2 + ((y - 30) / 20) ** 2 <= 1
    # The outline of a polygon is part of it, so its last row and column are 30 and 90.
    same(first, {"Foreign object": boxes(60, 100, (5, 6, 25, 16), (70, 10, 91, 31)) | ellipse})
    same(second, {})
    rows, columns = np.mgrid[:60, :100]
    same(third, {"Foreign object": (columns <= 20) & (rows >= 10) & (columns >= rows)})
    assert passes("object_cxr", capsys, "--decode")["pairs"] == 2
    assert passes("object_cxr", capsys, "--data-option", "object_cxr.split=train")["images_present"] == 1


@pytest.mark.parametrize("cell", ["3 1 2 3 4", "0 1 2 3", "2 1 2 3", "2", "1 a b c d"])
def test_a_shape_of_object_cxr_that_cannot_be_read_names_file_and_row(texts: Mapping[str, str], cell: str) -> None:
    write_files(texts["Object-CXR"])
    Path("object-CXR").mkdir()
    Path("object-CXR/dev.csv").write_text(f"image_name,annotation\n08001.jpg,{cell}\n")
    with pytest.raises(DataError, match=r"dev\.csv, row 2: .*(is no rectangle|not a number)"):
        loaded()["object_cxr"].cases()


def test_chestx_det(texts: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Two polygons of one class, a class with a blank, an image without a finding, a class that ChestX-Det10 lacks."""
    assert write_files(texts["ChestX-Det"]) == ["readers/chestx_det.py", "xbench.toml"]
    entries = [
        {
            "file_name": "36346.png",
            "syms": ["Effusion", "Diffuse Nodule", "Effusion"],
            "boxes": [[100, 200, 300, 400], [10, 20, 30, 40], [600, 200, 700, 400]],
            "polygons": [
                [[100, 200], [300, 200], [300, 400], [100, 400]],
                [[10, 20], [30, 20], [30, 40]],
                [[600, 200], [700, 200], [700, 400], [600, 400]],
            ],
        },
        {"file_name": "7.png", "syms": [], "boxes": [], "polygons": []},
    ]
    file = Path("ChestX-Det/ChestX_Det_test.json")
    file.parent.mkdir()
    file.write_text(json.dumps(entries))
    for entry in entries:
        picture(f"ChestX-Det/test/{entry['file_name']}", 1024, 1024)
    (dataset,) = loaded().values()
    first, second = dataset.cases()
    assert len(dataset.classes) == 13 and dataset.classes == tuple(sorted(dataset.classes))
    assert {*re.findall(r"\* Classes: (.+?)\.", texts["ChestX-Det"], re.DOTALL)[0].replace("\n ", "").split(", ")} == {
        *dataset.classes
    }
    rows, columns = np.mgrid[:1024, :1024]
    triangle = (columns <= 30) & (rows >= 20) & (columns - 10 >= rows - 20)
    effusion = boxes(1024, 1024, (100, 200, 301, 401), (600, 200, 701, 401))  # outlines are part of polygons
    same(first, {"Effusion": effusion, "Diffuse Nodule": triangle})
    same(second, {})
    audit = passes("chestx_det", capsys)
    assert (audit["images_present"], audit["pairs"]) == (2, 2)


@pytest.mark.parametrize("polygons", [None, [], [[[1, 2], [3, 4], [5, 6]], None], [[[1, 2], [3]]]])
def test_polygons_of_chestx_det_that_cannot_be_read_name_file_and_row(
    texts: Mapping[str, str], polygons: object
) -> None:
    write_files(texts["ChestX-Det"])
    Path("ChestX-Det").mkdir()
    entry = {"file_name": "7.png", "syms": ["Mass"], "boxes": [[1, 2, 5, 6]], "polygons": polygons}
    Path("ChestX-Det/ChestX_Det_test.json").write_text(json.dumps([entry]))
    with pytest.raises(DataError, match=r"ChestX_Det_test\.json, row 1: (polygons has not one|a point is)"):
        loaded()["chestx_det"].cases()
