"""Masks that are kept are those that would be drawn, and never those of another annotation, size or rule."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World, drawn_by_stores
from locked import refuse_writes
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.errors import DataError, RunError
from xbench_fast.runtime.data.cache import eviction as caches
from xbench_fast.runtime.data.cache import mask_store as kept
from xbench_fast.runtime.data.cache.mask_store import MASK_ROW, MaskStore, mask_bytes
from xbench_fast.runtime.data.cache.store_files import RECORD
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_grid import draw_regions, region_masks
from xbench_fast.runtime.data.datasets.region_shapes import Polygons, Rle
from xbench_fast.runtime.evaluation.cell_sources import masks_opener
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.loaded_dataset import load_dataset

NAMES = ("Mass", "Edema", "Nodule", "Fracture")
SIZE = (900, 700)


def make_cases() -> list[Case]:
    regions: list[dict[str, Any]] = [
        {"Nodule": Boxes(((20.0, 30.0, 300.0, 500.0),)), "Mass": Boxes(((1.0, 1.0, 2.0, 2.0),))},
        {},
        {
            "Edema": Boxes(((690.0, 20.0, 720.0, 60.0),)),
            "Mass": Boxes(((800.0, 0.0, 900.0, 9.0),)),
            "Fracture": Polygons((((9.0, 9.0), (300.0, 20.0), (80.0, 400.0)),)),
            "Nodule": Rle(SIZE, (SIZE[0] * SIZE[1],)),
        },
        {"Mass": Boxes(((100.0, 100.0, 101.0, 101.0),))},
    ]
    return [Case(f"c{number}", Path(f"{number}.png"), {}, found, "all") for number, found in enumerate(regions)]


CASES = make_cases()


def opened(root: Path, cases: list[Case] = CASES, digest: str = "a", **options: bool) -> MaskStore:
    return MaskStore.open(root, "demo", cases, digest, **options)


def same(store: MaskStore, cases: list[Case], size: tuple[int, int], names: Sequence[str]) -> None:
    """The store draws these cases as they are drawn without it, together and each by itself."""
    sizes = np.array([size] * len(cases), np.int32).reshape(-1, 2)
    for here in (slice(None), *(slice(at, at + 1) for at in range(len(cases)))):
        found, plain = store(cases[here], sizes[here], names), draw_regions(cases[here], sizes[here], names)
        for one, other in zip(found[:4], plain[:4], strict=True):
            np.testing.assert_array_equal(one, other)
        assert sorted(found.faults) == sorted(plain.faults)


def draw_all(root: Path, *, size: tuple[int, int] = SIZE, **options: bool) -> MaskStore:
    """Draws all cases through the store, compares them with `region_masks`, and closes it."""
    with opened(root, **options) as store:
        same(store, CASES if size == SIZE else CASES[:2], size, NAMES)
    return store


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases that the store draws."""
    return drawn_by_stores(monkeypatch)


def test_what_is_drawn_once_is_what_is_drawn(tmp_path: Path, drawn: list[str]) -> None:
    masks, _, faults = region_masks(CASES[2], SIZE, NAMES)
    assert list(masks) == ["Edema", "Fracture"] and set(faults.values()) == {"clipped", "outside", "empty"}
    assert region_masks(CASES[0], SIZE, NAMES)[1] == {"Mass"}
    draw_all(tmp_path)
    assert drawn == ["c0", "c2", "c3"]
    draw_all(tmp_path)
    with opened(tmp_path) as store:
        same(store, CASES, SIZE, ["Nodule", "Mass"])
    assert drawn == ["c0", "c2", "c3"] and not store.damaged


def test_another_size_draws_again(tmp_path: Path, drawn: list[str]) -> None:
    draw_all(tmp_path)
    draw_all(tmp_path, size=(700, 900))
    draw_all(tmp_path)
    assert drawn == ["c0", "c2", "c3", "c0", "c0"]


def test_another_digest_or_rule_has_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_all(tmp_path)
    opened(tmp_path, digest="b").__exit__(None, None, None)
    monkeypatch.setattr(kept, "mask_rules", lambda: "masks-other")
    opened(tmp_path).__exit__(None, None, None)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("file", ["pixels.bin", "records.bin"])
def test_a_damaged_bit_is_found(tmp_path: Path, drawn: list[str], file: str) -> None:
    draw_all(tmp_path)
    (folder,) = tmp_path.iterdir()
    size = MASK_ROW if file == "pixels.bin" else RECORD.itemsize
    for place in (0, 5, size // 2, size - 1):
        content = bytearray((folder / file).read_bytes())
        content[place] ^= 1
        (folder / file).write_bytes(content)
        drawn.clear()
        draw_all(tmp_path)
        assert drawn == ["c0"], place


def test_a_writer_killed_between_masks_and_record_leaves_nothing(
    tmp_path: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = os.pwrite, []

    def once(*arguments: Any) -> int:
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(*arguments)

    with monkeypatch.context() as patch, opened(tmp_path) as store:
        patch.setattr(os, "pwrite", once)
        with pytest.raises(RunError, match="disk is full"):
            store(CASES[:1], np.array([SIZE], np.int32), NAMES)
    drawn.clear()
    draw_all(tmp_path)
    assert drawn == ["c0", "c2", "c3"]


def test_a_second_process_reads_and_does_not_write(tmp_path: Path, drawn: list[str]) -> None:
    with opened(tmp_path) as writer, opened(tmp_path) as reader:
        same(writer, CASES[:1], SIZE, NAMES)
        before = (next(tmp_path.iterdir()) / "pixels.bin").read_bytes()
        same(reader, CASES[:1], SIZE, NAMES)
        assert drawn == ["c0"]
        same(reader, CASES[3:], SIZE, NAMES)
        assert drawn == ["c0", "c3", "c3"] and (next(tmp_path.iterdir()) / "pixels.bin").read_bytes() == before


def test_a_read_only_cache_is_read(tmp_path: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    draw_all(tmp_path)
    drawn.clear()
    refuse_writes(tmp_path, monkeypatch)
    draw_all(tmp_path)
    assert not drawn
    with opened(tmp_path, digest="b") as store:
        store(CASES[:1], np.array([SIZE], np.int32), NAMES)
    assert drawn == ["c0"]


def test_verify_compares_and_draws_again(tmp_path: Path, drawn: list[str]) -> None:
    draw_all(tmp_path)
    with opened(tmp_path) as store:
        files = store._files
        assert files is not None
        files.write(0, files.records[0].tobytes(), np.zeros((2, MASK_ROW), np.uint8))  # whole, and wrong
        assert not len(store(CASES[:1], np.array([SIZE], np.int32), NAMES).of_case)
    drawn.clear()
    assert draw_all(tmp_path, verify=True).damaged == {0}
    assert draw_all(tmp_path, verify=True).damaged == set()
    assert drawn == ["c0", "c2", "c3"] * 4  # `same` asks twice
    assert draw_all(tmp_path).damaged == set() and len(drawn) == 12


def test_only_a_region_that_is_asked_for_must_be_drawable(tmp_path: Path) -> None:
    case = Case("c", Path("c.png"), {}, {"Mass": Rle((3, 3), (9,)), "Edema": Boxes(((0.0, 0.0, 9.0, 9.0),))}, "all")
    with opened(tmp_path, [case]) as store:
        same(store, [case], SIZE, ["Edema"])
        with pytest.raises(DataError, match=r"The region of 'Mass' in c\.png cannot be drawn"):
            store([case], np.array([SIZE], np.int32), ["Edema", "Mass"])


def test_the_cache_lists_and_deletes_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_all(tmp_path)
    (info,) = caches.list_stores(tmp_path)
    assert (info.dataset, info.geometry, info.cases, info.images, info.outdated) == ("demo", "masks", 4, 3, False)
    (info.path / "index.json").unlink()
    assert [one.path for one in caches.list_stores(tmp_path)] == [info.path]
    (info.path / "pixels.bin").write_bytes(b"x")
    assert not caches.list_stores(tmp_path)
    draw_all(tmp_path)
    assert caches.clear(tmp_path, outdated_only=True) == ([], [])
    monkeypatch.setattr(caches, "mask_rules", lambda: "masks-other")
    assert [one.path for one in caches.clear(tmp_path, outdated_only=True)[0]] == [info.path]


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")


def test_masks_of_an_evaluation_are_drawn_once(tmp_path: Path, drawn: list[str], data: DatasetConfig) -> None:
    bundles = [make_bundle(tmp_path / name).path for name in ("one", "two")]
    cache, plain = tmp_path / "cache", World(tmp_path / "plain")
    world = World(tmp_path / "world")
    plain.run(bundles, [data])
    world.run(bundles, [data], cache)
    for name in ("one--coco", "two--coco"):
        assert world.table(name).equals(plain.table(name))
    assert sorted(drawn) == sorted(set(drawn)) and drawn
    drawn.clear()
    again = World(tmp_path / "again")
    again.run(bundles, [data], cache, limit=8)
    assert not drawn, "a limited evaluation reads the masks of the whole dataset"


def test_a_moved_box_is_drawn_again(tmp_path: Path, drawn: list[str], data: DatasetConfig) -> None:
    bundle, cache = make_bundle(tmp_path / "one").path, tmp_path / "cache"
    World(tmp_path / "before").run([bundle], [data], cache)
    file = data.root / "annotations.json"
    document = json.loads(file.read_text())
    document["annotations"][0]["bbox"][0] += 9
    file.write_text(json.dumps(document))
    after, plain = World(tmp_path / "after"), World(tmp_path / "plain")
    after.run([bundle], [data], cache)
    plain.run([bundle], [data])
    assert after.table("one--coco").equals(plain.table("one--coco"))


def test_the_code_of_a_reader_makes_another_digest(data: DatasetConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_dataset(data).regions_digest
    assert load_dataset(data, 5).regions_digest == before
    monkeypatch.setattr("xbench_fast.runtime.results.loaded_dataset.reader_code", lambda dataset: "other")
    assert load_dataset(data).regions_digest != before


def test_masks_that_do_not_fit_are_not_kept(tmp_path: Path, data: DatasetConfig, drawn: list[str]) -> None:
    loaded, cache = load_dataset(data), tmp_path / "cache"
    need = mask_bytes(loaded.cases)
    with masks_opener(cache, print, need - 1)(loaded) as draw:
        assert draw is draw_regions
    with masks_opener(cache, print, need)(loaded) as draw:
        assert isinstance(draw, MaskStore)


def test_a_line_says_how_many_were_damaged(tmp_path: Path, data: DatasetConfig) -> None:
    loaded, cache = load_dataset(data), tmp_path / "cache"
    said: list[str] = []

    def run() -> Iterator[None]:
        with masks_opener(cache, said.append)(loaded) as draw:
            draw(loaded.cases, np.array([(40, 56)] * len(loaded.cases), np.int32), loaded.dataset.classes)
            yield

    next(run())
    file = next(cache.iterdir()) / "pixels.bin"
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    assert not said
    for _ in run():
        pass
    assert said == ["coco: the masks of 1 images were damaged, and were drawn again"]
