"""xbench.toml and the flags that override it."""

from __future__ import annotations

from pathlib import Path

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.cli.options.shared_options import resolve_config
from xbench_fast.runtime.host.config import Config, DatasetConfig, load_config
from xbench_fast.runtime.host.options import EvalConfig

WHOLE = """
bundles = ["models", "/elsewhere"]
cache = "prepared"

[datasets.rsna]
root = "rsna"
csv = "test.csv"

[datasets.mine]
root = "/data/mine"
reader = "readers/mine.py:Mine"
prompts = "chestxdet10"

[eval]
engine = "onnxruntime-cpu"
batch = 4
threads = 2
out = "runs/one"
build = false
tf32 = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "xbench.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read_relative_to_itself(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    config = load_config(path)
    assert config == Config(
        path=path,
        bundles=(tmp_path / "models", Path("/elsewhere")),
        cache=tmp_path / "prepared",
        datasets={
            "rsna": DatasetConfig("rsna", tmp_path / "rsna", "rsna", None, {"csv": "test.csv"}),
            "mine": DatasetConfig("mine", Path("/data/mine"), f"{tmp_path}/readers/mine.py:Mine", "chestxdet10", {}),
        },
        eval=EvalConfig("onnxruntime-cpu", 4, 2, tmp_path / "runs/one", build=False, tf32=True),
    )


def test_the_file_of_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config() == Config()
    write(tmp_path, 'bundles = ["b"]')
    assert load_config().bundles == (Path("b"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('bundels = ["a"]', ["unknown key 'bundels'", "did you mean 'bundles'"]),
        ("[eval]\nbacth = 3", ["[eval]", "unknown key 'bacth'", "did you mean 'batch'"]),
        ("[eval]\nbatch = 0", ["eval.batch", "at least 1"]),
        ("[eval]\nbatch = true", ["eval.batch", "at least 1"]),
        ('[eval]\nthreads = "2"', ["eval.threads"]),
        ("[eval]\ngpu = -1", ["'eval.gpu' must be a whole number of at least 0."]),
        ("[eval]\nbuild = 1", ["eval.build", "true or false"]),
        ('[eval]\ntf32 = "yes"', ["eval.tf32", "true or false"]),
        ("[datasets.rsna]\ncsv = 'x'", ["datasets.rsna", "root"]),
        ("datasets = 3", ["'datasets' must be a table"]),
        ("bundles = 3", ["'bundles' must be a list"]),
        ("bundles = [3]", ["'bundles' must be a text"]),
        ('bundles = ["a", ""]', ["'bundles' must be a text in quotes."]),
        ("cache = 3", ["the key 'cache' must be a text in quotes."]),
        ("models = 3", ["'models' must be a table, written as [models]."]),
        ("eval = [3]", ["'eval' must be a table, written as [eval]."]),
        ("[eval]\nout = ''", ["'eval.out' must be a text in quotes."]),
        ("[eval]\nengine = 3", ["'eval.engine' must be a text in quotes."]),
        ("[eval]\nbatch = 2.0", ["'eval.batch' must be a whole number of at least 1."]),
        ("[eval]\nthreads = -1", ["'eval.threads' must be a whole number of at least 1."]),
        ("[eval]\nthreads = 1025", ["'eval.threads' must be a whole number of at most 1024."]),
        ("datasets.rsna = 3", ["'datasets.rsna' must be a table, written as [datasets.rsna]."]),
        ("[datasets.rsna]\nroot = 3", ["'datasets.rsna.root' must be a text in quotes."]),
        ("[datasets.rsna]\nroot = 'x'\nreader = ''", ["'datasets.rsna.reader' must be a text in quotes."]),
        ("[datasets.rsna]\nroot = 'x'\nprompts = 3", ["'datasets.rsna.prompts' must be a text in quotes."]),
        ("[datasets.rsna]\nroot = 'x'\nprompts = []", ["'datasets.rsna.prompts' must be a list of at least one text."]),
        ("bundles = [", ["is not a TOML file"]),
        ("[eval]\nbatch = " + "9" * 5000, ["is not a TOML file"]),
        ("cache_limit = " + "9" * 400, ["cache_limit is larger than any disk"]),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_missing_file_is_an_error_only_when_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "nothing.toml")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path, bundles = write(tmp_path, WHOLE), tmp_path / "flag"
    bundles.mkdir()
    config = resolve_config(
        path,
        [bundles],
        ["rsna=/new/place", "coco=there"],
        ["coco.images=pictures", "coco.prompts=rsna", "rsna.limit=3", "mine.reader=coco", "mine.root=/moved"],
    )
    assert config.bundles == (bundles,)
    assert config.datasets["rsna"].root == Path("/new/place")
    assert config.datasets["rsna"].options == {"csv": "test.csv", "limit": 3}
    assert config.datasets["coco"] == DatasetConfig("coco", Path("there"), "coco", "rsna", {"images": "pictures"})
    assert (config.datasets["mine"].reader, config.datasets["mine"].root) == ("coco", Path("/moved"))


def test_a_number_of_thousands_of_digits_is_text() -> None:
    config = resolve_config(None, (), ["csv=x"], ["csv.title=" + "9" * 5000])
    assert config.datasets["csv"].options == {"title": "9" * 5000}


@pytest.mark.parametrize("flag", ["rsna", "=x", "rsna="])
def test_malformed_data_flags(flag: str) -> None:
    with pytest.raises(ConfigError, match="NAME=PATH"):
        resolve_config(None, (), [flag])


@pytest.mark.parametrize("flag", ["rsna.csv", "csv=3", "other.csv=3"])
def test_malformed_option_flags(flag: str) -> None:
    with pytest.raises(ConfigError, match="--data-option"):
        resolve_config(None, (), ["rsna=x"], [flag])
