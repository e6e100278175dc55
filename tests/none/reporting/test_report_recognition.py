"""Recognition in a report: stored scores -> numbers, checked against scikit-learn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from stored_counts import add_cell, random_rows
from written_report import report, rows_of, texts
from xbench_fast.runtime.reporting.tables.metric_names import percent
from xbench_fast.runtime.reporting.tables.table import cell_of
from xbench_fast.runtime.results.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1))
        add_cell(made, "kad", "two", random_rows(2))
        add_cell(made, "clip", "one", random_rows(1, negative=True), "stand-in", 30)
    return tmp_path / "run"


def test_recognition_equals_scikit_learn(run: Path) -> None:
    data, tables, _ = report(run)
    for cell, seed in zip(data["cells"], (1, 2, 1), strict=True):
        negative = cell["model"] == "clip"
        for index, found in enumerate(cell["recognition"]["classes"]):
            rows = [r for r in random_rows(seed, negative=negative) if r.finding == found["name"] and r.status == "ok"]
            rows = [row for row in rows if row.label is not None]
            labels, logits = [row.label for row in rows], [float(row.logit or 0) for row in rows]
            said = [1 / (1 + math.exp(-value)) >= 0.5 for value in logits]
            assert (found["n"], found["positives"]) == (len(rows), sum(labels))
            if found["name"] == "Edema":
                assert found["auc"] is None and found["auprc"] is None and found["f1"] == 0
            else:
                assert found["auc"] == pytest.approx(roc_auc_score(labels, logits))
                assert found["auprc"] == pytest.approx(average_precision_score(labels, logits))
            assert found["f1"] == pytest.approx(f1_score(labels, said, zero_division=0))
            assert found["accuracy"] == pytest.approx(accuracy_score(labels, said))
            pair = [value >= float(row.logit_negative or 0) for value, row in zip(logits, rows, strict=True)]
            if negative:
                assert cell["pair"]["classes"][index]["f1"] == pytest.approx(f1_score(labels, pair, zero_division=0))
                assert cell["pair"]["classes"][index]["accuracy"] == pytest.approx(accuracy_score(labels, pair))
            else:
                assert cell["pair"]["classes"] == []
    table = tables["Recognition"]
    assert [row[-2:] for row in table.rows] == [("Edema", "Edema")] * 3
    cell = data["cells"][0]
    place = [column.title for column in table.columns].index
    assert cell_of(table.rows[0][place("AUC")]).text == percent(
        np.mean([item["auc"] for item in cell["recognition"]["classes"][:2]])
    )
    cells = cell["recognition"]["classes"]
    hamming = sum(item["accuracy"] * item["n"] for item in cells) / sum(item["n"] for item in cells)
    assert float(cell_of(table.rows[0][place("accuracy")]).text) == pytest.approx(100 * hamming, abs=0.0051)
    # clip has two prompts everywhere and stands below kad of the same dataset
    assert [texts(row)[:2] for row in table.rows] == [("kad", "The one"), ("clip", "The one"), ("kad", "The two")]
    assert [cell_of(row[place("pair F1")]).text == "-" for row in table.rows] == [True, False, True]
    auc = tables["The one: AUC per class"]
    assert [column.title for column in auc.columns] == ["model", "Mean", "Mass", "Effusion"]
    assert rows_of(auc)["kad"][1] == percent(data["cells"][0]["recognition"]["classes"][0]["auc"])
