"""The largest batch that bundle.json states bounds what every engine and plan gives the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SIZE, BlockEngine, make_bundle, model, prompt_set
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import BundleError
from xbench_fast.engines.plans.key import Profile

PIXELS = np.random.default_rng(5).integers(0, 256, (19, 1, SIZE, SIZE), dtype=np.uint8)
TEXT = prompt_set().features


@pytest.mark.parametrize(
    ("largest", "asked", "calls", "bound"), [(8, 16, [8, 8, 3], 8), (32, 16, [19], 16), (None, 16, [19], 16)]
)
def test_an_engine_gets_no_more_images_at_once(
    tmp_path: Path, largest: int | None, asked: int, calls: list[int], bound: int
) -> None:
    said: list[str] = []
    bundle = make_bundle(tmp_path / "blocks-32", largest_batch=largest)
    with BlockEngine(bundle, options=EngineOptions(max_batch=asked, say=said.append)) as engine:
        scores = engine.run(PIXELS, TEXT)
    logits, saliency = model(PIXELS, TEXT)
    np.testing.assert_array_equal(scores.saliency, saliency)
    np.testing.assert_array_equal(scores.logits, logits)
    assert engine.calls == calls and engine.options.max_batch == bound
    assert said == (
        ["blocks-32: batches of at most 8 images instead of 16, the largest that its bundle.json states as compared"]
        if bound < asked
        else []
    )
    assert Profile.of(bundle, asked).batch == (1, bound, bound)


def test_the_key_is_written_where_it_is_known_and_read_back(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "plain-32")
    assert "largest_batch" not in json.loads((bundle.path / "bundle.json").read_text())
    assert Bundle.load(bundle.path).manifest.largest_batch is None
    bundle = make_bundle(tmp_path / "few-32", largest_batch=8)
    assert Bundle.load(bundle.path).manifest.largest_batch == 8
    data = json.loads((bundle.path / "bundle.json").read_text())
    del data["checksum"]
    wrong: Any
    for wrong in (0, 1, 2.5, "8", True):
        (bundle.path / "bundle.json").write_text(json.dumps({**data, "largest_batch": wrong}))
        with pytest.raises(BundleError, match="largest_batch"):
            Bundle.load(bundle.path)
