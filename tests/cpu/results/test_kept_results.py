"""Finished results outlive attempts that fail or have nothing to do, and the recovery that messages advise works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World, same
from result_rows import table_of
from stored_counts import add_cell, random_rows
from xbench_fast.engines.errors import DataError, RunError
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import RUN_FILE
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard, shard_folder
from xbench_fast.runtime.results.schema import result_schema
from xbench_fast.runtime.results.storage import KEY_FIELD, CellFiles

NAMES = ("blocks-32--coco", "baseline:center--coco")


def run(world: World, bundle: Path, data: DatasetConfig, **options: Any) -> Any:
    return world.run([bundle], [data], baselines=["baseline:center"], **options)


@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_a_drive_that_is_not_mounted_costs_no_result(
    tmp_path: Path, bundle: Path, data: DatasetConfig, state: str
) -> None:
    world = World(tmp_path)
    run(world, bundle, data)
    before = {name: (world.entry(name), world.table(name)) for name in NAMES}
    data.root.rename(tmp_path / "unmounted")
    outcome = run(world, bundle, data, skip_absent=state == "skipped")
    assert len(getattr(outcome, state)) == 2 and outcome.computed + outcome.reused == 0
    for name, (entry, table) in before.items():
        now = world.entry(name)
        attempt = now.pop("last_attempt")
        assert now == entry and world.table(name).equals(table)
        assert attempt["state"] == state and str(data.root) in attempt["reason"]
    assert sum("its finished result is kept" in line for line in world.lines) == 2
    found = load_run(world.out)
    assert sorted(f"{model}--{dataset}" for model, dataset in found.finished) == sorted(NAMES) and not found.unfinished
    assert all(cell.attempt.startswith(f"{state} on 2") for cell in found.cells())
    told = load_material(world.out).unfinished
    assert len(told) == 2 and all("the result of before is shown" in line for line in told)
    # The drive is back: everything is taken over, and nothing tells of the attempt any longer.
    (tmp_path / "unmounted").rename(data.root)
    assert run(world, bundle, data).reused == 2
    assert {name: world.entry(name) for name in NAMES} == {name: entry for name, (entry, _) in before.items()}
    assert not load_material(world.out).unfinished


def test_what_has_no_result_is_noted_as_before(tmp_path: Path, bundle: Path, data: DatasetConfig) -> None:
    world = World(tmp_path)
    run(world, bundle, data)
    (world.out / world.entry()["file"]).unlink()
    data.root.rename(tmp_path / "unmounted")
    run(world, bundle, data)
    assert world.entry()["state"] == "failed" and "key" not in world.entry()
    assert world.entry(NAMES[1])["state"] == "done"
    assert list(load_run(world.out).unfinished) == [("blocks-32", "coco")]


def test_a_merge_that_fails_keeps_what_was_merged(tmp_path: Path, bundle: Path, data: DatasetConfig) -> None:
    folders = []
    for index in (1, 2):
        shard, world = Shard(index, 2), World(tmp_path)
        world.out = shard_folder(tmp_path / "run", shard)
        run(world, bundle, data, shard=shard)
        with RunDirectory(world.out) as opened:
            opened.begin({"shard": str(shard)})
        folders.append(world.out)
    merged, lines = World(tmp_path), list[str]()
    merge_shards(folders, merged.out, lines.append)
    before = merged.table()
    world.out = folders[1]
    (world.out / world.entry()["file"]).unlink()
    outcome = merge_shards(folders, merged.out, lines.append)
    assert [(model, dataset) for model, dataset, _ in outcome.failed] == [("blocks-32", "coco")]
    assert merged.entry()["state"] == "done" and same(merged.table(), before)
    assert "is missing; evaluate that shard again" in merged.entry()["last_attempt"]["reason"]
    assert any("blocks-32 on coco: its finished result is kept" in line for line in lines)
    run(world, bundle, data, shard=Shard(2, 2))
    with RunDirectory(world.out) as opened:
        opened.begin({"shard": "2/2"})
    assert merge_shards(folders, merged.out, lines.append).reused == 2
    assert "last_attempt" not in merged.entry() and same(merged.table(), before)


@pytest.mark.parametrize("content", ["{", "[1]", '{"schema": 1, "cells": {"a": 3}}', '{"schema": 1, "cells": {}}'])
def test_a_damaged_run_json_is_repaired_as_it_says(
    tmp_path: Path, bundle: Path, data: DatasetConfig, content: str
) -> None:
    world = World(tmp_path)
    run(world, bundle, data)
    before = world.table()
    for name in ("report", "studies", "errors"):
        (world.out / name).mkdir()
    (world.out / RUN_FILE).write_text(content)
    for attempt in (lambda: run(world, bundle, data), lambda: load_run(world.out)):
        with pytest.raises(RunError, match=r"run\.json .*delete that file and run eval again"):
            attempt()
    (world.out / RUN_FILE).unlink()
    assert run(world, bundle, data).reused == 2 and world.calls == []
    assert world.table().equals(before)


def test_a_folder_of_reports_without_results_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    with pytest.raises(RunError, match="no run directory"), RunDirectory(tmp_path):
        pass
    assert [item.name for item in tmp_path.iterdir()] == ["report"]


def test_damage_is_mended_by_the_next_evaluation(tmp_path: Path, bundle: Path, data: DatasetConfig) -> None:
    """Of a finished cell whose run.json is lost, and of a part of an interrupted one."""
    whole, world = World(tmp_path / "whole"), World(tmp_path)
    for each in (whole, world):
        each.out.parent.mkdir(exist_ok=True)
    whole.run([bundle], [data])
    world.interrupt = (4, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        world.run([bundle], [data])
    world.interrupt = None
    (part,) = world.out.rglob("000000.parquet")
    spoil(part, "area")
    outcome = world.run([bundle], [data])
    assert (outcome.computed, outcome.failed, sum(world.calls)) == (1, [], 20) and same(world.table(), whole.table())
    spoil(world.out / world.entry()["file"], "status")
    (world.out / RUN_FILE).unlink()
    assert world.run([bundle], [data]).computed == 1 and same(world.table(), whole.table())


def test_a_part_that_is_damaged_while_the_others_are_computed(tmp_path: Path) -> None:
    """It is deleted, so that the same command computes it again."""
    schema = result_schema({KEY_FIELD: "k" * 64})
    files = CellFiles(tmp_path, "a--b", "k" * 64)
    rows = table_of(random_rows(1), "a", "b", {KEY_FIELD: files.key})
    files.write_part(0, rows)
    assert files.has_part(0)
    spoil(files.part(0), "finding")
    assert not files.has_part(0)
    with pytest.raises(DataError, match=r"000000\.parquet was damaged \(its checksum does not match\) and is deleted"):
        files.merge(1, schema)
    assert not files.part(0).exists() and not files.final.exists()
    files.write_part(0, rows)
    files.merge(1, schema)
    assert files.finished()


def spoil(file: Path, column: str) -> None:
    """Flips every byte of the pages of a column."""
    import pyarrow.parquet as pq

    found = pq.read_metadata(file)
    for group in range(found.num_row_groups):
        at = next(
            chunk
            for chunk in (found.row_group(group).column(i) for i in range(found.num_columns))
            if chunk.path_in_schema.split(".")[0] == column
        )
        content = bytearray(file.read_bytes())
        for place in range(at.data_page_offset, at.data_page_offset + at.total_compressed_size):
            content[place] ^= 0xFF
        file.write_bytes(content)


def test_only_a_finished_cell_with_its_file_is_kept(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for name in ("whole", "lost", "torn"):
            add_cell(made, name, "one", random_rows(1))
        files = {path.name.split("--")[0]: path for path in made.cells.glob("*.parquet")}
        files["lost"].unlink()
        files["torn"].write_bytes(files["torn"].read_bytes()[:-9])
        kept = [made.give_up(name, "one", "failed", "it broke") for name in ("whole", "lost", "torn", "never")]
    assert kept == [True, False, False, False]
    found = load_run(tmp_path / "run")
    assert found.finished == [("whole", "one")]
    assert set(found.unfinished.values()) == {"failed: it broke"} and len(found.unfinished) == 3
