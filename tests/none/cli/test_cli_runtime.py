"""The command line: what it lists, what it says when something is wrong, and its exit status."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.base import CPU_BATCH
from xbench_fast.engines.plans.family import GPU_BATCH
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.cli.app import COMMANDS, app
from xbench_fast.runtime.data.images.decoder_checks import check_decoders
from xbench_fast.runtime.data.images.samples import SYNTAXES, sample_pixels
from xbench_fast.runtime.evaluation.cell_options import Options
from xbench_fast.runtime.host import installation_checks as doctor
from xbench_fast.runtime.host.options import EvalConfig
from xbench_fast.runtime.results.choices import Choices

STUDIES = (
    "thresholds",
    "correlation",
    "gap",
    "groups",
    "strata",
    "failures",
    "errors",
    "asked",
    "readers",
    "subgroups",
    "calibration",
    "trust",
    "prompts",
    "resolution",
    "mechanisms",
)
ONES = ("eval", "--model", "baseline:ones")
MINE = (*ONES, "--data", "mine=.", "--data-option")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without xbench.toml, and a terminal wide enough for every table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")


class Ran:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        self.status = caught.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def test_help_imports_nothing_heavy() -> None:
    heavy = ["numpy", "pyarrow", "rich", "pandas", "sklearn", "numba", "PIL", "pydicom", "onnxruntime"]
    code = (
        "import sys\n"
        "from xbench_fast.runtime.cli import main\n"
        "try: main(['--help'])\n"
        f"finally: print('loaded:', [name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "loaded: []" in done.stdout
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["datasets", "check"], ["boxes", "check"]])
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    ran = Ran(capsys, *command, "--help")
    assert ran.status == 0 and ran.out.startswith("Usage:")


def test_help_says_what_paths_are_relative_to(capsys: pytest.CaptureFixture[str]) -> None:
    """And it is so: the file of an option lies in the dataset's folder, not beside xbench.toml."""
    assert "whose paths are relative to the dataset's folder" in " ".join(Ran(capsys, "datasets", "--help").out.split())
    root = make_dataset(Path("data"), 4)
    (root / "annotations.json").rename(root / "mine.json")
    Path("xbench.toml").write_text("[datasets.coco]\nroot = 'data'\nannotations = 'mine.json'\n")
    assert Ran(capsys, "datasets", "check", "coco").status == 0


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["evil"], ["eval", "--batch", "0"], ["eval", "--all", "--frobnicate"]):
        ran = Ran(capsys, *line)
        assert ran.status == 2 and "Error: " in ran.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["eval"], "Say what to evaluate"),
        (["eval", "--all", "--model", "kad"], "Say what to evaluate"),
        (["eval", "--all"], "No dataset is configured"),
        (["eval", "--dataset", "rsna"], "give its folder with --data rsna=PATH"),
        (["eval", "--all", "--data", "coco=data"], "No bundle was found"),
        (["eval", "--model", "kad", "--data", "coco=data"], "no bundle called 'kad'"),
        (["eval", "--all", "--config", "nothing.toml"], "does not exist; check --config"),
        (["eval", "--all", "--config", "."], "The configuration file . is a folder"),
        (["report"], "run is no run directory"),
        *((["study", name], "run is no run directory") for name in STUDIES),
        (["datasets", "check", "rsna"], "--data rsna=PATH"),
        (
            ["datasets", "check", "rsna", "--data", "rsna=nowhere"],
            "The folder nowhere of dataset 'rsna' does not exist",
        ),
        (["datasets", "check", "mine", "--data", "mine=."], "Unknown dataset 'mine'"),
        ([*ONES, "--data", "chestxdet1=."], "Unknown dataset 'chestxdet1': did you mean 'chestxdet10'? known are "),
        ([*ONES, "--data", "mine=."], '--data-option mine.reader=yolo, or reader = "yolo" in [datasets.mine] of'),
        ([*MINE, "mine.reader=yollo"], "Unknown reader 'yollo': did you mean 'yolo'? known are "),
        ([*MINE, "mine.reader=YOLO"], "Unknown reader 'YOLO': did you mean 'yolo'? known are "),
        ([*MINE, "mine.reader=none.py:Mine"], "The file none.py does not exist"),
    ],
)
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], line: list[str], words: str) -> None:
    ran = Ran(capsys, *line)
    assert ran.status == (1 if "run directory" in words or "folder nowhere" in words else 2)
    assert ran.err.startswith("Error: ") and words in ran.err and len(ran.err.strip().splitlines()) == 1
    assert not Path("run").exists()


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_takes_the_run_of_the_configuration(capsys: pytest.CaptureFixture[str], name: str) -> None:
    Path("xbench.toml").write_text("[eval]\nout = 'mine'")
    Path("other.toml").write_text("[eval]\nout = 'theirs'")
    assert "mine is no run directory" in Ran(capsys, "study", name).err
    assert "theirs is no run directory" in Ran(capsys, "study", name, "--config", "other.toml").err
    assert "given is no run directory" in Ran(capsys, "study", name, "given").err


def test_unknown_keys_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("xbench.toml").write_text("bundels = []")
    ran = Ran(capsys, "models")
    assert ran.status == 2 and "did you mean 'bundles'" in ran.err


def test_unknown_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "evla")
    assert ran.status == 2 and "no command 'evla': did you mean 'eval'? known are demo, eval, merge, report" in ran.err


def test_an_interrupt_is_status_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "invoke", interrupted)
    ran = Ran(capsys, "doctor")
    assert ran.status == 130 and ran.err.strip() == "Interrupted."


def test_models_lists_bundles_and_damage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "No bundle was found" in Ran(capsys, "models").out
    make_bundle(tmp_path / "models" / "good-32", weights="demo", sets=("coco", "rsna"))
    listed = Ran(capsys, "models", "--bundles", tmp_path / "models")
    assert listed.status == 0
    for word in ("good-32", "blocks", "demo", "4x4", "squash-32-32-bilinear", "coco (3), rsna (3)", "passed: 12"):
        assert word in listed.out
    bad = make_bundle(tmp_path / "models" / "bad-32").path
    (bad / "image.onnx").write_bytes(b"x")
    listed = Ran(capsys, "models", "--bundles", tmp_path / "models")
    assert listed.status == 1 and "good-32" in listed.out and "damaged: " in listed.out and "1 bytes" in listed.out
    rows = {row["name"]: row for row in Ran(capsys, "models", "--bundles", tmp_path / "models", "--json", "-").json}
    assert "error" in rows["bad-32"] and rows["good-32"]["prompt_sets"] == {"coco": 3, "rsna": 3}


def test_datasets_lists_readers_and_folders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_dataset(tmp_path / "films", 12)
    Path("xbench.toml").write_text(
        "[datasets.films]\nroot = 'films'\nreader = 'coco'\n"
        "[datasets.broken]\nroot = 'films'\nreader = 'coco'\nannotations = 'nothing.json'\n"
        "[datasets.absent]\nroot = 'absent'\nreader = 'rsna'\n"
    )
    found = Ran(capsys, "datasets", "--json", "-").json
    assert {"coco", "rsna", "chestxdet10"} <= set(found["readers"])
    rows = {row["name"]: row for row in found["datasets"]}
    assert (rows["films"]["cases"], rows["films"]["pairs"], rows["films"]["found"]) == (12, 4 + 3, True)
    assert rows["absent"]["found"] is False and "nothing.json" in rows["broken"]["error"]
    text = Ran(capsys, "datasets").out
    assert "not found" in text and "broken: " in text


def test_the_audit_decides_the_exit_status(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_dataset(tmp_path / "whole", 12)
    make_dataset(tmp_path / "holes", 12, missing=(3,))
    line = ["datasets", "check", "coco", "--data"]
    fine = Ran(capsys, *line, f"coco={tmp_path / 'whole'}")
    assert fine.status == 0 and "passed" in fine.out and "not decoded" in fine.out
    holes = Ran(capsys, *line, f"coco={tmp_path / 'holes'}", "--decode")
    assert holes.status == 1 and "case0003.png" in holes.out and "not passed" in holes.out
    (tmp_path / "whole" / "images" / "case0005.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    found = Ran(capsys, "datasets", "--data", f"coco={tmp_path / 'whole'}", "check", "coco", "--decode", "--json", "-")
    assert found.status == 1 and found.json["unreadable"] == 1 and "case0005.png" in found.json["unreadable_reasons"][0]
    early = Ran(capsys, "datasets", "--json", "-", "--data", f"coco={tmp_path / 'whole'}", "check", "coco", "--decode")
    assert early.status == 1 and early.json == found.json


def test_doctor_says_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "doctor", "--json", "-")
    checks = {(item["group"], item["name"]): item for item in ran.json["checks"]}
    for name in ("PNG", "JPEG", "DICOM uncompressed", "DICOM JPEG baseline", "DICOM JPEG 2000"):
        assert checks["decoder", name]["usable"], checks["decoder", name]
    assert checks["metrics", "sweep (CPU)"]["usable"]
    assert {name for group, name in checks if group == "engine"} >= {"onnxruntime-cpu", "onnxruntime-cuda"}
    for item in checks.values():
        assert item["usable"] or item["reason"]
    usable = any(item["usable"] for (group, _), item in checks.items() if group == "engine")
    assert ran.json["ready"] is usable and ran.status == (0 if usable else 1)
    text = Ran(capsys, "doctor").out
    assert "why not" in text and ("ready to evaluate" in text) is usable


def test_doctor_tries_the_codecs_that_the_reader_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other packages can decode these syntaxes for pydicom too, but the reader does not use them."""
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    found = {check.name: check for check in check_decoders()}
    for name in SYNTAXES:
        check = found[f"DICOM {name}"]
        assert check.usable is (name in ("uncompressed", "RLE")) and check.usable is not ("imagecodecs" in check.reason)


def test_doctor_compares_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xbench_fast.runtime.data.images.decode.decode_grey", lambda data, name: 255 - sample_pixels())
    found = {check.name: check for check in check_decoders()}
    assert "decoded to wrong values" in found["DICOM RLE"].reason and not any(check.usable for check in found.values())


def test_a_sweep_that_miscounts_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package exports a function of the same name, so the module is asked for by its full name.
    module = importlib.import_module("xbench_fast.metrics_gpu.sweep.sweep")
    real = module.sweep
    monkeypatch.setattr(module, "sweep", lambda maps, masks, **options: real(-maps, ~masks, **options))
    found = {check.name: check for check in doctor.examine()}
    assert not found["sweep (CPU)"].usable and "counts wrongly" in found["sweep (CPU)"].reason


def _help(*command: str) -> str:
    return " ".join(CliRunner().invoke(app, [*command, "--help"], color=False).output.split())


def test_help_shows_the_defaults_of_the_code() -> None:
    """Each default in the help is the one that the configuration, or the class of the options, has."""
    told = _help("eval")
    settings = EvalConfig()
    for words in (
        settings.engine,
        settings.out,
        settings.protocol,
        f"{GPU_BATCH} on a GPU, {CPU_BATCH} on a CPU",
        "no-tf32",
        "build",
        Options().chunk,
    ):
        assert f"[default: {words}" in told
    told, choices, grounding = _help("report"), Choices(), GroundingOptions()
    for name in ("replicates", "seed", "constant", "auprc", "f1", "mean", "mean_datasets"):
        assert re.search(rf"--{name.replace('_', '-')} .*?\[default: {getattr(choices, name)}\]", told), name
    for option, default in (("best", grounding.unit), ("iou-at", grounding.iou_at), ("ties", grounding.ties)):
        assert re.search(rf"--{option} .*?\[default: {default}\]", told), option
    for command in (("compare",), ("study", "thresholds")):
        assert f"[default: {choices.replicates}" in _help(*command) and f"[default: {choices.seed}" in _help(*command)
