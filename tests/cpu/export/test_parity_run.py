"""What the parity check of an export runs: every different set of queries, once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
from xbench_fast.engines.tokenizing import HashTokenizer
from xbench_fast.export.parity.compare_graphs import check_parity


def test_sets_that_ask_the_same_queries_are_run_once(kad_demo: Any) -> None:
    """In whatever order; a set of other queries, or of some of them, is another set."""
    random = np.random.default_rng(4)
    book, other = (random.standard_normal((5, 64), dtype=np.float32) for _ in range(2))
    sets = {"a": book, "b": book[::-1].copy(), "c": book[:4], "d": other, "e": book.copy()}
    report = check_parity(kad_demo.adapter, HashTokenizer(128, 64), kad_demo.folder, sets, batches=(1, 3))
    assert report
    runs = [check.findings for check in report.checks if check.output == "saliency" and check.batch == 1]
    assert (runs.count(5), runs.count(4)) == (2, 1)
    slots = {(c.batch, c.slot) for c in report.checks if c.compares == "same picture, first run"}
    assert {(3, 0), (3, 1), (3, 2)} <= slots


def test_a_set_the_graph_answers_otherwise_is_found(kad_demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only sets of four queries go wrong here."""
    adapter = kad_demo.adapter
    right = type(adapter).forward

    def wrong(self: Any, image: Any, text: Any) -> Any:
        logits, saliency = right(self, image, text)
        return (logits + 1.0 if len(text) == 4 else logits), saliency

    monkeypatch.setattr(type(adapter), "forward", wrong)
    features = np.random.default_rng(4).standard_normal((5, 64), dtype=np.float32)
    sets = {"five": features, "four": features[:4]}
    report = check_parity(adapter, HashTokenizer(128, 64), kad_demo.folder, sets, batches=(1,))
    assert {(check.output, check.findings) for check in report.checks if not check} == {("logits", 4)}
