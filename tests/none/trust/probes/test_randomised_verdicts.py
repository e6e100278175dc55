"""Rows of randomised models, made by hand -> verdicts; and what is void."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from xbench_fast.engines.select import BackendStatus
from xbench_fast.metrics_gpu.trust.verdicts import Criterion
from xbench_fast.runtime.trust.probes import probe_rows as cells
from xbench_fast.runtime.trust.probes.directory import rows_as_table
from xbench_fast.runtime.trust.probes.faithful import DeletionProbe
from xbench_fast.runtime.trust.probes.judging import as_text, judged, verdict_table
from xbench_fast.runtime.trust.probes.probe import Judgement, ProbeOptions, Question
from xbench_fast.runtime.trust.probes.randomisation import RANDOM_PAIRS, RandomisationProbe, pairs_of_patients
from xbench_fast.runtime.trust.probes.randomised import GraphLayer
from xbench_fast.runtime.trust.probes.randomised_verdicts import COLUMNS, judge_randomised
from xbench_fast.runtime.trust.probes.stable import RepeatProbe, StabilityProbe

LAYERS = [GraphLayer(("a", "b"), True, True), GraphLayer(("c",), False, True), GraphLayer(("d",), True, False)]
PATIENTS = 12


def row(place: int, **facts: Any) -> dict[str, Any]:
    finding = "Mass" if place < PATIENTS else "Disc"
    base = {"case_id": f"c{place}", "patient_id": f"p{place % PATIENTS}", "finding": finding, "status": "ok"}
    return {**base, "degenerate": False, **facts}


def rows(final: float = 0.1, middle: float = 0.9, pairs: int = PATIENTS) -> list[dict[str, Any]]:
    """Two seeds and two steps: the second seed is 0.2 above the first."""
    made = [row(at, mode="trained", step=0, roc_auc=0.95, average_precision=0.5) for at in range(pairs)]
    made += [row(at, mode="two patients", other_case="x", spearman=0.6, ssim=0.8) for at in range(pairs)]
    for seed in (0, 1):
        for step, value in ((1, middle), (2, final)):
            facts = {"spearman": value + 0.2 * seed, "ssim": value + 0.2 * seed, "roc_auc": 0.5 + 0.1 * seed}
            made += [row(at, mode="cascade", seed=seed, step=step, layers=step, **facts) for at in range(pairs)]
    return made


def judge(made: list[dict[str, Any]]) -> Judgement:
    return judge_randomised(rows_as_table(COLUMNS, made, "key"), LAYERS)


def test_values_are_means_over_the_seeds_minus_two_patients() -> None:
    found = judge(rows())
    values = {question.key: question.values for question in found.questions}
    assert values["randomisation_spearman"] == pytest.approx(np.full(PATIENTS, 0.2 - 0.6))
    assert values["randomisation_ssim"] == pytest.approx(np.full(PATIENTS, 0.2 - 0.8))
    assert values["randomisation_roc_auc"] == pytest.approx(np.full(PATIENTS, 0.95 - 0.55))
    assert found.facts["below_two_patients"] == {"spearman": 2, "ssim": 2}
    assert found.facts["two_patients"] == pytest.approx({"pairs": PATIENTS, "spearman": 0.6, "ssim": 0.8})
    assert [found.facts[name] for name in ("layers", "layers_of_the_map", "layers_of_the_score_only")] == [3, 2, 1]
    assert found.notes[0] == "1 of 3 layers decide the score but not the map"
    assert "seeds 0, 1: Spearman 0.10, 0.30 (two patients 0.60)" in found.notes[1]
    assert "Spearman after step 2 of 2, SSIM after step 2 of 2" in found.notes[2]
    assert [record["word"] for record in judged(found.questions)] == ["pass"] * 3


def test_a_map_that_stays_fails() -> None:
    found = judge(rows(final=0.6, middle=0.6))
    assert [record["word"] for record in judged(found.questions)] == ["fail", "pass", "pass"]
    assert found.facts["below_two_patients"] == {"spearman": None, "ssim": 1}, "0.7 on average"


def test_a_step_as_alike_as_two_patients_is_not_below_them() -> None:
    made = rows()
    for each in made:
        if each["mode"] == "two patients":
            each["spearman"] = 0.75
        elif each["mode"] == "cascade":
            each["spearman"] = 0.5 + 0.5 * each["seed"]
    assert judge(made).facts["below_two_patients"]["spearman"] is None


def test_findings_have_equal_weight_and_their_own_two_patients() -> None:
    made = rows(pairs=PATIENTS + 2)
    for each in made:
        if each["mode"] == "two patients" and each["finding"] == "Disc":
            each["spearman"] = 0.0
    (spearman, *_) = judge(made).questions
    assert spearman.values[-1] == pytest.approx(0.2) and spearman.values[0] == pytest.approx(-0.4)
    assert judge(made).facts["two_patients"]["spearman"] == pytest.approx(0.3)
    assert judged([spearman])[0]["value"] == pytest.approx(-0.1)


def test_degenerate_maps_are_counted_and_many_void_the_test() -> None:
    def flawed(count: int) -> Judgement:
        made = rows()
        for each in made:
            if (
                each["mode"] == "cascade"
                and each["step"] == 2
                and each["seed"] == 1
                and int(each["case_id"][1:]) < count
            ):
                each |= {"spearman": float("nan"), "ssim": None, "degenerate": True}
        return judge(made)

    one = flawed(1)
    assert one.questions[0].left_out["a map is degenerate"] == 1 and np.isnan(one.questions[0].values[0])
    assert one.facts["steps"][-1]["degenerate"] == 1 and one.facts["steps"][-1]["spearman"] == pytest.approx(0.3)
    records = judged(one.questions)
    assert [record["verdict"] for record in records] == ["void (1 of 12 maps are degenerate)"] * 3
    everything = judged(flawed(PATIENTS).questions)
    assert [record["word"] for record in everything] == ["void"] * 3 and everything[0]["value"] is None
    assert everything[0]["pairs"] == PATIENTS
    below = flawed(PATIENTS).facts["below_two_patients"]
    assert below == {"spearman": None, "ssim": None}, "a step that one seed has no value of has no mean over the seeds"


def test_one_patient_alone_has_no_two_patients() -> None:
    made = [each for each in rows() if each["mode"] != "two patients"]
    (spearman, _, area) = judge(made).questions
    assert spearman.left_out["no second patient has the finding"] == PATIENTS
    assert [record["word"] for record in judged([spearman, area])] == ["cannot tell", "pass"]


def test_without_a_readable_image_there_is_no_question() -> None:
    found = judge([])
    assert not found.questions and found.facts["layers"] == 3 and len(found.notes) == 1


def test_fewer_than_ten_patients_tell_nothing_and_the_table_says_so() -> None:
    found = judge(rows(pairs=9))
    entry = {"model": "m", "dataset": "d", "questions": judged(found.questions), "notes": list(found.notes)}
    text = as_text([verdict_table([entry], "Trust", ("m: a stamp",))])
    assert text.count("cannot tell (9 patients)") == 3 and "m: a stamp" in text
    assert "m on d: 1 of 3 layers decide the score but not the map" in text


def test_a_question_of_degenerate_maps_below_the_limit_is_no_void() -> None:
    flags = np.zeros(40, np.bool_)
    flags[:2] = True
    names = [f"p{at}" for at in range(40)]
    values = np.linspace(0.2, 0.4, 40)
    pairs = pd.DataFrame({"finding": "Mass", "patient_id": names, "degenerate": flags})
    question = Question("k", "t", 4, pairs, values, Criterion(0.05))
    assert judged([question])[0]["word"] == "pass"


def test_two_patients_are_drawn_once_each_and_by_the_seed() -> None:
    many = [{"case_id": f"c{at}", "patient_id": f"p{at // 2}", "finding": "Mass"} for at in range(30)]
    few = [{"case_id": f"d{at}", "patient_id": f"p{at // 2}", "finding": "Disc"} for at in range(4)]
    mine, others = pairs_of_patients([*many, *few], 0)
    pairs = [frozenset(pair) for pair in zip(mine.tolist(), others.tolist(), strict=True)]
    assert len(pairs) == len(set(pairs)) == RANDOM_PAIRS + 4, "of Disc all pairs of two patients"
    all_rows = [*many, *few]
    for one, two in pairs:
        assert all_rows[one]["patient_id"] != all_rows[two]["patient_id"]
        assert all_rows[one]["finding"] == all_rows[two]["finding"]
    again = pairs_of_patients([*many, *few], 1)[0]
    assert not np.array_equal(again, mine) and len(again) == len(mine)
    assert all(len(ends) == 0 for ends in pairs_of_patients(few[:1], 0))


@pytest.mark.parametrize(
    ("cuda", "engine", "wanted"),
    [
        (True, "tensorrt", "onnxruntime-cuda"),
        (False, "tensorrt-rtx", "onnxruntime-cpu"),
        (False, "onnxruntime-cuda", "onnxruntime-cuda"),
        (True, "synthetic:BlockEngine", "synthetic:BlockEngine"),
    ],
)
def test_changed_weights_run_on_onnx_runtime(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, engine: str, wanted: str
) -> None:
    known = [BackendStatus("tensorrt", True, ""), BackendStatus("onnxruntime-cuda", cuda, "")]
    monkeypatch.setattr(cells, "backend_status", lambda: known)
    assert cells.engine_for(RandomisationProbe(ProbeOptions()), engine, (14, 14), 1, 64, 1) == (wanted, False)


@pytest.mark.parametrize(
    ("probe", "threads", "batch", "engine", "apart"),
    [
        (DeletionProbe, 2, 64, "onnxruntime-cpu", True),
        (DeletionProbe, 16, 64, "onnxruntime-cpu", True),
        (DeletionProbe, 17, 64, "onnxruntime-cpu", False),
        (DeletionProbe, 2, 7, "onnxruntime-cpu", False),
        (DeletionProbe, 2, 64, "onnxruntime-cuda", False),
        (RandomisationProbe, 5, 64, "onnxruntime-cpu", True),
        (RandomisationProbe, 6, 64, "onnxruntime-cpu", False),
        (StabilityProbe, 2, 64, "onnxruntime-cpu", True),
        (StabilityProbe, 4, 64, "onnxruntime-cpu", False),
        (RepeatProbe, 1, 64, "onnxruntime-cpu", False),
    ],
)
def test_threads_compute_images_of_their_own_where_a_probe_asks_about_enough(
    probe: Any, threads: int, batch: int, engine: str, apart: bool
) -> None:
    made = probe(ProbeOptions())
    assert cells.engine_for(made, engine, (14, 14), 20, batch, threads) == (engine, apart)
