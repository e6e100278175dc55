"""Names that resolve late."""

from __future__ import annotations

from pathlib import Path

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.registry import Registry, did_you_mean

TABLE = Registry("model", {"dumps": "json:dumps", "path": "pathlib:Path"})


def test_known_names_load() -> None:
    assert TABLE.load("path") is Path
    assert TABLE.names() == ["dumps", "path"]


def test_a_target_loads_without_being_registered(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Model:\n    size = 3\n")
    assert TABLE.load(f"{tmp_path / 'mine.py'}:Model.size") == 3
    assert TABLE.load("pathlib:PurePath").__name__ == "PurePath"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dump", "did you mean 'dumps'"),
        ("zebra", "known are dumps, path"),
        ("at", "did you mean 'path'"),
        ("no_such_module:Thing", "cannot be imported"),
        ("json:no_such_name", "has no 'no_such_name'"),
        ("absent/file.py:Thing", "does not exist"),
    ],
)
def test_a_miss_says_what_there_is(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TABLE.load(name)


def test_installed_packages_add_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Registry("model", {"path": "pathlib:Path"}, "made_up.models")
    assert table.names() == ["path"]
    for name, line in (("more", "pure = pathlib:PurePath"), ("again", "path = pathlib:PosixPath")):
        made = tmp_path / name / f"{name}-1.0.dist-info"
        made.mkdir(parents=True)
        (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (made / "entry_points.txt").write_text(f"[made_up.models]\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path / "more")
    assert table.names() == ["path", "pure"] and table.load("pure").__name__ == "PurePath"
    monkeypatch.syspath_prepend(tmp_path / "again")
    with pytest.raises(ConfigError, match="'path' is defined twice, as pathlib:Path and as pathlib:PosixPath"):
        table.names()


def test_a_name_that_is_known_twice_is_listed_once() -> None:
    assert did_you_mean("cco", ["coco", "csv", "coco"]) == "did you mean 'coco'? known are coco, csv"


def test_what_people_write_goes_over_what_is_similar() -> None:
    written = {"image": "case", "bbox2d": "boxes"}
    assert did_you_mean("image", ["dialect", "case"], written).startswith(
        "did you mean 'case'? known are dialect, case"
    )
    assert did_you_mean("Bbox_2D", ["boxes"], written).startswith("did you mean 'boxes'?")
    assert did_you_mean("image", ["boxes", "imagery"], written).startswith("did you mean 'imagery'?"), "case is unknown"
    assert did_you_mean("caes", ["case"], written).startswith("did you mean 'case'?")
