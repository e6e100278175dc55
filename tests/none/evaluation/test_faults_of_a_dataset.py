"""All faults of one table [datasets.NAME] come in one message, a sentence for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import make_bundle
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.evaluation.pairing import check_datasets, missing_prompts
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.loaded_dataset import load_dataset


@pytest.fixture
def bundles(tmp_path: Path) -> list[Path]:
    """`one` has the prompt set coco; `two` has other."""
    return [make_bundle(tmp_path / name, sets=sets).path for name, sets in (("one", ("coco",)), ("two", ("other",)))]


def message(datasets: list[DatasetConfig], bundles: list[Path]) -> str:
    with pytest.raises(ConfigError) as error:
        check_datasets(datasets, bundles)
    return str(error.value)


def test_a_missing_reader_and_missing_prompts_are_one_message(bundles: list[Path]) -> None:
    said = message([DatasetConfig("mine", Path(), "mine")], bundles)
    assert said.startswith("Unknown dataset 'mine'") and 'reader = "yolo" in [datasets.mine] of xbench.toml. No' in said
    assert said.endswith('or prompts = "SET" in [datasets.mine] of xbench.toml.')
    assert "No bundle has a prompt set 'mine' for dataset 'mine' (there are: coco, other); name one with" in said
    said = message([DatasetConfig("coco", Path(), "coco"), DatasetConfig("mine", Path(), "cvs", "cocoa")], bundles[:1])
    assert said.startswith("Unknown reader 'cvs': did you mean 'csv'?")
    assert "The bundle one has no prompt set 'cocoa'" in said


def test_prompts_that_a_bundle_has_are_no_fault(bundles: list[Path]) -> None:
    assert "prompt set" not in message([DatasetConfig("mine", Path(), "cvs", "other")], bundles)
    assert "prompt set" not in message([DatasetConfig("other", Path(), "cvs")], bundles)
    assert missing_prompts(DatasetConfig("mine", Path(), "coco"), bundles) == []  # the reader's own set
    assert missing_prompts(DatasetConfig("mine", Path(), "mine"), []) == []
    check_datasets([DatasetConfig("coco", Path(), "coco", "absent")], bundles)  # each cell says this one


def test_a_supervised_model_needs_no_prompts(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "supervised", supervised=("Mass", "Effusion")).path
    assert missing_prompts(DatasetConfig("mine", Path(), "mine"), [bundle]) == []
    assert missing_prompts(DatasetConfig("mine", Path(), "mine", "absent"), [bundle])


def test_all_unknown_options_and_a_missing_folder_are_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_dataset(DatasetConfig("mine", tmp_path / "no", "csv", options={"titel": "x", "title": "y", "unitt": "z"}))
    sentences = str(error.value).split("The ")
    assert sentences[1].startswith("dataset 'mine' has no option 'titel': did you mean 'title'?")
    assert sentences[2].startswith("dataset 'mine' has no option 'unitt': did you mean 'unit'?")
    assert sentences[3].startswith(f"folder {tmp_path / 'no'} of dataset 'mine' does not exist") and len(sentences) == 4
    with pytest.raises(DataError, match=r"^The folder "):
        load_dataset(DatasetConfig("mine", tmp_path / "no", "csv"))


def test_a_cell_says_its_options_and_its_prompts_at_once(
    tmp_path: Path, bundles: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    line = ["eval", "--model", str(bundles[0]), "--dataset", "mine", "--data", f"mine={tmp_path / 'data'}"]
    line += ["--out", str(tmp_path / "run")]
    options = [part for key in ("reader=csv", "titel=x", "prompts=cocoa") for part in ("--data-option", f"mine.{key}")]
    with pytest.raises(SystemExit):
        main([*line, *options])
    printed = capsys.readouterr()
    assert "one on mine: The dataset 'mine' has no option 'titel'" in printed.err
    assert "The bundle one has no prompt set 'cocoa' for dataset 'mine' (there are: coco)" in printed.err
