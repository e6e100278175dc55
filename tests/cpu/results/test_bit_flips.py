"""A flipped bit in anything that is stored is harmless or named: no other number is ever accepted.

XBENCH_FUZZ multiplies the number of flips (default 1). The counts are printed (pytest -s).
"""

from __future__ import annotations

import io
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluation_world import World, same
from synthetic import make_bundle, make_dataset, save_graph
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ImageError, XBenchError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.row_groups import JoinedFiles, ParsedFile
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard, shard_folder
from xbench_fast.runtime.results.schema import result_schema
from xbench_fast.runtime.results.storage import KEY_FIELD, CellFiles
from xbench_fast.runtime.results.stored_maps import load_maps

TIMES = int(os.environ.get("XBENCH_FUZZ", "1"))
SQUASH = Geometry("squash", 32, 32, "bilinear")
_END = 4096  # half of the flips of a large file hit its end, where a result file describes itself


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DatasetConfig:
    """Case 7 cannot be read."""
    root = make_dataset(tmp_path_factory.mktemp("data") / "data")
    (root / "images" / "case0007.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    return DatasetConfig("coco", root, "coco")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    return make_bundle(folder / "blocks-32", several=True, graph=save_graph(folder / "blocks.onnx")).path


@pytest.fixture
def world(tmp_path: Path, data: DatasetConfig, bundle: Path) -> World:
    made = World(tmp_path)
    made.run([bundle], [data], baselines=["baseline:center"])
    return made


def flips(kind: str, files: list[Path], count: int, judge: Callable[[Path], str]) -> Counter[str]:
    """What `judge` says of single flipped bits: "harmless" or "named"; anything else is a wrong result."""
    rng, found, wrong = np.random.default_rng(len(kind)), Counter[str](), list[str]()
    contents = {path: path.read_bytes() for path in files}
    for number in range(count * TIMES):
        path = files[int(rng.integers(len(files)))]
        bits = 8 * len(contents[path])
        first = max(0, bits - 8 * _END) if number % 2 else 0
        bit = int(rng.integers(first, bits))
        flipped = bytearray(contents[path])
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            said = judge(path)
        except XBenchError as error:
            said = "named"
            assert str(error)
        finally:
            path.write_bytes(contents[path])
        found[said] += 1
        if said not in ("harmless", "named"):
            wrong.append(f"bit {bit} of {path}: {said}")
    print(
        f"{kind}: {sum(found.values())} flips, {found['harmless']} harmless, {found['named']} named, {len(wrong)} wrong"
    )
    assert not wrong
    assert found["named"]
    return found


def parts_of(value: Any) -> list[Any]:
    """The fields of rows or maps, arrays as bytes."""
    return [x.tobytes() if isinstance(x, np.ndarray) else repr(x) for x in vars(value).values()]


def test_rows(world: World, data: DatasetConfig, bundle: Path) -> None:
    def content(run: Any, model: str) -> list[Any]:
        cell = run.cell(model, "coco")
        counts = [column.tobytes() for column in vars(cell.counts).values()]
        return [*parts_of(cell), *counts, *parts_of(load_maps(run, model, "coco")), run.table(model, "coco")]

    opened = load_run(world.out)
    models = {opened.path / entry["file"]: entry["model"] for entry in opened.data["cells"].values()}
    before = {model: content(opened, model) for model in models.values()}

    def judge(path: Path) -> str:
        run = load_run(world.out)
        reason = run.unfinished.get((models[path], "coco"))
        if reason is not None:
            assert path.name in reason and reason.endswith("run the same eval command again")
            return "named"
        return "harmless" if content(run, models[path]) == before[models[path]] else "other rows"

    flips("rows", list(models), 200, judge)
    whole = world.table()
    path = world.out / world.entry()["file"]
    for place in (10, path.stat().st_size // 2, -700, -6, -1):
        changed = bytearray(path.read_bytes())
        changed[place] ^= 1
        path.write_bytes(changed)
        outcome = world.run([bundle], [data], baselines=["baseline:center"])
        assert (outcome.computed, outcome.reused) == (1, 1) and same(world.table(), whole)
        assert any(f"its result file {world.entry()['file']} is damaged" in line for line in world.lines)


def test_run_json(world: World) -> None:
    before = read_run(world.out)
    flips("run.json", [world.out / "run.json"], 200, lambda path: compared(read_run(world.out), before))


def compared(found: dict[str, Any], before: dict[str, Any]) -> str:
    """A flip in the name of the checksum leaves it as one more key."""
    return "harmless" if {**found, **before} == found else "other values"


def test_parts(tmp_path: Path, world: World) -> None:
    """Of a cell that is not finished: a damaged part is computed again."""
    table = world.table()
    files = CellFiles(tmp_path / "parts", "a--b", "k" * 64)
    schema = result_schema({KEY_FIELD: files.key})
    files.write_part(0, table.replace_schema_metadata(schema.metadata))

    def judge(path: Path) -> str:
        if not files.has_part(0):
            return "named"
        joined = JoinedFiles(stream := io.BytesIO())
        joined.add(ParsedFile.of(path.read_bytes()))
        joined.finish()
        found = pq.read_table(stream, schema=schema, page_checksum_verification=True)
        return "harmless" if same(found, table) else "other rows"

    flips("parts", [files.part(0)], 200, judge)


def test_prepared_images(tmp_path: Path, data: DatasetConfig) -> None:
    cases = Coco(data.root).cases()

    def content() -> list[Any]:
        with PreparedStore.open(tmp_path / "cache", "coco", cases, SQUASH) as store:
            found: list[Any] = []
            for number in range(len(cases)):
                try:
                    pixels, height, width = store.load(number)
                    found.append((pixels.tobytes(), height, width))
                except ImageError as error:
                    found.append(str(error))
            damaged.append(len(store.damaged))
            return found

    damaged: list[int] = []
    before = content()
    assert content() == before and isinstance(before[7], str) and damaged == [0, 0]
    files = [path for path in sorted((tmp_path / "cache").rglob("*")) if path.is_file() and path.stat().st_size]
    assert {path.name for path in files} == {"index.json", "pixels.bin", "reasons.jsonl", "records.bin"}

    def judge(path: Path) -> str:
        kept = {each: each.read_bytes() for each in files}
        try:
            if content() != before:
                return "other pixels"
            return "named" if damaged[-1] else "harmless"
        finally:
            for each in files:
                each.write_bytes(kept[each])

    flips("prepared images", files, 200, judge)


def test_an_evaluation_decodes_damaged_images_again_and_says_so(
    tmp_path: Path, data: DatasetConfig, bundle: Path
) -> None:
    world, other = World(tmp_path), World(tmp_path / "other")
    other.out.parent.mkdir()
    world.run([bundle], [data], cache=tmp_path / "cache")
    (pixels,) = (tmp_path / "cache").glob("*-squash-*/pixels.bin")
    changed = bytearray(pixels.read_bytes())
    for case in (0, 3):
        changed[case * 32 * 32 + 500] ^= 64
    pixels.write_bytes(changed)
    for count in (2, 0):
        shutil.rmtree(other.out, ignore_errors=True)
        assert other.run([bundle], [data], cache=tmp_path / "cache").computed == 1
        assert same(other.table(), world.table())
        said = [line for line in other.lines if "prepared images were damaged" in line]
        assert said == ["coco: 2 prepared images were damaged, and were decoded again"] * (count > 0)


def test_bundles(bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / bundle.name))
    files = [path for path in sorted(copy.rglob("*")) if path.is_file()]
    before = Bundle.load(copy)
    assert len(files) == len(before.manifest.files) + 1

    def judge(path: Path) -> str:
        found = Bundle.load(copy)
        return "harmless" if found.manifest == before.manifest and path.name == "bundle.json" else "another model"

    flips("bundles", files, 200, judge)


def test_shards(tmp_path: Path, data: DatasetConfig, bundle: Path) -> None:
    folders = []
    for index in (1, 2):
        shard, world = Shard(index, 2), World(tmp_path)
        world.out = shard_folder(tmp_path / "run", shard)
        world.run([bundle], [data], shard=shard)
        with RunDirectory(world.out) as opened:
            opened.begin({"shard": str(shard)})
        folders.append(world.out)
    merged = World(tmp_path / "merged")
    assert merge_shards(folders, merged.out, lambda line: None).computed == 1
    whole, entry = merged.table(), merged.entry()
    ours = ("updated", "seconds", "computed")

    def judge(path: Path) -> str:
        shutil.rmtree(merged.out, ignore_errors=True)
        outcome = merge_shards(folders, merged.out, lambda line: None)
        if outcome.failed:
            return "named"
        now = merged.entry()
        equal = {**now, **{name: entry[name] for name in ours}} == entry
        return "harmless" if equal and same(merged.table(), whole) else "other rows"

    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".parquet")]
    flips("shards", files, 100, judge)
