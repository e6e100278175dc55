"""Files that users may have kept from version b0ab629: its run directory and bundle are read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from xbench_fast.engines.errors import ImageError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest_json import parse_manifest
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.cache.store_layout import store_folder
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.results.cell_key import digest_of
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.stored_maps import load_maps

GOLDEN = Path(__file__).parents[2] / "golden"
CELL = "kad-demo--chestxdet10"
SMALL = Geometry("squash", 16, 16, "bilinear")


def test_the_rows_of_a_run_are_read_under_their_new_names() -> None:
    run = load_run(GOLDEN / "run")
    assert len(run.finished) == 4 and not run.unfinished
    for model, dataset in run.finished:
        cell = run.cell(model, dataset)
        stored = pq.read_table(GOLDEN / "run" / str(cell.entry["file"]))
        pairs = stored.filter(stored["area"].is_valid())
        assert "rescued" in stored.column_names and len(pairs) == len(cell.counts)
        np.testing.assert_array_equal(cell.sub_pixel, pairs["rescued"].to_numpy())
        np.testing.assert_array_equal(cell.counts.area.tolist(), pairs["area"].to_pylist())
        assert len(load_maps(run, model, dataset)) == len(pairs)


def test_shards_are_merged(tmp_path: Path) -> None:
    document = json.loads((GOLDEN / "run" / "run.json").read_text())
    whole: dict[str, Any] = document["cells"][CELL]
    table = pq.read_table(GOLDEN / "run" / whole["file"])
    rows = len(whole["findings"])
    folders = []
    for index, (start, stop) in enumerate([(0, 24), (24, 40)], 1):
        folder = tmp_path / f"shard-{index}-of-2"
        (folder / "cells").mkdir(parents=True)
        ingredients = {**whole["ingredients"], "shard": f"{index}/2"}
        shard = {"index": index, "of": 2, "cases": [start, stop, 40]}
        counts = {"cases": stop - start, "missing": 0, "unreadable": 0, "shard": shard}
        entry = {
            **whole,
            **counts,
            "ingredients": ingredients,
            "key": digest_of(ingredients),
            "file": "cells/a.parquet",
        }
        footer = {"xbench_cell_key": entry["key"], "xbench_result_version": "2"}
        part = table.slice(start * rows, (stop - start) * rows).replace_schema_metadata(footer)
        pq.write_table(part, folder / entry["file"])
        config = {**document["config"], "shard": f"{index}/2"}
        (folder / "run.json").write_text(json.dumps({**document, "config": config, "cells": {CELL: entry}}))
        folders.append(folder)
    outcome = merge_shards(folders, tmp_path / "merged", lambda line: None)
    assert (outcome.computed, outcome.failed) == (1, [])
    merged = load_run(tmp_path / "merged").cell("kad-demo", "chestxdet10")
    before = load_run(GOLDEN / "run").cell("kad-demo", "chestxdet10")
    np.testing.assert_array_equal(merged.counts.overlap, before.counts.overlap)
    np.testing.assert_array_equal(merged.sub_pixel, before.sub_pixel)
    assert pq.read_schema(tmp_path / "merged" / str(merged.entry["file"])).names.count("sub_pixel") == 1


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, list[Case]]:
    """A cache that holds the kept store as if it had been made here, and its cases."""
    home = GOLDEN / "prepared"
    shutil.copytree(home / "images", tmp_path / "images")
    cases = [Case(f"c{n}", tmp_path / "images" / f"{n}.png", {}, {}, "all") for n in range(5)]
    for number, case in enumerate(cases[:4]):
        os.utime(case.image, (1_700_000_000 + number,) * 2)
    # The name of a store holds the paths of its images and the versions of the packages that decode them.
    folder, about = store_folder(tmp_path / "cache", "demo", cases, SMALL)
    folder.mkdir(parents=True)
    for name in ("pixels.bin", "records.bin", "reasons.jsonl"):
        shutil.copy(home / name, folder / name)
    index = json.loads((home / "index.json").read_text())
    assert set(about) < set(index["meaning"])
    (folder / "index.json").write_text(json.dumps({**index, "meaning": {**index["meaning"], **about}}))
    return tmp_path / "cache", cases


def test_prepared_images_are_made_again_with_equal_pixels(kept: tuple[Path, list[Case]]) -> None:
    """A store of that version has no checksums and no hashes of its image files, so it is begun again."""
    root, cases = kept
    pixels = np.fromfile(GOLDEN / "prepared" / "pixels.bin", np.uint8).reshape(5, 16, 16)
    with PreparedStore.open(root, "demo", cases, SMALL) as store:
        assert all(store.get(number) is None for number in range(5))
        for number in range(3):
            found, height, width = store.load(number)
            np.testing.assert_array_equal(found, pixels[number])
            assert (height, width) == (40, 48 - number) and found.any()
        with pytest.raises(ImageError):
            store.load(3)
        with pytest.raises(FileNotFoundError):
            store.load(4)


def test_a_bundle_is_read() -> None:
    manifest = parse_manifest((GOLDEN / "bundle" / "bundle.json").read_bytes(), "kad-demo")
    assert (manifest.model, manifest.weights, manifest.precision) == ("kad", "demo", "fp32")
    assert set(manifest.graphs) == {"image", "text"} and {"chestxdet10", "phantoms"} <= set(manifest.prompt_sets)
    written = json.loads(manifest.dump())
    assert written.pop("checksum") and written == json.loads((GOLDEN / "bundle" / "bundle.json").read_text())
