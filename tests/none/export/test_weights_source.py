"""Which weights count as published: a file that is known, or one of which the user says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from xbench_fast.engines.manifest import Manifest
from xbench_fast.export.adapter import CheckpointRecord
from xbench_fast.export.cli import main
from xbench_fast.export.models.published_checkpoints import PUBLISHED
from xbench_fast.export.pipeline import ModelSource

SHA = PUBLISHED["clip"].sha256["ViT-B-32.pt"]


@pytest.mark.parametrize(
    ("model", "sha256", "statement", "wanted"),
    [
        ("clip", SHA, None, ("published", "my.pt, by its sha256")),
        ("clip", SHA, "elsewhere", ("published", "my.pt, by its sha256")),
        ("clip", "0" * 64, None, ("own", "")),
        ("kad", SHA, None, ("own", "")),
        ("kad", "0" * 64, "KAD's Drive folder", ("published", "as stated: KAD's Drive folder")),
        ("file.py:Mine", "0" * 64, None, ("own", "")),
    ],
)
def test_a_file_is_published_if_it_is_known_or_said_to_be(
    model: str, sha256: str, statement: str | None, wanted: tuple[str, str]
) -> None:
    record = CheckpointRecord("my.pt", sha256)
    adapter: Any = SimpleNamespace(weights="published", weights_source="", checkpoint=record, text_checkpoint=None)
    ModelSource(model, statement=statement)._find_source(adapter)
    assert (adapter.weights, adapter.weights_source) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("pytorch_model.bin", ("published", "a.pt and b.bin, by their sha256")), ("", ("own", ""))]
)
def test_both_files_of_a_model_must_be_known(text: str, wanted: tuple[str, str]) -> None:
    known = PUBLISHED["biovil_t"].sha256
    records = CheckpointRecord("a.pt", next(iter(known.values()))), CheckpointRecord("b.bin", known.get(text, "0" * 64))
    adapter: Any = SimpleNamespace(weights="published", weights_source="", checkpoint=records[0])
    adapter.text_checkpoint = records[1]
    ModelSource("biovil_t")._find_source(adapter)
    assert (adapter.weights, adapter.weights_source) == wanted


@pytest.mark.parametrize("weights", ["stand-in", "demo"])
def test_other_weights_stay_what_they_are(weights: str) -> None:
    adapter: Any = SimpleNamespace(weights=weights, weights_source="", checkpoint=None)
    ModelSource("clip", statement="somewhere")._find_source(adapter)
    assert (adapter.weights, adapter.weights_source) == (weights, "")


def test_a_statement_needs_a_checkpoint_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (("--weights", "stand-in", "--source", "x"), ("--checkpoint", "f.pt", "--source", " ")):
        assert main(["--model", "clip", "--out", "bundles", *options]) == 2
        assert "--source says in words where the file" in capsys.readouterr().err
    assert main(["--model", "all", "--out", "b", "--weights", "stand-in", "--source", "x"]) == 2
    assert "--source is about one file" in capsys.readouterr().err


def test_a_manifest_without_a_source_reads_and_writes_as_before() -> None:
    assert "weights_source" in Manifest.__dataclass_fields__ and Manifest.weights_source == ""
