"""The table [models] of xbench.toml, and how flags go over it; nothing here needs torch."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.manifest import PAPER_MODELS
from xbench_fast.export.cli import main
from xbench_fast.export.cli.models_in_config import ModelEntry, ModelTable, importable, read_models
from xbench_fast.export.models.published_checkpoints import PUBLISHED
from xbench_fast.runtime.host.config import load_config

WHOLE = """
bundles = ["made", "others"]

[models.mine]
class = "code/mine.py:Mine"
checkpoint = "weights.pt"
tokenizer = "/vocabularies/mine"
prompts = ["a.yaml", "b.json"]
variant = "64"
seed = 3
[models.mine.options]
depth = 3

[models.kad]
checkpoint = "best_valid.pt"
resolution = 512

[models.second]
class = "hospital.models:Second"
prompts = "c.yaml"
data_option = ["rsna.list=x.csv", "rsna.split=paper"]

[datasets.rsna]
root = "rsna"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "xbench.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read_relative_to_itself(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    settings = {
        "checkpoint": tmp_path / "weights.pt",
        "tokenizer": Path("/vocabularies/mine"),
        "prompts": [tmp_path / "a.yaml", tmp_path / "b.json"],
        "variant": "64",
        "seed": 3,
    }
    assert read_models(path) == ModelTable(
        path,
        {
            "mine": ModelEntry("mine", f"{tmp_path}/code/mine.py:Mine", settings, {"depth": 3}),
            "kad": ModelEntry("kad", "kad", {"checkpoint": tmp_path / "best_valid.pt", "resolution": 512}),
            "second": ModelEntry(
                "second",
                "hospital.models:Second",
                {"prompts": [tmp_path / "c.yaml"], "data_option": ["rsna.list=x.csv", "rsna.split=paper"]},
            ),
        },
        tmp_path / "made",
        datasets=("rsna",),
    )
    assert set(load_config(path).datasets) == {"rsna"}, "the evaluation reads the same file"


def test_the_file_of_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_models() == ModelTable()
    write(tmp_path, "[models.mine]\nclass = 'mine.py:Mine'")
    assert read_models().find("mine") == ModelEntry("mine", "mine.py:Mine")
    assert read_models().find("clip") == ModelEntry("clip", "clip")
    assert read_models().find("other.py:Model").target == "other.py:Model"
    with pytest.raises(ConfigError, match=r"Unknown model 'mime': did you mean 'mine'\? known are mine, afloc"):
        read_models().find("mime")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = 3", ["'models' must be a table"]),
        ("[models]\nmine = 'mine.py:Mine'", ["'models.mine' must be a table"]),
        ("[models.mine]\nchekpoint = 'x'", ["[models.mine]", "'chekpoint'", "did you mean 'checkpoint'"]),
        ("[models.mine]\ncheckpoint = 'x'", ["[models.mine]", "'class'", "biomedclip"]),
        ("[models.mine]\nclass = 'kadd'", ["[models.mine]", "'class'"]),
        ("[models.kad]\nclass = 'mine.py:Mine'", ["'kad' is a model already", "choose another name"]),
        ("[models.'a/b']\nclass = 'kad'", ["'a/b'", "cannot name a bundle"]),
        ("[models.kad]\nseed = '3'", ["'models.kad.seed'", "whole number"]),
        ("[models.kad]\nseed = true", ["'models.kad.seed'", "whole number"]),
        ("[models.kad]\nresolution = 2.5", ["the key 'models.kad.resolution' must be a whole number."]),
        ("[models.kad]\naccept = 'all'", ["the key 'models.kad.accept' must be a number."]),
        ("[models.kad]\npercentile = true", ["the key 'models.kad.percentile' must be a number."]),
        ("[models.kad]\nsource = ''", ["the key 'models.kad.source' must be a text in quotes."]),
        ("[models.kad]\ncheckpoint = ''", ["the key 'models.kad.checkpoint' must be a text in quotes."]),
        ("[models.kad]\nkeep_float = ['a', 3]", ["the key 'models.kad.keep_float' must be a text in quotes."]),
        ("[models.kad]\ncalibration = 3", ["the key 'models.kad.calibration' must be a text in quotes."]),
        ("[models.kad]\nprompts = [3]", ["'models.kad.prompts'", "text in quotes"]),
        ("[models.kad]\noptions = 3", ["'models.kad.options' must be a table"]),
        ("[models.kad.options]\ncheckpoint = 'x'", ["'checkpoint'", "write it in [models.kad] itself"]),
        ("[models.kad", ["is not a TOML file"]),
        ("[models.kad]\nseed = " + "9" * 5000, ["is not a TOML file"]),
        ("a = " + "[" * 100_000, ["is not a TOML file"]),
    ],
)
def test_mistakes_name_the_key(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        read_models(write(tmp_path, text))
    assert [word for word in [*words, "xbench.toml"] if word not in str(raised.value)] == []


def test_a_model_of_a_family(tmp_path: Path) -> None:
    """Its class is the family's; `arch` is an option of the class, and a path where it looks like one."""
    text = '[models.mine]\nfamily = "open_clip"\narch = "{}"\ncheckpoint = "w.pt"\n[models.mine.options]\nx = 1\n'
    (tmp_path / "d" / "e").mkdir(parents=True)
    places = {name: str(tmp_path / name) for name in ("a.json", "d/e")}
    for arch, wanted in {"ViT-B-16": "ViT-B-16", "ViT-B/16": "ViT-B/16", **places}.items():
        entry = read_models(write(tmp_path, text.format(arch))).entries["mine"]
        assert (entry.family, entry.target.rpartition(":")[2]) == ("open_clip", "OpenClipAdapter")
        assert entry.settings == {"checkpoint": tmp_path / "w.pt"} and entry.options == {"arch": wanted, "x": 1}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('family = "open_clp"', "xbench.toml: [models.mine]: Unknown family 'open_clp': did you mean 'open_clip'?"),
        ('famly = "open_clip"', "[models.mine]: unknown key 'famly': did you mean 'family'?"),
        ('family = "open_clip"\nclass = "kad"', "[models.mine] has a 'family' and a 'class'; write one of them"),
        ('arch = "ViT-B-16"', "has an 'arch' but no family"),
        ("family = 3", "the key 'models.mine.family' must be a text"),
    ],
)
def test_a_table_of_a_family_that_is_wrong(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_models(write(tmp_path, f"[models.mine]\n{table}\n"))
    assert words in str(raised.value)


def test_modules_beside_the_file_come_after_installed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "")
    (tmp_path / "beside_the_file.py").write_text("VALUE = 3")
    (tmp_path / "json.py").write_text("raise SystemExit")
    before = list(sys.path)
    with importable(path):
        assert importlib.import_module("beside_the_file").VALUE == 3
        assert importlib.reload(importlib.import_module("json")).loads("3") == 3
    monkeypatch.chdir(tmp_path)
    with importable(None):
        assert sys.path == [*before, str(tmp_path)]
    assert sys.path == before
    del sys.modules["beside_the_file"]


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("", ["--model", "mine", "--out", "x"], "Unknown model 'mine'"),
        ("", ["--model", "kad"], "Give --out, the folder"),
        ("bundles = 'made'", ["--model", "kad"], "Give --checkpoint FILE"),
        ("bundles = 'made'\n[models.kad]\ncheckpoint = 'a.pt'", ["--model", "kad"], "There is no file a.pt"),
        ("[models.kad]\nweights = 'random'", ["--model", "kad", "--out", "x"], "'models.kad.weights'"),
        ("[models.kad]\nseed = -1", ["--model", "kad", "--out", "x"], "'models.kad.seed'"),
        (
            "[models.kad]\nweights = 'stand-in'",
            ["--model", "kad", "--out", "x", "--checkpoint", "b.pt"],
            "There is no file b.pt",
        ),
        ("[models.kad]\nx = 1", ["--list"], "unknown key 'x'"),
        ("", ["--model", "kad", "--family", "open_clip", "--out", "x"], "Give --model or --family, one of the two"),
        ("", ["--model", "kad", "--name", "mine", "--out", "x"], "--name goes with --family"),
        ("", ["--model", "kad", "--arch", "ViT-B-16", "--out", "x"], "--arch goes with --family"),
        ("", ["--family", "open_clip", "--name", "kad", "--out", "x"], "'kad' is a model already"),
        ("", ["--family", "open_clip", "--name", "a/b", "--out", "x"], "'a/b' cannot name a bundle"),
    ],
)
def test_a_flag_goes_over_the_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "kad", "--out", "x", "--config", "absent.toml"]) == 2
    assert "absent.toml does not exist; check --config" in capsys.readouterr().err


FACTS = ("sha256", "where", "licence", "text", "saliency")


def test_the_list_has_every_fact_of_every_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nobody states is "unknown"; a digest is a whole one."""
    monkeypatch.chdir(tmp_path)
    assert main(["--list"]) == 0
    blocks = re.split(r"\n(?=\S)", capsys.readouterr().out)
    found = {block.partition(":")[0]: block for block in blocks}
    assert [name for name in found if name in PUBLISHED] == list(PUBLISHED)
    for name, facts in PUBLISHED.items():
        lines = found[name].split("\n")[1:]
        assert [line.split()[0] for line in lines[: len(facts.variants)]] == list(facts.variants)
        stated = [line.split(maxsplit=1) for line in lines if line[2] != " "]
        assert {label for label, text in stated if text} == {*facts.variants, *FACTS}
        assert all(re.fullmatch(r"unknown|\S+: [0-9a-f]{64}", text) for label, text in stated if label == "sha256")


def test_the_list_of_some_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WHOLE)
    chosen = {("kad", "afloc"): ["kad", "afloc", "kad"], ("mine",): ["mine"], ("all",): [*PAPER_MODELS, "kad"]}
    for names, wanted in chosen.items():
        options = [word for name in names for word in ("--model", name)]
        assert main(["--list", *options, "--config", str(path)]) == 0
        lines = capsys.readouterr().out.split("\n")
        assert [line.partition(":")[0] for line in lines if line and line[0] != " "][:-1] == wanted
    assert main(["--list", "--model", "kadd"]) == 2
    assert "did you mean 'kad'?" in capsys.readouterr().err


def test_the_list_has_the_files_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WHOLE)
    (tmp_path / "weights.pt").touch()
    assert main(["--list", "--config", str(path)]) == 0
    printed = capsys.readouterr().out
    assert f"mine: {tmp_path}/code/mine.py:Mine (from {path})" in printed
    assert f"{tmp_path}/weights.pt: found" in printed and f"{tmp_path}/best_valid.pt: not found" in printed
