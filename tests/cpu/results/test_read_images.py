"""A result and a prepared image are of the images that are there now, whatever their files' sizes and times say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluation_world import World, same
from make_images import encode
from synthetic import make_dataset
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.images import contents
from xbench_fast.runtime.data.images.contents import ABSENT, Contents, content_hash, file_state
from xbench_fast.runtime.evaluation.reference.map_files import MapFolder
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard

pytestmark = pytest.mark.usefixtures("empty_drawings")

SQUASH = Geometry("squash", 32, 32, "bicubic")


def level(folder: Path) -> None:
    """Makes sizes and times of all files in a folder equal; decoders do not read what follows the image."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    longest = max(path.stat().st_size for path in files)
    for path in files:
        path.write_bytes(path.read_bytes().ljust(longest, b"\0"))
        os.utime(path, ns=(1_000_000_000, 1_000_000_000))


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def rewrite(one: Path, other: Path) -> None:
    """Exchanges the contents and sets the times as they were."""
    first, second = one.read_bytes(), other.read_bytes()
    for path, data in ((one, second), (other, first)):
        path.write_bytes(data)
        os.utime(path, ns=(1_000_000_000, 1_000_000_000))


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    root = make_dataset(tmp_path / "data")
    level(root / "images")
    return DatasetConfig("coco", root, "coco")


def image(data: DatasetConfig, number: int) -> Path:
    return data.root / "images" / f"case{number:04d}.png"


def afresh(folder: Path, bundle: Path, data: DatasetConfig) -> Any:
    """The rows of an evaluation that finds nothing to reuse."""
    folder.mkdir()
    world = World(folder)
    world.run([bundle], [data])
    return world.table()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that keeps neither the time of the last change of an entry nor numbers of files."""
    real = contents.file_state
    for place in ("data.images.contents", "data.cache.image_store", "data.cache.preparing"):
        monkeypatch.setattr(
            f"xbench_fast.runtime.{place}.file_state", lambda path: real(path)._replace(ctime_ns=0, inode=0)
        )


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("change", [swap, rewrite])
def test_images_of_equal_size_and_time_are_told_apart(
    world: World, bundle: Path, data: DatasetConfig, tmp_path: Path, change: Callable[[Path, Path], None], cached: bool
) -> None:
    cache = tmp_path / "cache" if cached else None
    world.run([bundle], [data], cache)
    before = world.table()
    change(image(data, 4), image(data, 8))
    assert image(data, 4).stat().st_size == image(data, 8).stat().st_size
    assert image(data, 4).stat().st_mtime_ns == image(data, 8).stat().st_mtime_ns
    outcome = world.run([bundle], [data], cache)
    assert (outcome.computed, outcome.reused) == (1, 0)
    assert any("because this changed: the image of case0004" in line for line in world.lines)
    assert same(world.table(), afresh(tmp_path / "fresh", bundle, data)) and not same(world.table(), before)
    assert (world.run([bundle], [data], cache).reused, world.calls) == (1, [])


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("cached", [False, True])
def test_verify_reads_where_the_file_system_hides_a_change(
    world: World, bundle: Path, data: DatasetConfig, tmp_path: Path, cached: bool
) -> None:
    cache = tmp_path / "cache" if cached else None
    world.run([bundle], [data], cache)
    swap(image(data, 4), image(data, 8))
    assert world.run([bundle], [data], cache).reused == 1  # as docs/run-directory.md §6 says
    outcome = world.run([bundle], [data], cache, verify=True)
    assert outcome.computed == 1 and same(world.table(), afresh(tmp_path / "fresh", bundle, data))
    assert world.run([bundle], [data], cache, verify=True).reused == 1


def test_a_copy_of_the_images_is_the_same(
    world: World, bundle: Path, data: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    world.run([bundle], [data], cache)
    folder = data.root / "images"
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    (tmp_path / "copy").rename(folder)
    for path in folder.iterdir():
        os.utime(path, (5, 5))
    monkeypatch.setattr(
        "xbench_fast.runtime.data.cache.image_store.decode_grey", lambda data, name: pytest.fail("decoded again")
    )
    assert (world.run([bundle], [data], cache).reused, world.calls) == (1, [])
    shutil.rmtree(world.out / "cells")
    assert world.run([bundle], [data], cache).computed == 1
    # What was found is kept: nothing is read any more.
    monkeypatch.setattr(contents, "read_bytes", lambda path: pytest.fail("read again"))
    assert world.run([bundle], [data], cache).reused == 1
    shutil.rmtree(world.out / "cells")
    assert world.run([bundle], [data], cache).computed == 1


@pytest.mark.parametrize("damage", ["none", "gone", "rubbish"])
def test_the_index_of_images_can_be_lost(world: World, bundle: Path, data: DatasetConfig, damage: str) -> None:
    world.run([bundle], [data])
    index = world.out / "images" / "coco.parquet"
    if damage == "gone":
        index.unlink()
    elif damage == "rubbish":
        index.write_bytes(index.read_bytes()[:-20])
    assert (world.run([bundle], [data]).reused, world.calls) == (1, [])
    swap(image(data, 4), image(data, 8))
    assert world.run([bundle], [data]).computed == 1


def test_an_interrupted_run_computes_again_what_changed_meanwhile(
    world: World, bundle: Path, data: DatasetConfig, tmp_path: Path
) -> None:
    world.interrupt = (6, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        world.run([bundle], [data])
    swap(image(data, 4), image(data, 5))  # both in the first of two finished chunks
    world.interrupt = None
    assert world.run([bundle], [data]).computed == 1 and world.calls == [3, 3, 2, 3, 1]
    assert same(world.table(), afresh(tmp_path / "fresh", bundle, data))


def test_images_that_come_go_and_are_mended(world: World, bundle: Path, data: DatasetConfig) -> None:
    whole = image(data, 3).read_bytes()
    image(data, 3).write_bytes(whole[:60])
    image(data, 7).unlink()
    world.run([bundle], [data])
    assert (world.entry()["missing"], world.entry()["unreadable"]) == (1, 1)
    assert world.run([bundle], [data]).reused == 1
    hashes = dict(zip(*(world.table()[name].to_pylist() for name in ("case_id", "image_hash")), strict=True))
    assert hashes["case0003"] == content_hash(whole[:60]) and hashes["case0007"] == bytes(16)
    assert hashes["case0000"] == content_hash(image(data, 0).read_bytes())
    image(data, 3).write_bytes(whole)
    assert world.run([bundle], [data]).computed == 1 and world.entry()["unreadable"] == 0
    image(data, 7).write_bytes(whole)
    assert world.run([bundle], [data]).computed == 1 and world.entry()["missing"] == 0
    image(data, 0).unlink()
    assert world.run([bundle], [data]).computed == 1 and world.entry()["missing"] == 1


def test_a_merged_result_follows_its_shards(world: World, bundle: Path, data: DatasetConfig, tmp_path: Path) -> None:
    shards = []
    for index in (1, 2):
        (tmp_path / str(index)).mkdir()
        shards.append(World(tmp_path / str(index)))

    def merged() -> Any:
        for index, each in enumerate(shards, 1):
            each.run([bundle], [data], shard=Shard(index, 2))
            with RunDirectory(each.out) as run:
                run.begin({"shard": f"{index}/2"})
        return merge_shards([each.out for each in shards], tmp_path / "merged", world.lines.append)

    assert merged().computed == 1 and merged().reused == 1
    swap(image(data, 4), image(data, 8))
    assert merged().computed == 1
    [file] = (tmp_path / "merged" / "cells").glob("*.parquet")
    assert same(pq.read_table(file), afresh(tmp_path / "fresh", bundle, data))


@pytest.fixture
def boxes(tmp_path: Path) -> Path:
    """Two images of other sizes in equal files; the sizes are only in the images."""
    root = tmp_path / "boxes"
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, shape in (("a.png", (40, 60)), ("b.png", (90, 50))):
        (root / "images" / name).write_bytes(encode(rng.integers(0, 255, shape, dtype=np.uint8), "PNG"))
    level(root / "images")
    (root / "annotations.csv").write_text("image,class,x,y,width,height\na.png,Mass,5,5,20,20\nb.png,Mass,5,5,20,20\n")
    return root


def evaluated(capsys: pytest.CaptureFixture[str], root: Path, *more: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(
            ["eval", "--model", "baseline:center", "--data", f"mine={root}", "--data-option", "mine.reader=csv", *more]
        )
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_rows_without_a_model_rest_on_the_sizes_of_images(
    boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "reused" not in evaluated(capsys, boxes)
    for name in ("a.png", "b.png"):
        os.utime(boxes / "images" / name, (7, 7))
    assert "finished before, reused" in evaluated(capsys, boxes)
    swap(boxes / "images" / "a.png", boxes / "images" / "b.png")
    assert "this changed: the image of a.png" in evaluated(capsys, boxes)
    assert "finished before, reused" in evaluated(capsys, boxes)


@pytest.mark.usefixtures("blind")
def test_verify_is_an_option_of_the_command(
    boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    evaluated(capsys, boxes)
    swap(boxes / "images" / "a.png", boxes / "images" / "b.png")
    assert "finished before, reused" in evaluated(capsys, boxes)
    assert "this changed: the image of a.png" in evaluated(capsys, boxes, "--verify")


def test_own_maps_are_told_apart_by_their_content(world: World, data: DatasetConfig, tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(20):
        for finding in ("Mass", "Effusion"):
            np.save(folder / f"case{number:04d}_{finding}.npy", rng.random((7, 7), np.float32))
    level(folder)
    world.run([], [data], files=[MapFolder(folder)])
    shutil.copytree(folder, tmp_path / "other" / "maps")
    assert world.run([], [data], files=[MapFolder(tmp_path / "other" / "maps")]).reused == 1
    rewrite(folder / "case0000_Mass.npy", folder / "case0003_Mass.npy")
    assert world.run([], [data], files=[MapFolder(folder)]).computed == 1


def test_a_prepared_image_is_of_the_content_of_its_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    cases = [Case(f"c{n}", tmp_path / "images" / f"{n}.png", {}, {}, "all") for n in range(3)]
    for case in cases[:2]:
        case.image.write_bytes(encode(rng.integers(0, 256, (40, 50), dtype=np.uint8), "PNG"))
    cases[2].image.write_bytes(b"no image")
    level(tmp_path / "images")

    def loaded() -> list[Any]:
        with PreparedStore.open(tmp_path / "cache", "demo", cases, SQUASH) as store:
            states = [contents.file_state(case.image) for case in cases]
            known = [not store.lacks(number, state) for number, state in enumerate(states)]
            return [*known, *(store.load(number)[0].copy() for number in range(2) if states)]

    assert loaded()[:3] == [False] * 3
    first = loaded()
    swap(cases[0].image, cases[1].image)
    second = loaded()
    assert second[:3] == [False, False, False]
    np.testing.assert_array_equal(second[3], first[4])
    np.testing.assert_array_equal(second[4], first[3])


def test_what_is_known_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    known = Contents()
    assert known.hash_now(path) == known.hash_of(path) == known.size_hash_now(path) == bytes(16)
    path.write_bytes(encode(np.zeros((3, 4), np.uint8), "PNG"))
    found = known.hash_now(path)
    assert found == content_hash(path.read_bytes()) == known.hash_of(path) and not known.is_known(path, size=True)
    size = known.size_hash_now(path)
    assert known.is_known(path) and known.is_known(path, size=True) and known.hash_of(path) == found != size
    sure = Contents(verify=True)
    sure.known |= known.known
    assert not sure.is_known(path) and sure.hash_now(path) == found and sure.is_known(path)
    monkeypatch.setattr(contents, "read_bytes", lambda path: pytest.fail("read again"))
    assert known.hash_now(path) == sure.hash_now(path) == found
    path.unlink()
    assert known.hash_now(path) == bytes(16)


def test_a_state_and_a_hash_are_of_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(bytes(5000))
    found = file.stat()
    assert file_state(file) == (5000, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    assert content_hash(bytes(5000)) != content_hash(bytes(4999) + b"1")


def test_what_was_read_of_a_file_does_not_outlive_its_state(tmp_path: Path) -> None:
    file, contents = tmp_path / "image.png", Contents()
    file.write_bytes(b"first")
    contents.read(file)
    state = file_state(file)
    contents.note(file, (*state, None, (2, 3)))
    assert contents.known[file] == (*state, content_hash(b"first"), (2, 3)), "of one state"
    contents.note(file, (*state._replace(ctime_ns=1), None, (2, 3)))
    assert contents.known[file] == (*state._replace(ctime_ns=1), None, (2, 3)), "of another"
    contents.read(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        contents.read(file)
    assert contents.hash_of(file) == ABSENT
