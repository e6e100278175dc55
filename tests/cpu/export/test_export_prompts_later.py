"""`xbench-fast prompts encode`: a set added to a bundle later equals one that was exported with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.tokenizing import TOKENIZER_FILE, bundle_tokenizer

SETS = {
    "mine": {"Effusion": {"positive": ["pleural effusion", "fluid"], "negative": ["no fluid"]}, "Mass": ["lung mass"]},
    "other": {"Nodule": ["nodule"]},
}
BARE = (  # torch and what comes with an export cannot be imported
    "import sys\n"
    "for name in ('torch', 'torchvision', 'onnx', 'onnxscript', 'open_clip', 'transformers', 'xbench_fast.export'):\n"
    "    sys.modules[name] = None\n"
    "from xbench_fast.runtime.cli import main\n"
    "main(sys.argv[1:])\n"
)


def encode(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", BARE, "prompts", "encode", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(SETS))
    return path


def copied(exported: Any, tmp_path: Path) -> Bundle:
    shutil.copytree(exported.folder, tmp_path / "bundles" / exported.folder.name)
    return Bundle.load(tmp_path / "bundles" / exported.folder.name)


def test_a_set_added_later_is_the_one_an_export_would_have_made(exported: Any, tmp_path: Path, mine: Path) -> None:
    """Against the exported sets, which hold some of the same texts; everything else stays byte for byte."""
    before = copied(exported, tmp_path)
    built_in = before.prompt_set("vindr")
    again = {"again": {f"f{n}": [text] for n, text in enumerate(built_in.texts)}}
    (tmp_path / "again.json").write_text(json.dumps(again))
    for file in (mine, tmp_path / "again.json"):
        done = encode("--model", before.path, "--prompts", file, "--threads", 2)
        assert done.returncode == 0, done.stderr
    after = Bundle.load(before.path)
    np.testing.assert_array_equal(after.prompt_set("again").features, built_in.features)
    found = after.prompt_set("mine")
    assert found.texts == ("pleural effusion", "fluid", "no fluid", "lung mass")
    assert found.finding_of.tolist() == [0, 0, 0, 1] and found.polarity.tolist() == [1, 1, -1, 1]
    assert found.status == ("user", "user")
    assert after.digest != before.digest and set(after.manifest.prompt_sets) > {"mine", "other", "again", "rsna"}
    kept = {name: record for name, record in after.manifest.files.items() if name in before.manifest.files}
    assert kept == dict(before.manifest.files)
    assert [path.name for path in before.path.parent.iterdir()] == [before.path.name], "nothing is left behind"


def test_the_tokenizer_in_the_bundle_is_the_exports(exported: Any, pubmedbert: Path | None) -> None:
    from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer

    source = exported.result.bundle.manifest.text["tokenizer"]["source"]
    wanted = select_tokenizer(exported.adapter, pubmedbert if source == "pubmedbert" else None)
    stored = bundle_tokenizer(exported.result.bundle)
    assert stored.record == wanted.record == exported.result.bundle.manifest.text["tokenizer"]
    texts = ["Pneumonia", "a [SEP] b", "Café &amp; fluid", "", "left-sided 3.5 cm mass " * 60]
    got, want = stored(texts), wanted(texts)
    assert np.array_equal(got.ids, want.ids) and np.array_equal(got.mask, want.mask)


def test_one_set_is_taken_and_an_existing_one_kept(kad_demo: Any, tmp_path: Path, mine: Path) -> None:
    bundle = copied(kad_demo, tmp_path)
    done = encode("--model", bundle.path, "--prompts", mine, "--prompt-set", "other")
    assert done.returncode == 0 and done.stdout.startswith("other: 1 findings, 1 prompts"), done.stderr
    assert "mine" not in Bundle.load(bundle.path).manifest.prompt_sets
    again = encode("--model", bundle.path, "--prompts", mine)
    assert again.returncode == 1 and "already has a prompt set 'other'" in again.stderr
    assert encode("--model", bundle.path, "--prompts", mine, "--replace").returncode == 0
    absent = encode("--model", bundle.path, "--prompts", mine, "--prompt-set", "third")
    assert absent.returncode == 2 and "has no set 'third': " in absent.stderr
    assert "known are mine, other." in absent.stderr


def test_several_bundles_at_once(kad_demo: Any, tmp_path: Path, mine: Path) -> None:
    """All of a folder, or those named; where one cannot take the set, none is written."""
    first = copied(kad_demo, tmp_path)
    shutil.copytree(first.path, first.path.with_name("second"))
    folder = ("--bundles", first.path.parent, "--prompts", mine)
    done = encode("--all", *folder, "--prompt-set", "other")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "other: 1 findings, 1 prompts"
    assert [line.split(":")[0] for line in done.stdout.splitlines()[1:]] == [
        str(first.path),
        str(first.path.with_name("second")),
    ]
    assert encode("--model", "second", *folder, "--prompt-set", "mine").returncode == 0
    before = [Bundle.load(first.path.with_name(name)).digest for name in (first.path.name, "second")]
    refused = encode("--model", first.path, "--model", "second", *folder, "--prompt-set", "mine")
    assert refused.returncode == 1 and "second already has a prompt set 'mine'" in refused.stderr
    assert [Bundle.load(first.path.with_name(name)).digest for name in (first.path.name, "second")] == before
    for which in ((), ("--all", "--model", "second")):
        unclear = encode(*which, *folder)
        assert unclear.returncode == 2 and "Say which bundles get the prompts" in unclear.stderr


def test_a_bundle_without_its_tokenizer_is_refused(clip_b32: Any, tmp_path: Path, mine: Path) -> None:
    bundle = copied(clip_b32, tmp_path)
    document = json.loads((bundle.path / "bundle.json").read_text())
    del document["files"][TOKENIZER_FILE], document["checksum"]
    (bundle.path / TOKENIZER_FILE).unlink()
    (bundle.path / "bundle.json").write_text(json.dumps(document))
    done = encode("--model", bundle.path, "--prompts", mine)
    assert done.returncode == 1 and "carries no vocabulary" in done.stderr and "Traceback" not in done.stderr
