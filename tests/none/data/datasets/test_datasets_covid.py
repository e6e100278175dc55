"""COVID-19 Rural (docs/published-datasets.md §3, §10 item 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from PIL import Image
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.covid_rural import CovidRural
from xbench_fast.runtime.data.datasets.masks.mask_reader import MaskReader

NAMES = [f"COVID-19-AR-1640649{n}_01-1{n}-2012-XR" for n in range(3)]


def make(root: Path, **options: Any) -> CovidRural:
    """Three films: an opacity of value 1, no mask file, a mask that is there but empty."""
    for folder in ("jpgs", "pngs_masks"):
        (root / folder).mkdir(exist_ok=True)
    grey = np.arange(600, dtype=np.uint16).astype(np.uint8).reshape(20, 30)
    for name in NAMES:
        (root / f"jpgs/{name}.jpg").write_bytes(encode(grey, "JPEG", "RGB"))
    drawn = np.zeros((20, 30), np.uint8)
    (root / f"pngs_masks/{NAMES[2]}.png").write_bytes(encode(drawn, "PNG"))
    drawn[3:5, 7:10] = 1
    (root / f"pngs_masks/{NAMES[0]}.png").write_bytes(encode(drawn, "PNG"))
    return CovidRural(root, **options)


def test_values_0_and_1_a_missing_mask_and_an_empty_one(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    assert [(c.case_id, c.labels["COVID-19"]) for c in dataset.cases()] == [(NAMES[0], 1), (NAMES[1], 0), (NAMES[2], 0)]
    first = dataset.cases()[0]
    expected = np.zeros((20, 30), bool)
    expected[3:5, 7:10] = True
    np.testing.assert_array_equal(first.regions["COVID-19"].mask(20, 30), expected)
    assert first.size == (20, 30) and first.patient_id == "COVID-19-AR-16406490"
    assert not dataset.cases()[1].regions and dataset.cases()[1].size is None and not dataset.cases()[2].regions
    assert [(n.kind, n.subject) for n in dataset.notes] == [("empty_mask", NAMES[2])]
    found = audit(dataset, decode=True, threads=1)
    assert found.passed and (found.pairs, found.size_differs, found.is_official) == (1, 0, False)
    assert len(dataset.sources()) == 2 and "CC BY" in found.card


def test_a_list_chooses_and_a_film_that_is_absent_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(f"filepath\n{NAMES[1]}\njpgs/{NAMES[0]}.jpg\nCOVID-19-AR-1_a-XR\n{NAMES[1]}\n")
    dataset = make(tmp_path, list="test.csv", split="paper")
    assert [c.case_id for c in dataset.cases()] == [NAMES[1], NAMES[0], "COVID-19-AR-1_a-XR"]
    assert [c.image.is_file() for c in dataset.cases()] == [True, True, False]
    assert [(n.kind, n.row) for n in dataset.notes] == [("duplicate", 5)] and dataset.cases()[1].rows == (3,)


def test_a_mask_without_its_film_stays_a_case(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    (tmp_path / f"jpgs/{NAMES[0]}.jpg").unlink()
    assert len(dataset.cases()) == 3 and audit(dataset).images_missing == 1


def test_the_folder_of_the_annotation_repository_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "covid_rural_annot").mkdir()
    make(tmp_path / "covid_rural_annot")
    assert len(CovidRural(tmp_path).cases()) == 3


def test_a_missing_folder_of_masks_does_not_make_all_films_negative(tmp_path: Path) -> None:
    (tmp_path / "jpgs").mkdir()
    with pytest.raises(DataError, match="pngs_masks of the masks does not exist"):
        CovidRural(tmp_path).cases()


@pytest.mark.parametrize("name", ["", "..", ".jpg"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "test.csv").write_text(
        f'filepath\n{NAMES[0]}\n"{name}","x"\n'.replace(',"x"', "") if name else "filepath,b\n,x\n"
    )
    with pytest.raises(DataError, match=r"row [23]: "):
        make(tmp_path, list="test.csv").cases()


@pytest.mark.parametrize(
    ("mode", "value"),
    [("1", 1), ("L", 1), ("P", 1), ("LA", (1, 255)), ("RGB", (0, 1, 0)), ("I;16", 1), ("RGBA", (0, 0, 1, 0))],
)
def test_any_value_above_0_is_region_in_every_kind_of_png(tmp_path: Path, mode: str, value: Any) -> None:
    image = Image.new(mode, (5, 4))
    if mode == "P":
        image.putpalette([0, 0, 0, 0, 0, 0])  # both colours black: the index counts
    image.putpixel((3, 2), value)
    image.save(tmp_path / "mask.png")
    expected = np.zeros((4, 5), bool)
    expected[2, 3] = True
    np.testing.assert_array_equal(MaskReader().read(tmp_path / "mask.png", "COVID-19"), expected)


def test_a_mask_that_cannot_be_read_is_an_error_and_not_a_negative(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    path = tmp_path / f"pngs_masks/{NAMES[0]}.png"
    whole = path.read_bytes()
    for data in (b"", b"no png", whole[:40], whole[:-20], whole[:50] + b"x" + whole[51:]):
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"The mask .*{NAMES[0]}\.png cannot be read"):
            CovidRural(tmp_path).cases()
    assert dataset.title == "COVID-19 Rural"
