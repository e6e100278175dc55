"""Line 8 shows a study that was written only while it is whole and of what the run has now, and else says why not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from stored_counts import CLASSES, PIXELS, add_cell
from study_world import answer, study
from xbench_fast.engines.strict_json import CHECKSUM, checksum_of
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.selected_pairs import Resampling
from xbench_fast.runtime.results.studied import read_study, write_study
from xbench_fast.runtime.trust.card.card import CardLine
from xbench_fast.runtime.trust.card.group_lines import GroupStudies

CASES, DRAWS = 90, 30
Row = dict[str, Any]


def rows(seed: int, cases: int = CASES) -> list[ResultRow]:
    """One finding; each case has a region and is its own patient."""
    random, found = np.random.default_rng(seed), []
    for number in range(cases):
        row = ResultRow(f"c{number}", f"p{number}", CLASSES[0], "ok", None, 1)
        row.logit, row.region_area, row.sub_pixel = np.float32(random.normal()), 900, False
        row.area, row.overlap = np.full(101, 500, np.int32), np.full(101, 200, np.int32)
        row.area[0], row.overlap[0] = PIXELS, 900
        row.hit, row.degenerate, row.argmax = bool(random.random() < 0.6), False, 0
        mask = np.packbits((np.arange(PIXELS) < 900).reshape(224, 224), axis=1, bitorder="little")
        row.keep(mask, (0.0, 0.0, 1.0, 1.0), None)
        found.append(row)
    return found


def add(run: Path, model: str, seed: int, **more: Any) -> None:
    with RunDirectory(run) as made:
        made.begin(read_run(run)["config"] if (run / "run.json").is_file() else {})
        add_cell(
            made, model, "one", rows(seed, more.pop("rows_of", CASES)), findings=list(CLASSES[:1]), grid=None, **more
        )


def table(folder: Path, turned: int = 2) -> Path:
    path = folder / "who.csv"
    lines = ["case,sex", *(f"c{number},{'FM'[number // turned % 2]}" for number in range(CASES))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    add(folder / "run", "kad", 1)
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a study of a table."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shutil.copytree(made / "run", tmp_path / "run")
    asked(capsys, tmp_path, "--attributes", table(tmp_path))
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], folder: Path, *given: object) -> Row:
    study(capsys, "subgroups", folder / "run", "--replicates", DRAWS, "--quiet", *given)
    return dict(answer(folder / "run", "subgroups")["summary"][0])


def line_of(
    folder: Path, model: str = "kad", seed: int | None = None, folders: dict[str, DatasetConfig] | None = None
) -> CardLine:
    sampling = Resampling(DRAWS) if seed is None else Resampling(DRAWS, seed)
    block = load_material(folder / "run", sampling=sampling)
    return GroupStudies(folders).line(next(cell for cell in block.cells if cell.model == model), block)


def value(line: CardLine) -> float | None:
    return line.numbers[0].value


def told(line: CardLine) -> str:
    return " ".join(line.notes)


def test_a_study_of_these_results_is_shown(world: Path) -> None:
    line = line_of(world)
    assert line.table == f"{world / 'run/studies/subgroups'}/subgroups.md" and not line.notes
    assert value(line) == answer(world / "run", "subgroups")["summary"][0]["standardised"]
    # Without its table nothing can be compared with it: it is shown, and that is said.
    (world / "who.csv").unlink()
    left = line_of(world)
    assert value(left) == value(line) and "cannot be read now" in told(left)


def test_a_study_of_earlier_rows_with_the_same_key_is_made_anew(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, key = value(line_of(world)), read_run(world / "run")["cells"]["kad--one"]["key"]
    add(world / "run", "kad", 2)
    assert read_run(world / "run")["cells"]["kad--one"]["key"] == key
    line = line_of(world)
    assert "is of earlier results, and is not shown: this one is made anew" in told(line)
    fresh = asked(capsys, world, "--attributes", world / "who.csv")["standardised"]
    assert value(line) == fresh != before


def test_a_study_of_other_attributes_is_made_anew(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = value(line_of(world))
    table(world, 3)
    line = line_of(world)
    assert "is of other attributes, and is not shown: this one is made anew" in told(line)
    assert value(line) == asked(capsys, world, "--attributes", world / "who.csv")["standardised"] != before


def test_a_study_of_a_table_that_is_no_longer_configured_is_made_anew(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of the configuration is compared with the current one; without a configuration it is read again."""
    (world / "xbench.toml").write_text(f'[datasets.one]\nreader = "coco"\nroot = "{world}"\nattributes = "who.csv"\n')
    asked(capsys, world, "--config", world / "xbench.toml")
    assert not line_of(world).notes
    other = Path(shutil.copy(world / "who.csv", world / "other.csv"))
    config = DatasetConfig("one", world, "coco", attributes=other)
    assert "is not shown" not in told(line_of(world, folders={"one": config}))
    other.write_text(other.read_text().replace("F", "X"))
    line = line_of(world, folders={"one": config})
    assert "is of other attributes" in told(line) and "X" in line.numbers[0].label
    asked(capsys, world, "--attributes", world / "who.csv")
    assert "is not shown" not in told(line_of(world, folders={"one": config})), "the table that was given stays"


def test_a_study_with_other_draws_or_of_another_version_is_made_anew(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = line_of(world, seed=5)
    assert "--seed" in told(line) and "was made with --replicates 30" in told(line) and "made anew" in told(line)
    monkeypatch.setattr("xbench_fast.runtime.results.studied.code_version", lambda: "later")
    assert "was made by version" in told(line_of(world))


def test_a_study_by_another_protocol_is_made_anew(world: Path) -> None:
    """Protocols that sweep alike and count differently have the same rows."""
    data = read_run(world / "run")
    data["cells"]["kad--one"]["protocol"] = "paper"
    store_run(world / "run", data)
    assert "is by the protocol default, and is not shown: this one is made anew" in told(line_of(world))


def test_a_study_of_a_baseline_on_other_pairs_is_made_anew(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(world / "run", "baseline:center", 3, weights="baseline")
    asked(capsys, world, "--attributes", world / "who.csv")
    assert not line_of(world, "baseline:center").notes
    add(world / "run", "kad", 1, rows_of=CASES - 10)
    line = line_of(world, "baseline:center")
    assert "is of earlier results" in told(line) and line.numbers[0].pairs == CASES - 10


def test_a_study_that_asked_for_one_attribute_is_made_anew_with_it(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = world / "who.csv"
    lines = path.read_text().split()
    path.write_text("\n".join(f"{line},{'view' if at == 0 else ['AP', 'PA'][at % 2]}" for at, line in enumerate(lines)))
    asked(capsys, world, "--attributes", path, "--by", "view")
    assert line_of(world).notes == ("tested by view alone",)
    add(world / "run", "kad", 2)
    assert line_of(world).numbers[0].label.startswith("view") and line_of(world).numbers[0].family == 1
    path.unlink()
    line = line_of(world)
    assert line.word == "not run" and "is of earlier results" in line.why and "who.csv" in line.why
    assert line.command.endswith(f"--attributes one={path} --by view")


@pytest.mark.parametrize("change", ["digit", "older", "cut", "list", "empty", "sealed"])
def test_a_damaged_study_is_named_and_not_shown(world: Path, change: str) -> None:
    path = world / "run/studies/subgroups/subgroups.json"
    text, record = path.read_text(), json.loads(path.read_text())
    number = repr(record["summary"][0]["standardised"])
    new = {
        "digit": text.replace(number, number.replace(number[-3], str((int(number[-3]) + 1) % 10), 1)),
        "older": json.dumps({name: item for name, item in record.items() if name != CHECKSUM}),
        "cut": text[:500],
        "list": "[]",
        "empty": "",
        "sealed": json.dumps((body := {"results": [3]}) | {CHECKSUM: checksum_of(body)}),
    }[change]
    assert new != text
    path.write_text(new)
    line = line_of(world)
    assert line.word == "not run" and str(path) in line.why and "is not shown" in line.why
    assert line.command.startswith("xbench-fast study subgroups")


def test_what_is_written_names_what_it_is_of(world: Path) -> None:
    path = world / "run/studies/subgroups/subgroups.json"
    record = read_study(path)
    (result,) = record["results"]
    assert result["rows"] == stored_checksum(world / "run" / read_run(world / "run")["cells"]["kad--one"]["file"])
    assert set(result) == {"model", "dataset", "protocol", "rows", "pairs", "attributes"}
    assert record["settings"]["tables"] == {"one": str(world / "who.csv")}
    assert set(record["checksums"]) == {file.name for file in path.parent.iterdir()} - {path.name}
    write_study(path, {name: item for name, item in record.items() if name != CHECKSUM})
    assert read_study(path) == record


def stored_checksum(file: Path) -> str:
    """What the footer of a result file says."""
    import pyarrow.parquet as pq

    return pq.read_metadata(file).metadata[b"xbench_checksum"].decode().removeprefix("sha256:")
