"""Damaged result files: a sentence that names the file, and a new evaluation that mends it.

A file with a checksum is left out and counted. One of a version that wrote none is refused for its odd rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluation_world import World, same
from synthetic import make_bundle, make_dataset
from test_kept_results import spoil
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import StoredRun, load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard
from xbench_fast.runtime.results.selected_pairs import Resampling
from xbench_fast.runtime.results.stored_maps import load_maps

pytestmark = pytest.mark.usefixtures("empty_drawings")

CASES, FINDINGS = 20, 2


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[list[Path], list[DatasetConfig]]:
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", CASES), "coco")
    return [make_bundle(tmp_path / "blocks-32").path], [data]


@pytest.fixture
def world(tmp_path: Path, inputs: Any) -> World:
    made = World(tmp_path)
    made.run(*inputs)
    return made


def rewrite(world: World, change: Callable[[pa.Table], pa.Table]) -> Path:
    """The result file with other rows, as a version without checksums wrote it."""
    file: Path = world.out / world.entry()["file"]
    pq.write_table(change(pq.read_table(file)), file)
    return file


def nulled(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        return table.set_column(place, table.schema.field(name), pa.nulls(len(table), table.schema.field(name).type))

    return change


def as_text(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        return table.set_column(place, name, pa.array([str(value) for value in table[name].to_pylist()]))

    return change


def one_status(table: pa.Table) -> pa.Table:
    """The second row of the first case says that it has no image."""
    status = table["status"].to_pylist()
    status[1] = "missing"
    return table.set_column(table.column_names.index("status"), table.schema.field("status"), pa.array(status))


def changed(name: str, change: Callable[[Any], Any], where: str = "area") -> Callable[[pa.Table], pa.Table]:
    """The rows with another value of a column in the first row that has `where`."""

    def rewritten(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        values = table[name].to_pylist()
        row = next(i for i, value in enumerate(table[where].to_pylist()) if value is not None)
        values[row] = change(values[row])
        return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))

    return rewritten


def at(index: int, value: int) -> Callable[[list[int]], list[int]]:
    """A list of counts with `value` added at `index`."""
    return lambda counts: [count + value * (place == index % 101) for place, count in enumerate(counts)]


def both(*changes: Callable[[pa.Table], pa.Table]) -> Callable[[pa.Table], pa.Table]:
    def rewritten(table: pa.Table) -> pa.Table:
        for change in changes:
            table = change(table)
        return table

    return rewritten


FLIPS = [
    (changed("area", at(40, 1 << 20)), "an area grows with the threshold, in 1 of "),
    (changed("area", at(0, 1)), "an area does not fit the grid and the region, in 1 of "),
    (changed("area", at(-1, -(1 << 30))), "an area does not fit the grid and the region, in 1 of "),
    (changed("overlap", at(40, 1 << 20)), "(an overlap grows with the threshold, in 1 of |an area grows)"),
    (
        both(changed("area", at(40, 500)), changed("overlap", at(40, 500))),
        "an overlap grows with the threshold, in 1 of ",
    ),
    (changed("overlap", at(-1, -(1 << 30))), "an overlap is not between 0 and the region, in 1 of "),
    (changed("overlap", at(0, 1)), "an overlap is not between 0 and the region, in 1 of "),
    (changed("region_area", lambda area: area + 1), "an area does not fit the grid and the region, in 1 of "),
    (changed("region_area", lambda area: area | 1 << 24), "a region is larger than the grid, in 1 of "),
    (changed("region_area", lambda area: -area), "a region is larger than the grid, in 1 of "),
    (changed("argmax", lambda place: place | 1 << 16), "an 'argmax' is no pixel of the grid"),
    (changed("argmax", lambda place: -1), "an 'argmax' is no pixel of the grid"),
    (changed("label", lambda label: 3, "label"), "a label is neither 0 nor 1"),
    (changed("status", lambda status: "o+", "status"), "a status is none of ok, missing, unreadable"),
    (changed("case_id", lambda case: "caze0000"), "the rows of a case do not have one 'case_id'"),
    (changed("patient_id", lambda patient: None), "the rows of a case do not have one 'patient_id'"),
]


CHANGES = [
    (nulled("hit"), r"\d+ of \d+ pairs have no 'hit'"),
    (nulled("overlap"), r"\d+ of \d+ pairs have no 'overlap'"),
    (nulled("sub_pixel"), r"\d+ of \d+ pairs have no 'sub_pixel'"),
    (nulled("area"), r"\d+ of \d+ regions have no 'area'"),
    (as_text("region_area"), "its column 'region_area' holds string, not int32"),
    (lambda table: table.slice(0, 0), f"it has 0 rows, not one for each of {CASES} cases and {FINDINGS} findings"),
    (lambda table: pa.concat_tables([table, table]), f"it has {2 * CASES * FINDINGS} rows"),
    (lambda table: table.slice(0, len(table) - FINDINGS), f"it has {(CASES - 1) * FINDINGS} rows"),
    (lambda table: table.take(list(range(len(table)))[::-1]), "it does not hold one row per case and finding"),
    (lambda table: table.drop_columns(["argmax"]), "cannot be read"),
    (one_status, "the rows of a case do not have one 'status'"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_rows_that_are_not_those_of_a_cell(world: World, inputs: Any, change: Any, words: str) -> None:
    before = world.table()
    file = rewrite(world, change)
    mended_as_it_says(world, inputs, file, words)
    assert same(world.table(), before)


def test_counts_that_are_not_possible(world: World, tmp_path: Path) -> None:
    """In files of a version without checksums, for readers and for merge."""
    whole, entry = world.table(), world.entry()
    with RunDirectory(world.out) as run:
        run.begin({"shard": "1/1"})
        facts = {name: value for name, value in entry.items() if name not in ("model", "dataset", "state", "updated")}
        run.set_cell("blocks-32", "coco", "done", **facts, shard={"index": 1, "of": 1, "cases": [0, CASES, CASES]})
    opened = load_run(world.out)
    for change, words in FLIPS:
        file = rewrite(world, change)
        with pytest.raises(RunError, match=f"{file} is damaged: .*{words}"):
            opened.cell("blocks-32", "coco")
        ((_, _, reason),) = merge_shards([world.out], tmp_path / "merged", lambda line: None).failed
        assert re.search(f"{file} is damaged: .*({words})", reason)
        pq.write_table(whole, file)
    assert opened.cell("blocks-32", "coco").cases == CASES
    assert merge_shards([world.out], tmp_path / "merged", lambda line: None).computed == 1


def test_a_damaged_file_is_left_out_and_computed_again(world: World, inputs: Any) -> None:
    before, file = world.table(), world.out / world.entry()["file"]
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)
    said = f"its result file {world.entry()['file']} is damaged: its checksum does not match"
    assert load_run(world.out).unfinished == {("blocks-32", "coco"): f"{said}; run the same eval command again"}
    coverage = next(t for t in make_report(world.out, Choices(replicates=0)).tables if t.title == "Coverage")
    assert any(said in str(row) for row in coverage.rows)
    with pytest.raises(RunError, match="its checksum does not match; run the same eval command again"):
        load_material(world.out, sampling=Resampling(replicates=10))
    assert world.run(*inputs).computed == 1
    assert f"blocks-32 on coco: computed again, because {said}" in world.lines
    assert same(world.table(), before)


def flip_last_bit(file: Path, column: str) -> None:
    """The last bit of the first page of a column."""
    chunks = (pq.read_metadata(file).row_group(0).column(index) for index in range(40))
    chunk = next(each for each in chunks if each.path_in_schema.split(".")[0] == column)
    content = bytearray(file.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("column", ["overlap", "hit", "saliency", "region"])
def test_a_file_that_changes_while_it_is_open(world: World, column: str) -> None:
    """Its pages have checksums of their own."""
    run = load_run(world.out)
    file = world.out / world.entry()["file"]
    flip_last_bit(file, column)
    read = load_maps if column in ("saliency", "region") else StoredRun.cell
    with pytest.raises(RunError, match=r"CRC checksum verification failed[^\n]*run the same eval command again"):
        read(run, "blocks-32", "coco")


def test_a_shard_that_changes_while_it_is_merged(
    world: World, inputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.out = tmp_path / "shard-1-of-1"
    world.run(*inputs, shard=Shard(1, 1))
    with RunDirectory(world.out) as run:
        run.begin({"shard": "1/1"})
    file = world.out / world.entry()["file"]
    monkeypatch.setattr("xbench_fast.runtime.results.runs.merging.result_fault", lambda path, key: "")
    flip_last_bit(file, "saliency")
    ((_, _, reason),) = merge_shards([world.out], tmp_path / "merged", lambda line: None).failed
    assert f"{file} cannot be read" in reason and "CRC checksum verification failed" in reason


def mended_as_it_says(world: World, inputs: Any, file: Path, words: str) -> None:
    for use in (
        lambda: make_report(world.out, Choices(replicates=0)),
        lambda: load_material(world.out, sampling=Resampling(replicates=10)),
    ):
        with pytest.raises(RunError, match=words) as caught:
            use()
        assert str(file) in str(caught.value)
        assert str(caught.value).endswith("; delete that file and run the same eval command again.")
    file.unlink()
    assert world.run(*inputs).computed == 1
    assert len(make_report(world.out, Choices(replicates=0)).results.cells) == 1


def test_a_damaged_shard_is_named_and_evaluated_again(world: World, inputs: Any, tmp_path: Path) -> None:
    world.out = tmp_path / "shard-1-of-1"

    def evaluate() -> int:
        computed = world.run(*inputs, shard=Shard(1, 1)).computed
        with RunDirectory(world.out) as run:
            run.begin({"shard": "1/1"})
        return computed

    assert evaluate() == 1
    file = world.out / world.entry()["file"]
    spoil(file, "area")
    ((_, _, reason),) = merge_shards([world.out], tmp_path / "merged", lambda line: None).failed
    assert reason == f"the result {file} is damaged: its checksum does not match; evaluate that shard again"
    assert evaluate() == 1 and merge_shards([world.out], tmp_path / "merged", lambda line: None).computed == 1
    (merged,) = (tmp_path / "merged" / "cells").iterdir()
    spoil(merged, "area")
    assert merge_shards([world.out], tmp_path / "merged", lambda line: None).computed == 1
    assert merge_shards([world.out], tmp_path / "merged", lambda line: None).reused == 1
