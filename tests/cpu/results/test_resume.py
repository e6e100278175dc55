"""A run directory across interruptions, changed inputs and full disks."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from evaluation_world import World, same
from synthetic import make_bundle
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.storage import CellFiles, write_atomic

pytestmark = pytest.mark.usefixtures("empty_drawings")


def test_a_finished_cell_is_not_computed_again(world: World, bundle: Path, data: DatasetConfig) -> None:
    world.run([bundle], [data])
    assert world.calls == [3, 3, 2, 3, 3, 2, 3, 1]
    before = world.table()
    outcome = world.run([bundle], [data])
    assert (outcome.reused, outcome.computed, world.calls) == (1, 0, [])
    assert world.table().equals(before)
    assert any("reused" in line for line in world.lines)


@pytest.mark.parametrize("change", ["image", "annotation", "batch", "prompts", "limit", "damage"])
def test_a_changed_input_is_not_reused(
    world: World, bundle: Path, data: DatasetConfig, tmp_path: Path, change: str
) -> None:
    world.run([bundle], [data])
    options: dict[str, Any] = {}
    path = data.root / "images" / "case0001.png"
    if change == "image":
        path.write_bytes(path.with_name("case0002.png").read_bytes())
    elif change == "annotation":
        file = data.root / "annotations.json"
        file.write_text(file.read_text().replace('"case0001", "category', '"case0001" , "category') + "\n")
    elif change == "batch":
        options["batch"] = 4
    elif change == "limit":
        options["limit"] = 5
    elif change == "prompts":
        (tmp_path / "other").mkdir()
        bundle = make_bundle(tmp_path / "other" / "blocks-32", several=True).path
    else:
        file = world.out / world.entry()["file"]
        file.write_bytes(file.read_bytes()[:-10])
    outcome = world.run([bundle], [data], **options)
    assert (outcome.computed, outcome.reused) == (1, 0)
    why = "its result file cells/" if change == "damage" else "this changed: "
    assert any(f"computed again, because {why}" in line for line in world.lines)
    assert len(world.table()) == (10 if change == "limit" else 40)


@pytest.mark.parametrize("after", range(8))
def test_an_interrupted_run_resumes_to_the_same_rows(
    tmp_path: Path, bundle: Path, data: DatasetConfig, after: int
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, broken = World(tmp_path / "a"), World(tmp_path / "b")
    whole.run([bundle], [data])
    broken.interrupt = (after, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        broken.run([bundle], [data])
    assert broken.entry()["state"] == "interrupted"
    assert broken.calls == whole.calls[:after]
    broken.interrupt = None
    outcome = broken.run([bundle], [data])
    assert outcome.computed == 1
    chunks = after // 3  # a chunk of eight cases is three batches
    assert broken.calls == whole.calls[3 * chunks :]
    assert same(broken.table(), whole.table())
    assert not list((broken.out / "cells").glob("*.parts"))


def test_what_is_computed_is_written_although_the_engine_fails(
    world: World, bundle: Path, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part of the first chunk is still being written when the engine fails in the second one."""
    write, order = CellFiles.write_part, list[str]()

    def slowly(self: CellFiles, *part: Any) -> None:
        time.sleep(0.2)
        write(self, *part)
        order.append(threading.current_thread().name)

    monkeypatch.setattr(CellFiles, "write_part", slowly)
    world.interrupt = (4, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        world.run([bundle], [data])
    world.interrupt = None
    assert len(order) == 1 and order[0].startswith("rows"), "another thread writes than the one that runs the engine"
    world.run([bundle], [data])
    assert sum(world.calls) == 12, "the 8 cases of the first chunk are not computed again"


def test_no_more_than_two_chunks_wait_to_be_written(
    world: World, bundle: Path, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, waiting = CellFiles.write_part, list[int]()

    def slowly(self: CellFiles, index: int, table: Any) -> None:
        time.sleep(0.2)
        waiting.append(sum(world.calls) - 2 * (index + 1))
        write(self, index, table)

    monkeypatch.setattr(CellFiles, "write_part", slowly)
    world.run([bundle], [data], batch=1, chunk=2)
    assert len(waiting) == 10 and max(waiting) <= 4


def test_the_number_of_threads_belongs_to_the_rows(tmp_path: Path, bundle: Path, data: DatasetConfig) -> None:
    """Of all processes that computed some of them, not of one that finds them there."""
    (tmp_path / "a").mkdir()
    world = World(tmp_path / "a")
    world.run([bundle], [data], baselines=["baseline:ones"])
    assert world.entry()["threads"] == [2] and "threads" not in world.entry("baseline:ones--coco")
    world.run([bundle], [data], threads=3)
    assert (world.calls, world.entry()["threads"]) == ([], [2])
    world.run([bundle], [data], threads=3, protocol="paper")
    assert (world.calls, world.entry()["protocol"], world.entry()["threads"]) == ([], "paper", [2])
    notes = provenance_notes(world.out)
    assert not any("threads" in note for note in notes)

    again = DatasetConfig("again", data.root, "coco", prompts="coco")
    world.interrupt = (4, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        world.run([bundle], [again], threads=4)
    assert world.entry("blocks-32--again")["threads"] == [4]
    world.interrupt = None
    world.run([bundle], [again], threads=3)
    assert world.entry("blocks-32--again")["threads"] == [3, 4]
    (note,) = [note for note in provenance_notes(world.out) if "threads" in note]
    assert ": 2: blocks-32 on coco" in note and "; 3: blocks-32 on " in note and "; 4: blocks-32 on " in note
    file = world.out / world.entry("blocks-32--again")["file"]
    file.write_bytes(file.read_bytes()[:-10])
    world.run([bundle], [again], threads=3)
    assert world.entry("blocks-32--again")["threads"] == [3], "all rows were computed again"


def provenance_notes(run: Path) -> tuple[str, ...]:
    tables = make_report(run, Choices(replicates=0)).tables
    return next(table for table in tables if table.name == "provenance").notes


def test_a_full_disk_stops_the_run_and_keeps_finished_work(
    world: World, bundle: Path, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = DatasetConfig("again", data.root, "coco", "coco")
    world.run([bundle], [data])
    finished = world.table()
    real, written = pq.ParquetWriter, []

    def write(where: Any, schema: Any, **options: Any) -> Any:
        if len(written) == 2:
            Path(where).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(where)
        return real(where, schema, **options)

    monkeypatch.setattr(pq, "ParquetWriter", write)
    with pytest.raises(RunError, match=r"disk is full.*run the same command again"):
        world.run([bundle], [data, second])
    monkeypatch.setattr(pq, "ParquetWriter", real)
    assert world.table().equals(finished)
    assert not [path for path in world.out.rglob("*") if path.name.endswith(".part")]
    assert world.entry("blocks-32--again")["state"] == "interrupted"
    outcome = world.run([bundle], [data, second])
    assert (outcome.reused, outcome.computed, world.calls) == (1, 1, [3, 1])
    left, right = (world.table(n).drop_columns(["dataset"]) for n in ("blocks-32--coco", "blocks-32--again"))
    assert same(left, right)


def test_a_run_directory_has_one_writer(world: World) -> None:
    with RunDirectory(world.out) as run:
        run.begin({})
        with pytest.raises(RunError, match="Another evaluation"), RunDirectory(world.out):
            pass


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mail.txt").write_text("dear")
    with pytest.raises(RunError, match="no run directory"), RunDirectory(tmp_path / "letters"):
        pass
    assert [item.name for item in (tmp_path / "letters").iterdir()] == ["mail.txt"]


def killed_while_writing(path: Path) -> Path:
    """The file that a process leaves which is killed while it writes `path`."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # a killed process removes nothing

        def half(draft: Path) -> None:
            draft.write_bytes(b"half")
            raise KeyboardInterrupt

        write_atomic(path, half)
    (left,) = path.parent.glob(f".{path.name}.*")
    return left


def test_what_a_killed_process_left_is_removed_by_the_next(world: World, bundle: Path, data: DatasetConfig) -> None:
    first = killed_while_writing(world.out / "run.json")  # before there is a run.json
    world.run([bundle], [data])
    assert not first.exists()
    (cell,) = (world.out / "cells").glob("*.parquet")
    left = [
        killed_while_writing(path)
        for path in (
            world.out / "run.json",
            cell,
            cell.with_suffix(".parts") / "0.parquet",
            world.out / "report" / "a.csv",
        )
    ]
    other = world.out / "report" / ".mine.part"
    other.write_text("not ours")
    world.run([bundle], [data])
    write_report(make_report(world.out, Choices(replicates=10)), page=False)
    assert not [path for path in left if path.exists()] and other.exists()
