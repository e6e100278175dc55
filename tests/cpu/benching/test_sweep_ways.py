"""What the sweep is compared with counts exactly as the naive loop does, so that a ratio compares equal work."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_sweep import TAUS, naive_counts, random_masks

NAMES = ["logical loop", "count_nonzero loop", "sort, searchsorted", "bincount", "torch.histc", "Numba loop"]


@pytest.fixture
def bench(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module("sweep")


@pytest.mark.parametrize("name", NAMES)
def test_every_way_equals_the_naive_loop(bench: Any, name: str) -> None:
    rng = np.random.default_rng(3)
    grids, masks = bench.workload(2, 96)
    for grid, mask in zip(grids, masks, strict=True):
        area, overlap = naive_counts(grid, mask)[:2]
        found = bench.WAYS[name](bench.finished_map(grid, 96), mask)
        assert found[0].tolist() == overlap and found[1].tolist() == area
    steps = rng.choice(np.float32([-9, 0, 9]), (64, 96))  # on the thresholds, and the next values below and above
    edges = rng.choice(np.float32(TAUS), (64, 96))
    edges = np.where(steps == 0, edges, np.nextafter(edges, steps)).clip(0, 1)
    (mask,) = random_masks(rng, 1, 64, 96)
    found = bench.WAYS[name](edges, mask)
    assert found[0].tolist() == [int(((edges >= tau) & mask).sum()) for tau in TAUS]
    assert found[1].tolist() == [int((edges >= tau).sum()) for tau in TAUS]
    assert list(bench.WAYS) == NAMES


def test_the_page_quotes_the_loop_and_the_best_of_the_rest(root: Path) -> None:
    record = json.loads((root / "benchmarks" / "results" / "sweep-cpu.json").read_text(encoding="utf-8"))
    ratios = {name: way["sweep_times_faster"] for name, way in record["us_per_pair"].items()}
    best = min(NAMES[1:], key=lambda name: ratios[name])
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    quoted = {words: float(number) for words, number in re.findall(r"^\| sweep.*?\| ([^|]+) \| ([\d.]+) ×", text, re.M)}
    loop, rest = (next(value for words, value in quoted.items() if word in words) for word in ("logical_and", "best"))
    assert loop == round(ratios["logical loop"]) and rest == ratios[best] and best == "Numba loop"
    assert f"bincount {ratios['bincount']} ×" in text and f"count_nonzero {ratios['count_nonzero loop']} ×" in text
