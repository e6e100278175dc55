"""A bundle of a library's model without a comparison of its texts: it runs, and every table says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World
from synthetic import TEXT, make_bundle, make_dataset
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.tables.stamps import cell_stamps
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results

LINE = "blocks-32: texts were not compared with the tokenizer of the model's own library; export the bundle again"
FOLDER = {"kind": "tokenizer.json", "source": "x", "vocabulary_size": 9}
CLIP = {"kind": "clip-bpe", "source": "open_clip", "vocabulary_size": 49408, "cleaning": "clip"}
IDS, MASK = (TensorSpec(name, "int64", ("texts", "tokens")) for name in ("input_ids", "attention_mask"))
PLAIN, MASKED = (dataclasses.replace(TEXT, inputs=inputs) for inputs in ((IDS,), (IDS, MASK)))


def bundle(path: Path, text: dict[str, Any], graph: GraphSpec | None = TEXT) -> Manifest:
    """A bundle whose bundle.json says this of texts."""
    made = make_bundle(path, text=True)
    graphs = {**made.manifest.graphs, **({"text": graph} if graph else {})}
    manifest = dataclasses.replace(made.manifest, text={"context": 8, **text}, graphs=graphs)
    (path / "bundle.json").write_bytes(manifest.dump())
    return Bundle.load(path).manifest


@pytest.mark.parametrize(
    ("text", "graph", "told"),
    [
        ({"tokenizer": FOLDER}, PLAIN, True),
        ({"tokenizer": {**FOLDER, "cleaning": "open_clip"}}, PLAIN, True),
        ({"tokenizer": {**FOLDER, "cleaning": "biovil"}}, MASKED, False),  # a built-in model
        ({"tokenizer": CLIP}, MASKED, True),
        ({"tokenizer": CLIP}, PLAIN, False),  # a built-in model
        ({"tokenizer": {"kind": "wordpiece"}}, MASKED, False),
        ({"tokenizer": FOLDER, "compared": {"texts": 30}}, PLAIN, False),
        ({"tokenizer": FOLDER, "compared": None}, PLAIN, False),  # the model names no library
        ({"tokenizer": "no table"}, PLAIN, False),
        ({}, PLAIN, False),
    ],
)
def test_which_bundles_are_meant(tmp_path: Path, text: dict[str, Any], graph: GraphSpec, told: bool) -> None:
    assert bundle(tmp_path / "blocks-32", text, graph).uncompared_texts is told


def test_every_table_says_it_until_the_bundle_is_exported_again(tmp_path: Path) -> None:
    """The numbers stay; a bundle with the record beside it is not named."""
    bundle(tmp_path / "blocks-32", {"tokenizer": FOLDER})
    bundle(tmp_path / "other-32", {"tokenizer": FOLDER, "compared": {"texts": 30}})
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 4), "coco")
    world = World(tmp_path)
    world.run([tmp_path / "blocks-32", tmp_path / "other-32"], [data])
    results = make_results(load_run(world.out), Choices(replicates=0))
    assert LINE in cell_stamps(results.finished)
    flags = {cell.model: cell.uncompared_texts for cell in results.finished}
    assert flags == {"blocks-32": True, "other-32": False}
