"""Damaged result files: a sentence that names the file, and a new evaluation that mends it.

A file with a checksum is left out and counted. One of a version that wrote none is refused for its odd rows.
"""

from __future__ import annotations

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
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load import StoredRun, load_run
from xbench_fast.runtime.results.maps import load_maps
from xbench_fast.runtime.results.merging import merge_shards
from xbench_fast.runtime.results.patients import Resampling
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.shards import Shard
from xbench_fast.runtime.studies.material import load_material

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
    table = pq.read_table(file)
    pq.write_table(change(table.replace_schema_metadata(without_checksum(table.schema))), file)
    return file


def without_checksum(schema: pa.Schema) -> dict[bytes, bytes]:
    return {name: value for name, value in schema.metadata.items() if name != b"xbench_checksum"}


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


CHANGES = [
    (nulled("hit"), r"\d+ of its \d+ pairs have no 'hit'"),
    (nulled("overlap"), r"\d+ of its \d+ pairs have no 'overlap'"),
    (nulled("sub_pixel"), r"\d+ of its \d+ pairs have no 'sub_pixel'"),
    (nulled("area"), r"\d+ of its \d+ regions have no 'area'"),
    (as_text("region_area"), "its column 'region_area' holds string, not int32"),
    (lambda table: table.slice(0, 0), f"it has 0 rows, not one for each of {CASES} cases and {FINDINGS} findings"),
    (lambda table: pa.concat_tables([table, table]), f"it has {2 * CASES * FINDINGS} rows"),
    (lambda table: table.slice(0, len(table) - FINDINGS), f"it has {(CASES - 1) * FINDINGS} rows"),
    (lambda table: table.take(list(range(len(table)))[::-1]), "it does not hold one row per case and finding"),
    (lambda table: table.drop_columns(["argmax"]), "cannot be read"),
    (one_status, "cannot be read"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_rows_that_are_not_those_of_a_cell(world: World, inputs: Any, change: Any, words: str) -> None:
    before = world.table()
    file = rewrite(world, change)
    mended_as_it_says(world, inputs, file, words)
    assert same(world.table(), before)


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


@pytest.mark.parametrize("column", ["overlap", "hit", "saliency", "region"])
def test_a_file_that_changes_while_it_is_open(world: World, column: str) -> None:
    """Its pages have checksums of their own."""
    run = load_run(world.out)
    file = world.out / world.entry()["file"]
    chunks = (pq.read_metadata(file).row_group(0).column(index) for index in range(40))
    chunk = next(each for each in chunks if each.path_in_schema.split(".")[0] == column)
    content = bytearray(file.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(content)
    read = load_maps if column in ("saliency", "region") else StoredRun.cell
    with pytest.raises(RunError, match=r"CRC checksum verification failed[^\n]*run the same eval command again"):
        read(run, "blocks-32", "coco")


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
