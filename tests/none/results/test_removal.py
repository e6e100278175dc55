"""`run remove`: entries and all that belongs to them, and nothing of other cells, also of names that look alike."""

from __future__ import annotations

import csv
import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from stored_counts import add_cell, random_rows
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run
from xbench_fast.runtime.results.stored_maps import index_file


def command(*words: object, status: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert ended.value.code == status


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with RunDirectory(path) as made:
        made.begin({"bundles": ["kad", "clip"], "datasets": {}})
        for model, dataset in (("kad", "one"), ("kad", "a b"), ("kad", "a_b"), ("clip", "one")):
            add_cell(made, model, dataset, random_rows(1), reader="coco")
            index_file(path, dataset).parent.mkdir(exist_ok=True)
            index_file(path, dataset).write_bytes(b"index")
        made.set_cell("kda", "one", "skipped", reason="the bundle has no prompt set 'oen'")
        made.set_cell("kda", "oen", "skipped", reason="the bundle has no prompt set 'oen'")
        made.set_cell("slow", "one", "failed", reason="it broke")
        made.keep_traceback("slow", "one")
    return path


def on_disk(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_skipped_cell_is_removed_and_nothing_else_changes(run: Path) -> None:
    before, files = read_run(run)["cells"], on_disk(run)
    command("run", "remove", run, "--model", "kda", "--dataset", "oen")
    assert read_run(run)["cells"] == {key: entry for key, entry in before.items() if key != "kda--oen"}
    command("run", "remove", run, "--model", "kda")
    assert read_run(run)["cells"] == {key: entry for key, entry in before.items() if not key.startswith("kda")}
    assert on_disk(run) == files


def test_a_result_is_removed_with_consent_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, cells = on_disk(run), read_run(run)["cells"]
    command("run", "remove", run, "--model", "kad", "--dataset", "a b", status=1)
    command("run", "remove", run, "--model", "kad", "--dataset", "a b", "--yes", "--dry-run")
    assert on_disk(run) == files and read_run(run)["cells"] == cells
    assert "nothing was removed: 1 of 1 have a result" in capsys.readouterr().err
    command("run", "remove", run, "--model", "kad", "--dataset", "a b", "--yes", "--json", "-")
    told = json.loads(capsys.readouterr().out)
    assert [row["dataset"] for row in told["removed"]] == ["a b"] and told["kept"] == []
    gone = {cells["kad--a b"]["file"], index_file(run, "a b").relative_to(run).as_posix()}
    assert files - on_disk(run) == gone and load_run(run).cell("kad", "a_b").cases


def test_an_index_stays_while_a_dataset_has_a_cell(run: Path) -> None:
    command("run", "remove", run, "--model", "kad", "--yes")
    left = on_disk(run)
    assert "images/one.parquet" in left and "images/a_b.parquet" not in left
    assert load_run(run).finished == [("clip", "one")]


def test_results_of_earlier_keys_and_of_similar_names(run: Path) -> None:
    """What was computed with other inputs belongs to the cell; what only shares its file name does not."""
    with RunDirectory(run) as made:
        old = made.cell("kad", "a b")
        assert old is not None
        other = made.files("kad", "a b", "0" * 64).final
        other.write_bytes((run / old["file"]).read_bytes())
    command("run", "remove", run, "--model", "kad", "--dataset", "a_b", "--yes")
    assert other.is_file() and (run / old["file"]).is_file()
    command("run", "remove", run, "--model", "kad", "--dataset", "a b", "--yes")
    assert not other.exists() and not (run / old["file"]).exists()


def test_a_failed_cell_goes_with_its_traceback(run: Path) -> None:
    assert (run / "errors" / "slow--one.txt").is_file()
    command("run", "remove", run, "--model", "slow")
    assert not (run / "errors" / "slow--one.txt").exists() and "slow--one" not in read_run(run)["cells"]


def test_parts_need_consent_and_go(run: Path) -> None:
    with RunDirectory(run) as made:
        made.set_cell("kad", "two", "failed", reason="it broke")
        key = "kadtwo".ljust(64, "0")
        add_cell(made, "kad", "two", random_rows(2))
        done = made.files("kad", "two", key)
        done.parts.mkdir()
        done.final.rename(done.part(0))
        made.set_cell("kad", "two", "failed", reason="it broke")
    command("run", "remove", run, "--model", "kad", "--dataset", "two", status=1)
    assert done.parts.is_dir()
    command("run", "remove", run, "--model", "kad", "--dataset", "two", "--yes")
    assert not done.parts.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "kat"), "no cell of the model 'kat'"),
        (("--model", "clip", "--dataset", "onne"), "no cell of clip on 'onne'"),
        (("--model", "clip", "--dataset", "a b"), "no cell of clip on 'a b'"),
    ],
)
def test_a_name_that_is_not_there_is_an_error(
    run: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    before = on_disk(run), read_run(run)
    command("run", "remove", run, *words, "--yes", status=1)
    err = capsys.readouterr().err
    assert said in err and ("kad" in err or "one" in err) and (on_disk(run), read_run(run)) == before


def test_cells_of_several_models_and_datasets_are_removed_at_once(run: Path) -> None:
    named = ("--model", "kad", "--model", "clip", "--dataset", "one", "--dataset", "a b")
    command("run", "remove", run, *named, "--yes")
    left = {(entry["model"], entry["dataset"]) for entry in read_run(run)["cells"].values()}
    assert ("kad", "a_b") in left
    assert not left & {("kad", "one"), ("kad", "a b"), ("clip", "one")}


def test_a_folder_that_is_no_run_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("run", "remove", tmp_path, "--model", "kad", "--yes", status=1)
    assert "is no run directory" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_a_run_in_use_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_run(run)
    with (run / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command("run", "remove", run, "--model", "kda", status=1)
    assert "Another evaluation is writing" in capsys.readouterr().err and read_run(run) == before


def table(run: Path, name: str) -> list[dict[str, Any]]:
    return list(csv.DictReader((run / "report" / name).read_text().splitlines()))


def test_skipped_cells_are_a_sentence_in_a_report(run: Path) -> None:
    made = make_report(run, Choices(replicates=0))
    write_report(made, page=False)
    text = (run / "report" / "tables.md").read_text()
    head, _, tables = text.partition("\n## ")
    assert "kda on oen: the bundle has no prompt set 'oen'" in head.replace("\\", "") and "kda" not in tables
    assert "oen" not in {name for row in table(run, "table1.csv") for name in row.values()}
    assert "kda" not in {row["model"] for row in table(run, "coverage.csv")}
    assert made.facts["cells"] == "4 of 9 (model, dataset) pairs finished"
    assert {"kda"} <= {row["model"] for row in json.loads((run / "report" / "report.json").read_text())["unfinished"]}


def test_what_is_not_known_is_empty_in_table_1(run: Path) -> None:
    write_report(make_report(run, Choices(replicates=0)), page=False)
    rows = {(row["model"], row["dataset"]): row for row in table(run, "table1.csv")}
    assert rows["slow", "one"]["n"] == "" and rows["clip", "a b"]["n"] == "" and int(rows["kad", "one"]["n"]) > 0
