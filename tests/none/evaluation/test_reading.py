"""A block of cases that is read at once is what its cases are when they are read one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import drawn_by_stores
from PIL import Image
from xbench_fast.engines.errors import DataError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.cache.mask_store import MASK_ROW, MaskStore
from xbench_fast.runtime.data.cache.preparing import PreparedSet, prepare
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.pixels import PixelSource, direct_source
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_grid import DrawRegions, draw_regions
from xbench_fast.runtime.data.datasets.region_shapes import Polygons
from xbench_fast.runtime.data.images.contents import Contents
from xbench_fast.runtime.evaluation.decoded_blocks import Block, CaseReader, read_ahead
from xbench_fast.runtime.evaluation.decoded_case import DecodedCase, decode_case
from xbench_fast.runtime.evaluation.drawn import CaseColumns, DrawnPairs

CROP = Geometry("crop", 64, 64, "bilinear")
ODD = Geometry("squash", 31, 31, "bilinear")  # 961 pixels are no whole number of words
FINDINGS = ("Nodule", "Edema", "Mass")


def make_cases(folder: Path, count: int = 20) -> list[Case]:
    rng, cases = np.random.default_rng(0), []
    folder.mkdir()
    for number in range(count):
        height, width = 90 + number % 3, 120
        Image.fromarray(rng.integers(0, 256, (height, width), np.uint8)).save(folder / f"{number}.png")
        regions: dict[str, Any] = {}
        if number % 3:
            regions["Mass"] = Boxes(((10.0, 20.0, 40.0 + number, 60.0),))
        if number % 4 == 1:
            regions["Edema"] = Boxes(((130.0, 0.0, 140.0, 9.0),))  # outside
            regions["Other"] = Boxes(((0.0, 0.0, 9.0, 9.0),))  # that nobody asks
        if number % 5 == 2:
            regions["Nodule"] = Polygons((((9.0, 9.0), (9.2, 9.0), (9.0, 9.2)),))  # sub-pixel
        size = (2000, 2400) if number in (7, 8) else None
        cases.append(Case(f"c{number}", folder / f"{number}.png", {}, regions, "all", None, size=size))
    return cases


class Counting:
    """A source that counts the cases it is asked for one by one."""

    def __init__(self, real: Any) -> None:
        self.real, self.alone, self.read_many = real, list[str](), real.read_many

    def __call__(self, case: Case, *rest: Any) -> Any:
        self.alone.append(case.case_id)
        return self.real(case, *rest)


def block_of(reader: CaseReader, cases: Sequence[Case]) -> Block:
    side = reader.geometry.size
    with ThreadPoolExecutor(2) as pool:
        return reader.begin(cases, np.full((len(cases), 1, side, side), 77, np.uint8), pool).result()


def same(found: Block, expected: Sequence[DecodedCase]) -> None:
    readable = [case for case in expected if case.status == "ok"]
    assert found.pixels.shape[0] == len(readable)
    for pixels, case in zip(found.pixels, readable, strict=True):
        np.testing.assert_array_equal(pixels[0], case.pixels)
    for one, other in (
        (found.columns, CaseColumns.of(expected, FINDINGS)),
        (found.pairs, DrawnPairs.of(readable, FINDINGS)),
    ):
        for name, value in vars(other).items():
            mine = getattr(one, name)
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(mine, value, name)
            else:
                assert (sorted(mine) if name == "faults" else mine) == (sorted(value) if name == "faults" else value)


def plainly(cases: Sequence[Case], geometry: Geometry, findings: Sequence[str] = FINDINGS) -> list[DecodedCase]:
    contents = Contents()
    source = direct_source(geometry, contents)
    return [decode_case(case, source, geometry, findings, contents) for case in cases]


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return make_cases(tmp_path / "images")


@pytest.fixture(params=["writes", "reads"])
def opened(tmp_path: Path, request: pytest.FixtureRequest, cases: list[Case]) -> Iterator[Any]:
    """Opens sources and masks of a cache in which all cases are; with another process that writes, in "reads"."""
    with ExitStack() as stack:

        def now(geometry: Geometry = CROP) -> tuple[PixelSource, DrawRegions, PreparedSet]:
            images = stack.enter_context(PreparedSet.open(tmp_path / "cache", "demo", cases, [geometry]))
            masks = stack.enter_context(MaskStore.open(tmp_path / "cache", "demo", cases, "digest"))
            return images.source(geometry), masks, images

        for geometry in (CROP, ODD):
            source, masks, images = now(geometry)
            prepare(images, range(len(cases)), 2, lambda done: None)
            block_of(CaseReader(source, geometry, FINDINGS, Contents(), masks), cases)
            if request.param == "writes":
                stack.close()
        yield now


@pytest.fixture
def drawn(opened: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases that a store draws from now on."""
    return drawn_by_stores(monkeypatch)


def reader_of(opened: Any, geometry: Geometry = CROP) -> tuple[CaseReader, Counting, Contents]:
    source, masks, images = opened(geometry)
    contents = Contents()
    images.use(contents)
    pixels = Counting(source)
    return CaseReader(pixels, geometry, FINDINGS, contents, masks), pixels, contents


def test_what_is_prepared_is_read_at_once(opened: Any, cases: list[Case], drawn: list[str]) -> None:
    reader, pixels, contents = reader_of(opened)
    expected = plainly(cases, CROP)
    same(block_of(reader, cases), expected)
    assert (pixels.alone, drawn) == ([], [])
    assert contents.hash_of(cases[3].image) == expected[3].image and len(contents.known) == len(cases)
    some = [cases[at] for at in (9, 2, 2, 15)]
    same(block_of(reader, some), [expected[at] for at in (9, 2, 2, 15)])
    other = CaseReader(reader.source, CROP, ("Mass", "Nodule"), contents, reader.draw)
    found = block_of(other, cases).pairs
    plain = DrawnPairs.of(plainly(cases, CROP, ("Mass", "Nodule")), ("Mass", "Nodule"))
    np.testing.assert_array_equal(found.masks, plain.masks)
    np.testing.assert_array_equal(found.of_finding, plain.of_finding)


def test_an_odd_side_is_read_one_by_one(opened: Any, cases: list[Case], drawn: list[str]) -> None:
    reader, pixels, _ = reader_of(opened, ODD)
    same(block_of(reader, cases), plainly(cases, ODD))
    assert sorted(pixels.alone) == sorted(case.case_id for case in cases) and not drawn


def test_what_changed_is_damaged_or_missing_is_read_one_by_one(
    opened: Any, cases: list[Case], tmp_path: Path, drawn: list[str]
) -> None:
    cases[1].image.unlink()
    cases[2].image.write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    Image.fromarray(np.zeros((50, 60), np.uint8)).save(cases[3].image)
    (pixels,) = tmp_path.glob("cache/*crop*/pixels.bin")
    with pixels.open("rb+") as stream:
        stream.seek(5 * CROP.size**2 + 40)
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 4]))
    (rows,) = tmp_path.glob("cache/*masks*/pixels.bin")
    with rows.open("rb+") as stream:
        stream.seek(sum(len(case.regions) for case in cases[:11]) * MASK_ROW + 6000)  # of case 11
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 1]))
    reader, source, _ = reader_of(opened)
    expected = plainly(cases, CROP)
    assert [case.status for case in expected[:4]] == ["ok", "missing", "unreadable", "ok"]
    same(block_of(reader, cases), expected)
    assert sorted(source.alone) == ["c1", "c2", "c3", "c5"]
    assert drawn == ["c11"]  # c3 has no region
    same(block_of(reader, cases[1:3]), expected[1:3])


def test_verified_images_are_read_one_by_one(opened: Any, cases: list[Case]) -> None:
    source, masks, images = opened()
    contents, counted = Contents(verify=True), Counting(source)
    images.use(contents)
    same(block_of(CaseReader(counted, CROP, FINDINGS, contents, masks), cases[:4]), plainly(cases[:4], CROP))
    assert sorted(counted.alone) == ["c0", "c1", "c2", "c3"]


def test_blocks_come_in_order_with_the_sizes_of_their_images(tmp_path: Path, cases: list[Case]) -> None:
    sizes: dict[str, tuple[int, int]] = {}
    contents = Contents()
    reader = CaseReader(direct_source(CROP, contents), CROP, FINDINGS, contents, sizes=sizes)
    found = list(read_ahead(reader, (cases[at : at + 6] for at in range(0, 20, 6)), 6, 3))
    for block, start in zip(found, range(0, 20, 6), strict=True):
        same(block, plainly(cases[start : start + 6], CROP))
    assert sizes == {case.case_id: (90 + number % 3, 120) for number, case in enumerate(cases)}
    with PreparedSet.open(tmp_path / "cache", "demo", cases, [CROP]) as images:
        prepare(images, range(20), 2, lambda done: None)
        again: dict[str, tuple[int, int]] = {}
        block_of(CaseReader(images.source(CROP), CROP, FINDINGS, Contents(), sizes=again), cases)
    assert again == sizes


def test_blocks_grow_where_everything_is_prepared(tmp_path: Path, cases: list[Case]) -> None:
    with PreparedSet.open(tmp_path / "cache", "demo", cases, [CROP]) as images:
        found: list[list[int]] = []
        for turn in range(2):
            reader = CaseReader(images.source(CROP), CROP, FINDINGS, Contents())
            chunks = [cases[at % 20 : at % 20 + 10] for at in range(0, 60, 10)]
            blocks = list(read_ahead(reader, chunks if turn else chunks[:2], 2, 1))
            found.append([len(block.columns.cases) for block in blocks])
            order = [case.case_id for block in blocks for case in block.columns.cases]
            assert order == [case.case_id for chunk in (chunks if turn else chunks[:2]) for case in chunk]
    assert set(found[0]) == {2}, "they are decoded"
    assert max(found[1]) == 10 and found[1][0] == 2


def test_the_room_of_a_block_is_used_again_once_the_next_is_asked_for(cases: list[Case]) -> None:
    reader = CaseReader(direct_source(CROP), CROP, FINDINGS, Contents())
    expected, places = plainly(cases, CROP), list[int]()
    for number, block in enumerate(read_ahead(reader, ([case] for case in cases), 1, 1)):
        time.sleep(0.01)  # blocks in advance may be written meanwhile
        if expected[number].pixels is not None:
            np.testing.assert_array_equal(block.pixels[0, 0], expected[number].pixels)
            places.append(block.pixels.ctypes.data)
    assert len(set(places)) < 16 and places[0] in places[1:]


def test_a_region_that_cannot_be_drawn_is_an_error(cases: list[Case]) -> None:
    def refuse(cases: Sequence[Case], *rest: Any) -> Any:
        if any(case.case_id == "c13" for case in cases):
            raise DataError("it cannot be drawn")
        return draw_regions(cases, *rest)

    reader = CaseReader(direct_source(CROP), CROP, FINDINGS, Contents(), refuse)
    blocks = read_ahead(reader, (cases[at : at + 5] for at in range(0, 20, 5)), 5, 2)
    assert [len(next(blocks).columns.cases) for _ in range(2)] == [5, 5]
    with pytest.raises(DataError, match="cannot be drawn"):
        next(blocks)
