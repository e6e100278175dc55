"""run.json as a file that may hold anything: whoever reads it works, or says in a sentence what is wrong.

XBENCH_FUZZ multiplies the number of inputs (default 1).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_counts import add_cell, random_rows
from xbench_fast.engines.errors import RunError, XBenchError
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.selected_pairs import Resampling

EXAMPLES = 40 * int(os.environ.get("XBENCH_FUZZ", "1"))

scalars = st.none() | st.booleans() | st.integers(-3, 99) | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("json") / "run"
    told = {"engine": "numpy fp32", "limit": None, "dataset": ["one", "0" * 64], "prompt_set": "p"}
    with RunDirectory(path) as made:
        made.begin({"bundles": ["kad"], "datasets": {"one": {"root": "data", "reader": "coco", "options": {}}}})
        add_cell(made, "kad", "one", random_rows(1), cases=30, missing=1, unreadable=1, shard={"index": 1, "of": 2})
        add_cell(made, "clip", "one", random_rows(2), reader="coco")
        entry = made.cell("clip", "one")
        assert entry is not None
        made.set_cell(**{**entry, "ingredients": told})
        made.set_cell("toy", "one", "failed", reason="it broke")
        made.give_up("clip", "one", "failed", "it broke")
    return path


def read(path: Path, data: object) -> str:
    """The sentence that refuses `data`, empty where all that a run directory is read by works.

    Without the checksum, of which every change would be refused.
    """
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "checksum"}
    (path / "run.json").write_text(json.dumps(data))
    try:
        found = load_run(path)
        begun = set(found.finished) | (found.unfinished.keys() - found.skipped.keys())
        assert begun <= {(m, d) for m in found.models for d in found.datasets}
        assert all(isinstance(found.reader(name), str) for name in found.datasets)
        make_report(path, Choices(replicates=0))
        load_material(path, sampling=Resampling(replicates=10))
    except XBenchError as error:
        return str(error)
    return ""


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=values | st.fixed_dictionaries({"schema": st.just(1), "cells": values}))
def test_any_json(data: Any, tmp_path: Path) -> None:
    assert "run.json" in read(tmp_path, data)


def places(data: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value below `data`."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in inner for found in ((data, key), *places(value))]


@settings(max_examples=EXAMPLES)
@given(place=st.floats(0, 1, exclude_max=True), value=values | st.just(...))
def test_a_run_with_one_value_changed_or_lost(place: float, value: Any, run: Path) -> None:
    original = (run / "run.json").read_text()
    try:
        data = json.loads(original)
        found = places(data)
        container, key = found[int(place * len(found))]
        if value is ...:
            del container[key]
        else:
            container[key] = value
        read(run, data)
    finally:
        (run / "run.json").write_text(original)


def test_the_run_that_is_changed_is_whole(run: Path) -> None:
    original = (run / "run.json").read_text()
    assert read(run, json.loads(original)) == ""
    (run / "run.json").write_text(original)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.pop("config"), "Object missing required field `config`"),
        (lambda data: data.update(machine=[]), "Expected `object`, got `array` - at `$.machine`"),
        (lambda data: data["cells"].update(a=3), "the cell 'a': Expected `object`, got `int`"),
        (
            lambda data: data["cells"]["kad--one"].pop("file"),
            "the cell 'kad--one': Object missing required field `file`",
        ),
        (
            lambda data: data["cells"]["kad--one"].update(findings=[]),
            "the cell 'kad--one': Expected `array` of length >= 1 - at `$.findings`",
        ),
        (
            lambda data: data["cells"]["kad--one"].update(cases=True),
            "the cell 'kad--one': Expected `int`, got `bool` - at `$.cases`",
        ),
        (lambda data: data["cells"]["kad--one"].update(model="x"), "the cell 'kad--one': it is of x on one"),
        (lambda data: data["cells"]["kad--one"].update(title="\udc80", cases="\udc80"), "the cell 'kad--one': "),
        (
            lambda data: data["cells"]["kad--one"].update(findings=["a", "a"]),
            "the cell 'kad--one': its `findings` name",
        ),
        (lambda data: data["config"].update(bundles=[1]), "Expected `str`, got `int` - at `$.config.bundles[0]`"),
    ],
)
def test_the_sentence_says_what_is_wrong(change: Any, words: str, run: Path, tmp_path: Path) -> None:
    data = json.loads((run / "run.json").read_text())
    change(data)
    said = read(tmp_path, data)
    assert said.startswith(f"{tmp_path / 'run.json'} is damaged: {words}") and "delete that file" in said


def test_a_flipped_bit_is_named(run: Path, tmp_path: Path) -> None:
    """A bit in the checksum's name leaves a file without one, and all values as they were."""
    content = (run / "run.json").read_bytes()
    before, rng, refused = read_run(run), np.random.default_rng(7), 0
    for bit in rng.choice(8 * len(content), 100, replace=False).tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "run.json").write_bytes(flipped)
        try:
            found = read_run(tmp_path)
        except RunError as error:
            refused += 1
            assert str(tmp_path / "run.json") in str(error)
        else:
            assert {**found, **before} == found
    assert refused > 90


def test_layout_is_no_damage_and_files_without_a_checksum_are_read(run: Path, tmp_path: Path) -> None:
    data = json.loads((run / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(dict(reversed(data.items()))))
    assert read_run(tmp_path) == read_run(run)
    data["created"] = "yesterday"
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(RunError, match=r"is damaged: its checksum does not match; delete that file and run eval again"):
        read_run(tmp_path)
    del data["checksum"]
    (tmp_path / "run.json").write_text(json.dumps(data))
    assert read_run(tmp_path)["created"] == "yesterday"


def test_another_schema_and_endless_nesting(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 2, "cells": {}}')
    with pytest.raises(RunError, match="written by another version"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("[" * 100_000)
    with pytest.raises(RunError, match="delete that file"):
        read_run(tmp_path)


def test_a_folder_of_run_directories_is_told_from_an_empty_one(tmp_path: Path) -> None:
    for name in ("b", "a", "empty"):
        (tmp_path / "shards" / name).mkdir(parents=True)
    (tmp_path / "file").write_text("no folder")
    for name in ("shards", "absent", "file"):
        with pytest.raises(RunError, match="make one with xbench-fast eval --out"):
            read_run(tmp_path / name)
    for name in "ba":
        store_run(tmp_path / "shards" / name, {"schema": 1, "config": {}, "cells": {}})
    with pytest.raises(RunError) as error:
        read_run(tmp_path / "shards")
    assert str(error.value).endswith(f"name those in it: {tmp_path / 'shards/a'}, {tmp_path / 'shards/b'}.")
