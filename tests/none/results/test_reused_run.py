"""A run in which nothing changed leaves its file, whatever the time is."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_counts import add_cell, random_rows
from ticking import tick
from xbench_fast.runtime.results.run_directory import LockedFolder, RunDirectory
from xbench_fast.runtime.results.run_json import read_run
from xbench_fast.runtime.trust.probes.directory import TrustDirectory


@pytest.mark.parametrize("kind", [RunDirectory, TrustDirectory])
def test_the_file_changes_with_its_content_alone(
    kind: type[LockedFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick(monkeypatch.setattr)
    path = tmp_path / "folder"
    config = {"threads": 1, "bundles": ("one", "two")}
    with kind(path) as made:
        made.begin(config)
    before = (path / kind.file).read_bytes()
    for again in (config, {**config, "bundles": ["one", "two"]}):
        with kind(path) as made:
            made.begin(again)
        assert (path / kind.file).read_bytes() == before
    with kind(path) as made:
        made.begin({**config, "threads": 2})
    assert (path / kind.file).read_bytes() != before


def test_later_cells_keep_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick(monkeypatch.setattr)
    path = tmp_path / "run"
    for model, rows in (("kad", random_rows(1)), ("clip", random_rows(2))):
        with RunDirectory(path) as made:
            made.begin({})
            add_cell(made, model, "one", rows)
    run = read_run(path)
    times = [run["created"], *(run["cells"][f"{model}--one"]["updated"] for model in ("kad", "clip")), run["updated"]]
    assert times == sorted(times) and len(set(times)) == 4 and run["seeds"] == []
