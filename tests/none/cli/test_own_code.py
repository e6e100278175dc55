"""./xbench.toml that names Python files: what is said before they run, and what needs --config."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import make_dataset
from xbench_fast import evaluate
from xbench_fast.engines.errors import ConfigError
from xbench_fast.export.cli.models_in_config import read_models
from xbench_fast.runtime.cli import main

READER = "from xbench_fast.runtime.data.datasets.formats.coco import Coco\nprint('ran')\nclass Mine(Coco):\n    pass\n"
REFUSED = "xbench.toml names code outside its folder, {}; if you trust it, give --config xbench.toml."


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    make_dataset(folder / "data", 4)
    for place in (folder / "readers", tmp_path / "outside"):
        place.mkdir()
        (place / "mine.py").write_text(READER)
    monkeypatch.chdir(folder)
    return folder


def write(reader: str) -> None:
    Path("xbench.toml").write_text(f"[datasets.mine]\nroot = 'data'\nreader = '{reader}:Mine'\n")


def ran(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(line)
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


@pytest.mark.parametrize("line", [("datasets",), ("datasets", "check", "mine"), ("eval", "--model", "baseline:ones")])
def test_code_beside_the_file_is_announced(inside: Path, capsys: pytest.CaptureFixture[str], line: list[str]) -> None:
    write("readers/mine.py")
    status, out, err = ran(capsys, *line)
    assert (status, err) == (0, "xbench.toml: runs the code of readers/mine.py, which reads dataset 'mine'\n")
    status, out, err = ran(capsys, *line, "--config", "xbench.toml")
    assert (status, err) == (0, "") and "ran" in out


def test_code_elsewhere_needs_the_flag(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = inside / "link.py"
    link.symlink_to(inside.parent / "outside" / "mine.py")
    for name in (str(inside.parent / "outside" / "mine.py"), "../outside/mine.py", "link.py"):
        write(name)
        status, out, err = ran(capsys, "datasets", "check", "mine")
        assert (status, err) == (2, f"Error: {REFUSED.format(name)}\n") and "ran" not in out
        with pytest.raises(ConfigError, match="outside its folder"):
            evaluate("baseline:ones", out=inside / "run", progress=False)
        assert ran(capsys, "models")[0] == 0, "a command that reads no dataset runs none of it"
        status, out, err = ran(capsys, "datasets", "check", "mine", "--config", "xbench.toml")
        assert (status, err) == (0, "") and "ran" in out
        given = ran(capsys, "datasets", "check", "mine", "--data-option", "mine.reader=coco")
        assert given[0] == 0 and given[2] == ""


def test_models_too(inside: Path) -> None:
    Path("xbench.toml").write_text(
        "[models.a]\nclass = 'readers/mine.py:A'\n[models.b]\nclass = '../outside/mine.py:B'\n"
    )
    found = read_models()
    told = "xbench.toml: runs the code of readers/mine.py, which is model 'a'"
    assert found.own_code(found.entries["a"]) == [told] and found.own_code(found.find("kad")) == []
    with pytest.raises(ConfigError, match="outside its folder"):
        found.own_code(found.entries["b"])
    named = read_models(Path("xbench.toml"))
    assert named.own_code(named.entries["b"]) == []
