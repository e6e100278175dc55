"""Published scorers of boxes give what their authors' code gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from box_files import made, read
from xbench_fast.metrics_gpu.detection.boxes import Answers, BoxLists
from xbench_fast.metrics_gpu.detection.overlaps import overlaps
from xbench_fast.metrics_gpu.detection.published.scorer import Values
from xbench_fast.runtime.host.protocols import SCORERS

KEYS = {"rec": "acc50"}
FILES = (
    "duplicates", "half_missing", "half_silent", "jitter", "largest_only", "mirrored", "negatives", "perfect", "scored",
    "several", "swapped_xy", "whole",
)  # fmt: skip


def scored(name: str, answers: Answers) -> Values:
    return SCORERS[name].compute(answers, overlaps(answers.given, answers.truth))


def flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_number_is_that_of_the_authors_code(reference_files: Path, name: str) -> None:
    files = json.loads((reference_files / "boxes/expected.json").read_text())["files"]
    answers = read(reference_files, name)
    met = set()
    for published, values in files[name].items():
        key = KEYS.get(published, published)
        if key not in SCORERS:
            assert published in ("tide", "torchmetrics")
            continue
        found = scored(key, answers)
        wanted = {path: value for path, value in flat(values).items() if not isinstance(value, str)}
        within = 1e-5 if published == "chex" else 1e-6
        assert {path: found.get(path) for path in wanted} == pytest.approx(wanted, abs=within), published
        met.add(key)
    assert len(met) >= 7


def test_files_that_must_be_equal_are(reference_files: Path) -> None:
    for one, other in (("half_missing", "half_silent"), ("negatives", "perfect")):
        for name in SCORERS:
            if other == "perfect" and name in ("rodeo", "coco"):
                continue  # these two count boxes of absent classes
            assert scored(name, read(reference_files, one)) == scored(name, read(reference_files, other)), name


def test_every_scorer_has_a_note_a_source_and_its_main_number() -> None:
    answers = made([[[0, 0, 10, 10]], []], [[[0, 0, 10, 10]], [[5, 5, 20, 20]]], scores=[[0.5], []])
    for name, scorer in SCORERS.items():
        assert scorer.name == name
        assert (scorer.note.endswith(".") and "@" in scorer.source) or name in ("coco", "grid_hit")
        assert scorer.main in scored(name, answers)


def test_a_cell_hits_if_half_of_it_is_region() -> None:
    """Cells of 10 x 10 pixels; two true boxes that overlap count once, and cells after the first do not count."""
    cell, far = [0, 0, 10, 10], [50, 50, 60, 60]
    truth = [
        [[0, 0, 10, 5]],
        [[0, 0, 10, 4]],
        [[0, 0, 10, 3], [0, 0, 10, 4]],
        [[0, 0, 10, 3], [0, 2, 10, 5]],
        [cell],
        [cell],
    ]
    answers = made([[cell], [cell], [cell], [cell, far], [far, cell], []], truth)
    assert scored("grid_hit", answers)["hit_rate"] == pytest.approx(2 / 6) and scored("grid_hit", answers)["n"] == 6


def test_nobody_speaks() -> None:
    answers = made([[], []], [[[0, 0, 10, 10]], [[5, 5, 20, 20]]])
    assert scored("radvlm", answers) == {"avg_iou": None, "mAP_0.1": 0.0, "mAP_0.25": 0.0, "mAP_0.5": 0.0}
    assert scored("chexagent", answers) == {"mean_iou": None, "mean_iou_sorted": None}
    assert scored("afloc", answers)["iou_classes"] is None
    assert scored("radfact", answers)["spatial_precision"] is None
    assert scored("rodeo", answers)["total"] == 0.0
    assert scored("coco", answers)["AP"] == 0.0
    assert scored("acc50", answers)["pairs_with_one_box.acc_0.5"] == 0.0


def test_no_pair_at_all() -> None:
    for name in SCORERS:
        found = scored(name, made([], []))
        assert all(value is None or value == 0.0 or np.isnan(value) for value in found.values()), name


def test_chexagent_scores_a_silent_pair_with_the_last_answer_and_needs_a_first_one() -> None:
    box, other = [0, 0, 50, 50], [50, 50, 100, 100]
    assert scored("chexagent", made([[box], []], [[box], [box]]))["mean_iou"] == 1.0
    assert scored("chexagent", made([[box], []], [[box], [other]]))["mean_iou"] == 0.5
    assert scored("chexagent", made([[], [box]], [[box], [box]]))["mean_iou"] is None
    # The first box against the leftmost true one; sorted, both are the leftmost.
    found = scored("chexagent", made([[other, box]], [[other, box]]))
    assert (found["mean_iou"], found["mean_iou_sorted"]) == (0.0, 1.0)


def test_radvlm_gives_no_second_choice_and_averages_over_all_combinations() -> None:
    true = [[[0, 0, 10, 10], [6, 0, 16, 10]]]
    found = scored("radvlm", made([[[0, 0, 10, 10], [1, 0, 11, 10]]], true))
    assert found["mAP_0.5"] == 0.5
    perfect = scored("radvlm", made([[[0, 0, 10, 10], [60, 0, 70, 10]]], [[[0, 0, 10, 10], [60, 0, 70, 10]]]))
    assert perfect["avg_iou"] == 0.5


def test_radfact_needs_more_than_half_and_loses_thin_boxes() -> None:
    true = [[[0, 0, 50, 100]]]
    half = scored("radfact", made([[[0, 0, 100, 100]]], true))
    assert (half["spatial_precision"], half["spatial_recall"]) == (0.0, 1.0)
    thin = scored("radfact_boxes", made([[[0.1, 0, 0.4, 100]]], true))
    assert thin["precision"] is None and thin["precision_is_nan"] == 1.0 and thin["iou"] == 0.0


def test_afloc_pads_the_shorter_side_of_a_tall_and_of_a_wide_image() -> None:
    for size, box in (((100, 200), [0, 0, 100, 100]), ((200, 100), [0, 0, 100, 100])):
        assert scored("afloc", made([[box]], [[box]], size))["iou_classes"] == 1.0
    # Of a tall image 56 columns are padding on the left: 0.9 of 224 / 200 pixels fall below the first whole one.
    assert scored("afloc", made([[[0, 0, 0.8, 200]]], [[[0, 0, 100, 200]]], (100, 200)))["pairs_left_out"] == 1.0


def test_acc50_takes_the_surest_box() -> None:
    true, far = [[[0, 0, 10, 10]]], [50, 50, 60, 60]
    first = made([[far, [0, 0, 10, 10]]], true)
    surest = made([[far, [0, 0, 10, 10]]], true, scores=[[0.1, 0.9]])
    key = "pairs_with_one_box.acc_0.5"
    assert (scored("acc50", first)[key], scored("acc50", surest)[key]) == (0.0, 1.0)


def test_rodeo_counts_boxes_of_absent_classes() -> None:
    answers = made([[[0, 0, 10, 10]], []], [[[0, 0, 10, 10]], [[5, 5, 20, 20]]])
    one = np.ones(1, np.int64)
    more = replace(
        answers, negatives=BoxLists.of([[[0, 0, 5, 5]]]), negative_class=one, negative_case=one * 0,
        tried=np.array([True]),
    )  # fmt: skip
    assert scored("rodeo", more)["localization"] == pytest.approx(1 / 3)
    assert scored("rodeo", answers)["localization"] == pytest.approx(1 / 2)


def test_chex_leaves_average_precision_out_where_scores_tie() -> None:
    true = [[[0, 0, 10, 10]], [[5, 5, 20, 20]]]
    tied = made([[[0, 0, 10, 10]], [[5, 5, 20, 20]]], true, scores=[[0.9], [0.9]])
    apart = made([[[0, 0, 10, 10]], [[5, 5, 20, 20]]], true, scores=[[0.9], [0.2]])
    assert scored("chex", tied)["mAP"] is None
    assert scored("chex", apart)["mAP"] == 1.0
    assert scored("chex", apart)["IoU"] < 1.0  # the second box is not above 0.3


def test_scaling_changes_no_published_number_and_order_of_boxes_only_some(reference_files: Path) -> None:
    answers = read(reference_files, "several")
    double = replace(
        answers,
        given=BoxLists(answers.given.boxes * 2, answers.given.offsets),
        truth=BoxLists(answers.truth.boxes * 2, answers.truth.offsets),
        sizes=answers.sizes * 2,
    )
    for name in SCORERS:
        assert scored(name, double) == pytest.approx(scored(name, answers), abs=1e-12, nan_ok=True), name
    rows = np.lexsort((-np.arange(len(answers.given.boxes)), answers.given.owner))
    turned = replace(answers, given=BoxLists(answers.given.boxes[rows], answers.given.offsets))
    for name in ("radfact", "radfact_boxes", "afloc", "chex", "rodeo"):
        assert scored(name, turned) == pytest.approx(scored(name, answers), abs=1e-12), name
    assert scored("chexagent", turned) != scored("chexagent", answers)


def test_the_documentation_has_every_note(root: Path) -> None:
    page = (root / "docs/detection.md").read_text(encoding="utf-8")
    for scorer in SCORERS.values():
        assert f"| `{scorer.name}` | {scorer.source} | {scorer.note} |" in page
