"""Shards: which cases each gets, and that put together they are the evaluation in one piece."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World, same
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard, shard_folder

COUNT, CHUNK = 43, 4
MODELS = ("blocks-32--coco", "baseline:center--coco", "maps:maps--coco")


class ShardWorld(World):
    """A world whose run directory says which shard it is, as the command line's does."""

    def __init__(self, folder: Path, shard: Shard) -> None:
        super().__init__(folder)
        self.out, self.shard = shard_folder(folder / "run", shard), shard

    def run(self, *arguments: Any, **options: Any) -> Any:
        outcome = super().run(*arguments, **{"shard": self.shard, **options})
        with RunDirectory(self.out) as run:
            run.begin({"shard": str(self.shard)})
        return outcome


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DatasetConfig, Path]:
    """A bundle, a dataset of 43 cases with three images missing, and maps for some of the cases."""
    import numpy as np

    folder = tmp_path_factory.mktemp("inputs")
    bundle = make_bundle(folder / "models" / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(folder / "data", COUNT, missing=(0, 1, 9)), "coco")
    maps = folder / "maps"
    maps.mkdir()
    rng = np.random.default_rng(5)
    for index in (2, 3, 12, 21):  # only in one part of the dataset: the findings must not depend on the shard
        np.save(maps / f"case{index:04d}_Mass.npy", rng.random((6, 6), np.float32))
    return bundle, data, maps


def evaluate(world: World, inputs: tuple[Path, DatasetConfig, Path], **options: Any) -> Any:
    from xbench_fast.runtime.evaluation.reference.map_files import MapFolder

    bundle, data, maps = inputs
    how = {"chunk": CHUNK, "baselines": ["baseline:center"], "files": [MapFolder(maps)], **options}
    return world.run([bundle], [data], **how)


@pytest.fixture(scope="module")
def whole(inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("whole"))
    assert evaluate(world, inputs).computed == 3
    return world


@pytest.fixture(scope="module")
def shards(inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, found = tmp_path_factory.mktemp("sharded"), []
    for index in (3, 1, 2):
        world = ShardWorld(folder, Shard(index, 3))
        assert evaluate(world, inputs).computed == 3
        found.append(world.out)
    return found


def merge(folders: list[Path], out: Path) -> tuple[Any, list[str]]:
    lines: list[str] = []
    return merge_shards(folders, out, lines.append), lines


@settings(max_examples=60)
@given(st.text(max_size=9), st.integers(0, 500), st.integers(1, 70), st.integers(1, 40))
def test_shards_are_whole_chunks_that_cover_a_dataset(name: str, cases: int, chunk: int, of: int) -> None:
    spans = [Shard(index, of).span(name, cases, chunk) for index in range(1, of + 1)]
    assert sorted(case for span in spans for case in span) == list(range(cases))
    assert all(span.start % chunk == 0 or not span for span in spans)
    chunks = [-(-len(span) // chunk) for span in spans]
    assert max(chunks) - min(chunks) <= 1


def test_small_datasets_do_not_all_fall_to_one_shard() -> None:
    busy = {index for n in range(40) for index in range(1, 5) if Shard(index, 4).span(f"data{n}", 10, 256)}
    assert busy == {1, 2, 3, 4}


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2"])
def test_a_shard_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match="I/N"):
        Shard.parse(text)


def test_merged_shards_are_the_whole(whole: World, shards: list[Path], inputs: Any, tmp_path: Path) -> None:
    outcome, _ = merge(shards, tmp_path / "run")
    assert (outcome.computed, outcome.failed) == (3, [])
    merged = World(tmp_path)
    for name in MODELS:
        assert same(merged.table(name), whole.table(name))
        ours, theirs = merged.entry(name), whole.entry(name)
        for entry in (ours, theirs):
            del entry["updated"], entry["seconds"]
        assert ours == theirs
    assert evaluate(merged, inputs).reused == 3 and merged.calls == []
    # and once more, over what is there
    assert merge(shards, tmp_path / "run")[0].reused == 3


def test_the_batches_are_those_of_the_whole(whole: World, inputs: Any, tmp_path: Path) -> None:
    bundle, data, _ = inputs
    alone = World(tmp_path / "alone")
    alone.run([bundle], [data], chunk=CHUNK)
    calls: list[int] = []
    for index in range(1, 4):
        world = ShardWorld(tmp_path, Shard(index, 3))
        world.run([bundle], [data], chunk=CHUNK, threads=1 + index % 2)
        calls += world.calls
    assert sorted(calls) == sorted(alone.calls)
    merge([shard_folder(tmp_path / "run", Shard(index, 3)) for index in (1, 2, 3)], tmp_path / "merged")
    assert alone.entry()["threads"] == [2]
    assert read_run(tmp_path / "merged")["cells"]["blocks-32--coco"]["threads"] == [1, 2], "of all its shards"


def test_shards_of_which_some_have_nothing(inputs: Any, tmp_path: Path) -> None:
    bundle, data, _ = inputs
    folders, counts = [], []
    for index in range(1, 5):
        world = ShardWorld(tmp_path, Shard(index, 4))
        assert world.run([bundle], [data], chunk=30).computed == 1
        folders.append(world.out)
        counts.append(world.entry()["cases"])
    assert sorted(counts) == [0, 0, 13, 30]
    alone = World(tmp_path / "alone")
    alone.run([bundle], [data], chunk=30)
    assert merge(folders, tmp_path / "merged" / "run")[0].computed == 1
    assert same(World(tmp_path / "merged").table(), alone.table())


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ((0, 1), r"1 shard is missing, of 3: 2/3"),
        ((1,), r"2 shards are missing, of 3: 2/3, 3/3"),
        ((0, 1, 2, 1), r"Shard 1/3 was given twice, as .*shard-1-of-3 and .*shard-1-of-3"),
    ],
)
def test_shards_missing_or_twice(chosen: tuple[int, ...], sentence: str, shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=sentence):
        merge([shards[index] for index in chosen], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_no_shard_or_of_another_evaluation(whole: World, shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a shard"):
        merge([*shards, whole.out], tmp_path / "run")
    with pytest.raises(RunError, match="no run directory"):
        merge([tmp_path], tmp_path / "run")
    with pytest.raises(RunError, match="one of the shards"):
        merge(shards, shards[0])
    other = tmp_path / "other"
    with RunDirectory(other) as run:
        run.begin({"shard": "4/4"})
    with pytest.raises(RunError, match="not of one evaluation"):
        merge([*shards, other], tmp_path / "run")


def test_a_shard_evaluated_otherwise_costs_only_its_cells(shards: list[Path], inputs: Any, tmp_path: Path) -> None:
    bundle, data, _ = inputs
    folders = [Path(shutil.copytree(path, tmp_path / "run" / path.name)) for path in shards]
    world = ShardWorld(tmp_path, Shard(1, 3))
    world.run([bundle], [data], chunk=CHUNK, batch=2)
    outcome, _ = merge(folders, tmp_path / "run")
    assert outcome.computed == 2
    ((model, dataset, reason),) = outcome.failed
    assert (model, dataset) == ("blocks-32", "coco") and "differ in batch" in reason
    assert read_run(tmp_path / "run")["cells"]["blocks-32--coco"]["state"] == "failed"


def test_an_unfinished_shard_is_named_and_merged_later(
    whole: World, shards: list[Path], inputs: Any, tmp_path: Path
) -> None:
    folders = [path for path in shards if path.name != "shard-2-of-3"]
    world = ShardWorld(tmp_path, Shard(2, 3))
    world.interrupt = (2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        evaluate(world, inputs)
    with RunDirectory(world.out) as run:
        run.begin({"shard": "2/3"})
    outcome, _ = merge([*folders, world.out], tmp_path / "run")
    assert outcome.computed == 0 and len(outcome.failed) == 3
    reasons = {model: reason for model, _, reason in outcome.failed}
    assert "shard 2/3 has it as interrupted" in reasons["blocks-32"]
    assert "shard 2/3 did not evaluate it" in reasons["baseline:center"]
    world.interrupt = None
    assert evaluate(world, inputs).computed == 3
    assert any("taken over from before" in line for line in world.lines)
    assert merge([*folders, world.out], tmp_path / "run")[0].computed == 3
    assert same(World(tmp_path).table(), whole.table())


def test_a_damaged_result_is_not_merged(shards: list[Path], tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(path, tmp_path / path.name)) for path in shards]
    file = next((folders[0] / "cells").glob("blocks*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    outcome, lines = merge(folders, tmp_path / "run")
    assert outcome.computed == 2 and "is damaged" in outcome.failed[0][2]
    assert any("not merged" in line for line in lines)
