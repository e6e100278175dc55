"""A flipped bit in any file of a run, a cache, a trust directory or a bundle is harmless, named, or made good.

There is never another number, and never a traceback.

The folders are walked, so a new store is met without being named here. `PEOPLE` names what nothing reads back.
XBENCH_FUZZ multiplies the number of flips (default 1).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from synthetic import BlockEngine, make_bundle, make_dataset, make_ms_cxr, save_graph
from xbench_fast.engines.base import Scores
from xbench_fast.engines.errors import XBenchError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.reporting.csv_and_json import to_json
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.studied_errors import studied_errors
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.trust.card.making import make_cards

TIMES = int(os.environ.get("XBENCH_FUZZ", "1"))
FOLDERS = ("run", "half", "cache", "trust", "models/blocks-32")
PEOPLE = (
    "run/report/*",  # its tables, page and cards
    "run/studies/*.md",
    "run/studies/*.csv",
    "trust/trust.csv",
    "trust/trust.txt",
    "*/.lock",  # locks, which are empty
    "cache/*/lock",
    "cache/*/use",
)
"""Files that people read, and no command."""
CASES = 12
TRUST = Path("trust")
OF_RUN = ("--bundles", "models", "--data", "coco=data", "--threads", "1", "--batch", "3", "--chunk", "8")
BOTH = (*OF_RUN, "--model", "blocks-32", "--model", "baseline:center", "--data", "mscxr=data")
HALF = (*OF_RUN, "--model", "blocks-32", "--chunk", "4", "--engine", f"{__name__}:Stopping", "--no-cache")
DRAWS = 40

_stopping = [False]


class Stopping(BlockEngine):
    """Is interrupted in the second chunk, while `_stopping` says so."""

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        if _stopping[0] and len(self.calls) == 3:
            raise KeyboardInterrupt
        return super()._run(pixels, text)


@dataclass(frozen=True)
class Ran:
    """A command's exit status and all that it printed."""

    status: int
    text: str


def command(*words: object) -> Ran:
    printed = io.StringIO()
    out, err = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
    with out, err, pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return Ran(int(ended.value.code or 0), printed.getvalue())


def done(*words: object) -> Ran:
    ran = command(*words)
    assert ran.status == 0, ran.text
    return ran


def evaluate(out: str) -> Ran:
    return command("eval", *(HALF if out == "half" else (*BOTH, "--cache", "cache")), "--out", out)


def ask_trust() -> Ran:
    return command(
        "trust", "--model", "blocks-32", *OF_RUN[:6], "--probe", "repeat", "--probe", "prompts", "--out", "trust"
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_bundle(folder / "models/blocks-32", graph=save_graph(folder / "blocks.onnx"), text=True)
        make_ms_cxr(make_dataset(folder / "data", CASES))
        people = [f"case{number:04d},{'FM'[number // 2 % 2]}" for number in range(CASES)]
        (folder / "who.csv").write_text("\n".join(["case,sex", *people]) + "\n")
        assert evaluate("run").status == 0
        done("study", "subgroups", "run", "--attributes", "coco=who.csv", "--quiet", "--replicates", DRAWS)
        done("study", "errors", "run", "--quiet", "--replicates", DRAWS)
        done("report", "run", "--no-page", "--quiet", "--replicates", DRAWS)
        assert ask_trust().status == 0
        _stopping[0] = True
        assert evaluate("half").status == 130
        _stopping[0] = False
        yield folder


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, whose images have the times of the originals."""
    shutil.copytree(made, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    return tmp_path / "world"


def stored(folder: Path) -> list[str]:
    """All files of the folders that are walked, as paths below `folder`."""
    files = (path for name in FOLDERS for path in (folder / name).rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def for_people(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in PEOPLE)


def rows(out: str) -> dict[str, pa.Table]:
    """The rows of every finished cell."""
    cells = json.loads(Path(out, "run.json").read_text())["cells"]
    return {
        name: pq.read_table(Path(out, entry["file"])).replace_schema_metadata()
        for name, entry in cells.items()
        if entry["state"] == "done"
    }


def fractions(told: Any) -> set[float]:
    """All numbers of a document that are no whole ones: values, ends of intervals, p. Not p after Holm's correction,
    whose family is smaller where a result is left out."""
    if isinstance(told, dict):
        return set().union(*(fractions(value) for key, value in told.items() if key != "p_holm"))
    if isinstance(told, list):
        return set().union(*map(fractions, told))
    return {told} if isinstance(told, float) else set()


def reported(*trust: Path) -> set[float]:
    """What a report has of each result and on each card; nothing where it is refused with a sentence."""
    said: list[str] = []
    try:
        made = make_report(Path("run"), Choices(replicates=DRAWS))
        cards = make_cards(made, trust, pictures=False, say=said.append)
    except XBenchError as error:
        assert str(error).endswith(".")
        return set()
    told = to_json(made.results, made.blocks, made.run.data)["cells"]
    return fractions([{**cell, "seconds": 0} for cell in told]) | fractions([card.to_json for card in cards])


def trusted() -> set[float]:
    cells = json.loads(Path("trust/trust.json").read_text())["cells"]
    return fractions([{key: cell[key] for key in ("questions", "facts")} for cell in cells.values()])


def shown() -> tuple[Any, ...]:
    """The study of errors as a page has it."""
    return tuple(
        vars(
            studied_errors(load_run(Path("run")), Path("run/studies/errors/errors.json"), Choices(replicates=DRAWS))
        ).values()
    )


def named(ran: Ran) -> bool:
    """Whether a command ended, with one sentence where it failed."""
    assert "Traceback" not in ran.text and "unexpected" not in ran.text, ran.text
    assert ran.status in (0, 1), ran.text
    assert ran.status == 0 or "Error: " in ran.text or "failed" in ran.text, ran.text
    return ran.status == 0


class Judges:
    """What each folder's commands say after a flip, against what they say of whole files."""

    def __init__(self) -> None:
        # Without the probe that it holds, a line has more of the stored maps.
        self.reported = reported(TRUST) | reported()
        self.shown, self.trusted, self.rows = shown(), trusted(), rows("run")
        shutil.copytree("half", "whole")
        assert named(evaluate("half"))
        self.half = rows("half")
        shutil.rmtree("half")
        Path("whole").rename("half")
        assert len(self.rows) == 4 and len(self.half) == 1 and len(self.reported) > 50 and len(self.trusted) > 2
        assert self.shown[0] and self.shown[1]

    def run(self) -> None:
        assert reported() <= self.reported
        if named(evaluate("run")):
            assert rows("run") == self.rows

    def half_run(self) -> None:
        if named(evaluate("half")):
            assert rows("half") == self.half

    def cache(self) -> None:
        assert named(evaluate("again")), "a cache can always be made again"
        assert rows("again") == self.rows

    def bundle(self) -> None:
        if named(evaluate("again")):
            assert rows("again") == self.rows

    def trust(self) -> None:
        assert reported(TRUST) <= self.reported
        if named(ask_trust()):
            assert trusted() == self.trusted

    def page(self) -> None:
        figures, examples, remark = shown()
        assert (figures, examples) == self.shown[:2] or (not figures and not examples and remark.endswith("again."))

    def of(self, name: str) -> Callable[[], None]:
        if name.startswith("run/studies/errors/"):
            return self.page
        kinds = {
            "run": self.run,
            "half": self.half_run,
            "cache": self.cache,
            "trust": self.trust,
            "models": self.bundle,
        }
        return kinds[name.partition("/")[0]]


def test_a_flipped_bit_in_any_file_is_never_another_number(world: Path) -> None:
    names = [name for name in stored(world) if not for_people(name)]
    assert {name.partition("/")[0] for name in names} == {name.partition("/")[0] for name in FOLDERS}
    judges = Judges()
    whole = world.with_name("whole")
    shutil.copytree(world, whole)
    random = np.random.default_rng(5)
    for name in names:
        content = Path(name).read_bytes()
        assert content, f"{name} is empty: name it in PEOPLE if nothing reads it"
        used = np.flatnonzero(np.frombuffer(content, np.uint8))
        # What a report reads takes longer; test_bit_flips.py flips many more bits of results and prepared images.
        count = TIMES if name.startswith(("run/", "trust/")) else 2 * TIMES
        for place in random.choice(used, count).tolist():
            flipped = bytearray(content)
            flipped[place] ^= 1 << int(random.integers(8))
            Path(name).write_bytes(flipped)
            try:
                judges.of(name)()
            except Exception as error:
                raise AssertionError(f"byte {place} of {name}: {error}") from error
            for folder in (*FOLDERS, "again"):
                shutil.rmtree(folder, ignore_errors=True)
                if (whole / folder).is_dir():
                    shutil.copytree(whole / folder, folder)


def test_what_people_read_is_there_and_no_command_reads_it(world: Path) -> None:
    """Each pattern names a file, so none outlives what it was for; without these files everything is as before."""
    names = stored(world)
    for pattern in PEOPLE:
        assert [name for name in names if fnmatch(name, pattern)], pattern
    judges = Judges()
    for name in filter(for_people, names):
        Path(name).unlink()
    judges.run()
    judges.trust()
    judges.page()
    judges.cache()
