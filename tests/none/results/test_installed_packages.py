"""Protocols, scorers of boxes, dialects and metrics of an installed package, by entry points."""

from __future__ import annotations

import csv
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xbench_fast as xb
from box_world import answers, command, evaluate, make_box_data, pairs_of, rows
from doc_blocks import blocks
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.data.answers.dialects.dialect_registry import DIALECTS
from xbench_fast.runtime.host.protocols import PROTOCOLS, SCORERS, find_protocol

SCORER = """
from xbench_fast.metrics_gpu.detection.published.scorer import Scorer
def count(answers, table):
    return {"boxes": len(answers.given.boxes), "none": None}
def fail(answers, table):
    raise ValueError("two\\nlines")
COUNTING = Scorer("counting", "a paper", "boxes", "It counts.", count)
FAILING = Scorer("failing", "a paper", "boxes", "It fails.", fail)
NAMELESS = Scorer("nameless", "a paper", "other", "It has no main number.", count)
"""
DIALECT = """
from xbench_fast.runtime.data.answers.dialects.dialect_registry import Dialect
from xbench_fast.runtime.data.answers.dialects.parsed import Parsed
def read(text):
    parsed = Parsed()
    for part in text.split(";"):
        parsed.add(tuple(map(float, part.split())), legal=True)
    return parsed
SPACED = Dialect("Spaced", read, "percent")
NONE = Dialect("None", lambda text: None, "percent")
"""
METRIC = """
def recall(overlap, region):
    return overlap[50] / region
"""
BROKEN = """
[xbench_fast.protocols]
absent = addon_that_is_not_there:STRICT
wrong = addon.protocols:__name__
other = addon.protocols:STRICT
default = addon.protocols:STRICT
[xbench_fast.scorers]
failing = addon.scorers:FAILING
nameless = addon.scorers:NAMELESS
[xbench_fast.dialects]
none = addon.dialects:NONE
"""


def of_the_page(root: Path) -> tuple[str, str]:
    """The module and the entry points that docs/protocols.md shows."""
    shown = {block.language: block.text for block in blocks(root, "docs/protocols.md")}
    groups = tomllib.loads(shown["toml"])["project"]["entry-points"]
    lines = (f"[{group}]\n{name} = {target}\n" for group, items in groups.items() for name, target in items.items())
    return shown["python"], "".join(lines)


def install(folder: Path, entries: str, name: str = "addon") -> None:
    made = folder / f"{name}-1.0.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text(entries)


@pytest.fixture
def package(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the modules of an installed package."""
    folder = tmp_path / "installed" / "addon"
    folder.mkdir(parents=True)
    protocol, entries = of_the_page(root)
    parts = {"protocols": protocol, "scorers": SCORER, "dialects": DIALECT, "metrics": METRIC, "__init__": ""}
    for name, text in parts.items():
        (folder / f"{name}.py").write_text(text)
    install(folder.parent, entries)
    install(folder.parent, BROKEN, "broken")
    monkeypatch.syspath_prepend(folder.parent)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "addon"]:
        del sys.modules[name]


def change(file: Path, old: str, new: str) -> None:
    """Another text of a module, which a later process would import."""
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    sys.modules.pop(f"addon.{file.stem}", None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_box_data(tmp_path / "data")


@pytest.fixture
def maps(data: Path) -> str:
    """Maps of few levels, so that > and >= differ."""
    rng, folder = np.random.default_rng(2), data.parent / "mine"
    for case, finding, _, _ in pairs_of(data):
        (folder / case).mkdir(parents=True, exist_ok=True)
        np.save(folder / case / f"{finding}.npy", rng.integers(0, 5, (7, 7)).astype(np.float32))
    return f"maps:{folder}"


def test_a_protocol_counts_and_scores(package: Path, data: Path, maps: str, tmp_path: Path) -> None:
    assert evaluate(data, "--model", maps, "--protocol", "strict") == 0
    counted = [(row["area"], row["overlap"]) for row in rows(tmp_path / "run", "maps:mine")]
    strict = xb.load_run(tmp_path / "run").table("classes", replicates=0)
    assert {*strict.protocol} == {"strict"}
    assert evaluate(data, "--model", maps, "--protocol", "chexlocalize") == 0  # it compares with > too
    assert counted == [(row["area"], row["overlap"]) for row in rows(tmp_path / "run", "maps:mine")]
    assert evaluate(data, "--model", maps) == 0
    assert counted != [(row["area"], row["overlap"]) for row in rows(tmp_path / "run", "maps:mine")]
    assert xb.load_run(tmp_path / "run").table("classes", replicates=0, protocol="strict").equals(strict)
    assert command("report", tmp_path / "run", "--protocol", "strict", "--no-page", "--quiet") == 0
    line = f"protocol strict: addon.protocols:STRICT, code {PROTOCOLS.code('strict')}"
    assert line in (tmp_path / "run" / "report" / "tables.md").read_text().split("\n## ")[1]


def test_the_code_of_a_protocol_is_in_the_key(
    package: Path, data: Path, maps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def again() -> str:
        assert evaluate(data, "--model", maps, "--protocol", "strict") == 0
        return capsys.readouterr().out

    again()
    change(package / "protocols.py", "STRICT =", "# a comment\nSTRICT =")
    assert "finished before, reused" in again()
    change(package / "protocols.py", "0.01", "0.0")
    with pytest.raises(xb.XBenchError, match="was evaluated by other code of the protocol 'strict'; evaluate again"):
        xb.load_run(tmp_path / "run").table()
    assert "computed again, because this changed: protocol" in again()
    assert {*xb.load_run(tmp_path / "run").table().protocol} == {"strict"}
    sys.path.remove(str(package.parent))
    with pytest.raises(xb.XBenchError, match=r"maps:mine on coco: Unknown protocol 'strict': .*known are default"):
        xb.load_run(tmp_path / "run").table()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "The protocol 'addon_that_is_not_there:STRICT' cannot be imported"),
        ("wrong", "'wrong' of an installed package, addon.protocols:__name__, is no Protocol; correct the package"),
        ("other", "'other' of an installed package, addon.protocols:STRICT, has the name 'strict'; correct"),
        ("stricter", "Unknown protocol 'stricter': did you mean 'strict'"),
    ],
)
def test_a_broken_protocol_is_one_sentence(
    package: Path, data: Path, maps: str, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(data, "--model", maps, "--protocol", name) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error")]
    assert words in line
    assert find_protocol("default").source.startswith("this benchmark") and find_protocol("strict").source == "a paper"


def test_two_packages_with_one_name(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "second", "[xbench_fast.protocols]\nstrict = json:dumps\nmore = addon.protocols:STRICT\n", "b")
    monkeypatch.syspath_prepend(tmp_path / "second")
    with pytest.raises(ConfigError, match=r"'strict' is defined twice, as json:dumps and as addon\.protocols:STRICT"):
        find_protocol("strict")
    assert find_protocol("paper").name == "paper"
    assert list(PROTOCOLS) == [*PROTOCOLS.own, "absent", "more", "other", "strict", "wrong"]
    assert len(PROTOCOLS) == len(PROTOCOLS.own) + 5


def test_help_names_what_packages_add(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("report", "--help") == 0
    said = "".join(capsys.readouterr().out.split())
    assert all(f"|{name}" in said for name in ("strict", "counting", "radvlm"))


def published(run: Path) -> list[dict[str, str]]:
    with (run / "report" / "published.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_scorer_has_numbers(package: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = answers(data, tmp_path / "mine.jsonl")
    assert evaluate(data, "--model", f"boxes:{tmp_path / 'mine.jsonl'}") == 0
    assert command("report", tmp_path / "run", "--no-page", "--quiet") == 0
    found = {row["number"]: row for row in published(tmp_path / "run") if row["scorer"] == "counting"}
    assert float(found["boxes"]["value"]) == sum(len(line["boxes"]) for line in lines.values())
    assert found["none"]["value"] == "" and found["boxes"]["main"] == "True"
    code = f"scorer counting: addon.scorers:COUNTING, code {SCORERS.code('counting')}"
    assert found["boxes"]["source"] == f"a paper; {code}"
    assert {row["scorer"] for row in published(tmp_path / "run")} >= {"radvlm", "rodeo", "counting"}
    tables = (tmp_path / "run" / "report" / "tables.md").read_text()
    left_out = f"raised ValueError (two lines) in {package / 'scorers.py'}, line 6; correct the package."
    assert f"scorer failing, left out: The scorer 'failing' {left_out}" in tables.replace("\\", "") and code in tables
    assert "gives no number 'other', its main one" in tables
    capsys.readouterr()
    for name in ("failing", "nameless"):
        assert command("report", tmp_path / "run", "--no-page", "--quiet", "--protocol", name) == 1
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f"Error: The scorer '{name}'")
    assert command("report", tmp_path / "run", "--no-page", "--quiet", "--protocol", "counting") == 0
    assert {row["scorer"] for row in published(tmp_path / "run")} == {"counting"}


def said_in(dialect: str, data: Path, lines: dict[tuple[str, str], dict[str, object]]) -> Path:
    """The same answers as text, in percent."""
    sizes = {(case, finding): size for case, finding, _, size in pairs_of(data)}
    told: list[dict[str, object]] = [{"xbench_boxes": 1, "dialect": dialect}]
    for pair, line in lines.items():
        boxes = np.reshape(line["boxes"], (-1, 4)) / np.tile(sizes[pair], 2) * 100  # type: ignore[arg-type]
        text = ";".join(" ".join(map(repr, box)) for box in boxes.tolist())
        told.append({"case": pair[0], "finding": pair[1], "text": text} if text else {**line, "frame": "percent"})
    path = data.parent / "said.jsonl"
    path.write_text("\n".join(map(json.dumps, told)) + "\n")
    return path


def test_a_dialect_reads_texts(package: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = answers(data, tmp_path / "mine.jsonl")
    path = said_in("spaced", data, lines)
    models = ["--model", f"boxes:{tmp_path / 'mine.jsonl'}", "--model", f"boxes:{path}"]
    assert evaluate(data, *models) == 0
    own, said = (
        [
            (row["case_id"], row["finding"], row["area"], row["overlap"])
            for row in rows(tmp_path / "run", f"boxes:{name}")
        ]
        for name in ("mine", "said")
    )
    assert own == said
    capsys.readouterr()
    change(package / "dialects.py", "parsed = Parsed()", "parsed = Parsed(meant=True)")
    assert evaluate(data, *models) == 0
    told = capsys.readouterr().out
    assert "boxes:mine on coco: finished before, reused" in told
    assert "boxes:said on coco: computed again, because this changed: map" in told


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("none", "the dialect none gives no Parsed"),
        ("spaced", "the dialect spaced raised ValueError (could not convert string to float: 'no'"),
        ("space", "did you mean 'spaced'"),
    ],
)
def test_a_broken_dialect_is_one_sentence(
    package: Path, data: Path, dialect: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = {pair[:2]: {"case": pair[0], "finding": pair[1], "boxes": [[0, 0, 1, 1]]} for pair in pairs_of(data)}
    path = said_in(dialect, data, pairs)
    first, second, *more = path.read_text().splitlines()
    text = json.dumps({**json.loads(second), "text": "no box"})
    path.write_text("\n".join([first, text, *more]) + "\n")
    assert evaluate(data, "--model", f"boxes:{path}") != 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "said.jsonl" in line][:1]
    assert words in line and list(DIALECTS)[-2:] == ["none", "spaced"]


def test_a_metric_has_its_name_and_its_code(package: Path, data: Path, maps: str, tmp_path: Path) -> None:
    assert evaluate(data, "--model", maps) == 0
    (tmp_path / "own.toml").write_text("[metrics.recall]\n")
    options = ["--config", tmp_path / "own.toml", "--no-page", "--quiet"]
    told = []
    for text in ("overlap[50]", "overlap[50] * 0.5"):
        change(package / "metrics.py", "overlap[50]", text)
        assert command("report", tmp_path / "run", *options) == 0
        tables = (tmp_path / "run" / "report" / "tables.md").read_text()
        told.append(tables.split("metric recall: addon.metrics:recall, code ")[1][:12])
        with (tmp_path / "run" / "report" / "table1.csv").open(newline="") as stream:
            told.append(next(csv.DictReader(stream))["recall_percent"])
    assert told[0] != told[2] and float(told[1]) == pytest.approx(2 * float(told[3]))
