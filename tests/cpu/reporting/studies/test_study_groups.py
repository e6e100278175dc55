"""`xbench-fast study groups`: contrasts of groups of models by loops over the rows that were written."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from scipy import stats
from sklearn.metrics import roc_auc_score
from stored_counts import add_cell, finding_rows
from study_world import answer, mean, study
from xbench_fast.runtime.results.run_directory import RunDirectory

FINDINGS = ("Mass", "Nodule")
GROUPS = """
[groups.kind]
general = ["clip", "siglip"]
medical = ["kad", "mavl", "carzero"]

[groups.loose]
first = ["kad", "clip"]
second = ["kad", "mavl"]
alone = ["siglip"]
"""
MODELS = ("clip", "siglip", "kad", "mavl", "carzero", "other")
SIDES = ("first", "alone")
KIND = {"general": MODELS[:2], "medical": MODELS[2:5]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], list[ResultRow]]]:
    place, written = tmp_path_factory.mktemp("groups"), {}
    (place / "xbench.toml").write_text(GROUPS)
    with RunDirectory(place / "run") as made:
        made.begin({})
        for seed, dataset in enumerate(("one", "two"), start=1):
            for number, model in enumerate(MODELS):
                strengths = dict.fromkeys(FINDINGS, (0.4 * number, 0.3 + 0.1 * number))
                written[model, dataset] = list(finding_rows(seed, 10 * seed + number, strengths))
                add_cell(made, model, dataset, written[model, dataset], findings=list(FINDINGS))
        add_cell(made, "baseline:center", "one", written["kad", "one"], "baseline", findings=list(FINDINGS))
    return place / "run", written


def asked(run: Path, capsys: pytest.CaptureFixture[str], *more: object, code: int = 0) -> str:
    return study(capsys, "groups", run, "--config", run.parent / "xbench.toml", "--replicates", 100, *more, code=code)


def per_finding(rows: list[ResultRow], measure: str) -> float:
    values = []
    for finding in FINDINGS:
        own = [row for row in rows if row.finding == finding]
        pairs = [row for row in own if row.region_area]
        values.append(
            {
                "auc": lambda own=own: roc_auc_score([r.label for r in own], [r.logit for r in own]),
                "pointing": lambda pairs=pairs: mean(r.hit for r in pairs),
                "dice_fixed": lambda pairs=pairs: mean(2 * r.overlap[50] / (r.area[50] + r.region_area) for r in pairs),
            }[measure]()
        )
    return mean(values)


def whole(written: dict[tuple[str, str], list[ResultRow]], model: str, measure: str) -> float:
    return mean(per_finding(written[model, dataset], measure) for dataset in ("one", "two"))


def test_contrasts(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    said = asked(place, capsys, "--division", "kind")
    assert "kind: in no group: other" in said and "baseline:center" not in said.split("in no group")[1].split("\n")[0]
    assert "kind, general and medical: of 2 and 3 models p over models is never below 0.1" in said
    data = answer(place, "groups")
    rows = {row["measure"]: row for row in data["contrasts"]}
    assert list(rows) == ["pointing", "dice_fixed", "dice_cross_fitted", "auc", "residual"]
    for measure in ("pointing", "dice_fixed", "auc"):
        row, (a, b) = rows[measure], ([whole(written, m, measure) for m in own] for own in KIND.values())
        assert row["difference"] == pytest.approx(np.mean(a) - np.mean(b)) and row["models"] == "2 and 3"
        welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
        assert (row["models_low"], row["models_high"]) == pytest.approx((welch.low, welch.high))
        assert row["difference_low"] < row["difference"] < row["difference_high"]
        groups = {r["group"]: r for r in data["groups"] if r["measure"] == measure}
        assert [groups[name]["value"] for name in KIND] == pytest.approx([np.mean(a), np.mean(b)])
        ends = stats.t.interval(0.95, 2, np.mean(b), stats.sem(b))
        cut = tuple(np.clip(ends, 0, 1))
        assert (groups["medical"]["models_low"], groups["medical"]["models_high"]) == pytest.approx(cut)
        assert groups["general"]["deviation"] == pytest.approx(np.std(a, ddof=1))
        assert groups["medical"]["value_low"] < groups["medical"]["value"] < groups["medical"]["value_high"]
    added: dict[str, float] = defaultdict(float)
    for dataset in ("one", "two"):
        for group, sign in (("general", 0.5), ("medical", -1 / 3)):
            for model in KIND[group]:
                for finding in FINDINGS:
                    pairs = [r for r in written[model, dataset] if r.finding == finding and r.region_area]
                    for row in pairs:
                        added[f"{dataset} {row.patient_id}"] += sign * float(bool(row.hit)) / len(pairs) / 4
    values = np.array(list(added.values()))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (20_000, len(values)))
    expected = mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-12)
    assert values.sum() == pytest.approx(rows["pointing"]["difference"])
    assert rows["pointing"]["p"] == pytest.approx(expected, abs=0.01) and rows["auc"]["p"] < 0.01
    assert rows["residual"]["p"] is None and rows["residual"]["difference_low"] is not None


def test_residuals(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    asked(place, capsys, "--division", "kind")
    data = answer(place, "groups")
    models = [row["model"] for row in data["models"]]
    assert models == list(MODELS[:5]), "the line is that of the models of the groups"
    x, y = ([whole(written, model, measure) for model in models] for measure in ("auc", "pointing"))
    left = y - np.polyval(np.polyfit(x, y, 1), x)
    assert [row["residual"] for row in data["models"]] == pytest.approx(left.tolist())
    assert all(row["residual_low"] < row["residual"] < row["residual_high"] for row in data["models"])
    others = np.polyfit(x[1:], y[1:], 1)
    assert data["models"][0]["residual_of_others"] == pytest.approx(y[0] - np.polyval(others, x[0]))
    (contrast,) = [row for row in data["contrasts"] if row["measure"] == "residual"]
    assert contrast["difference"] == pytest.approx(left[:2].mean() - left[2:].mean())


def test_overlaps_and_single_models(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    said = asked(place, capsys)
    for line in (
        "loose: kad is in first and in second",
        "loose, first and second: no interval over models, since kad is in both groups",
        "loose, first and alone: no interval over models, since alone has one model",
        "loose: in no group: carzero, other",
    ):
        assert line in said
    rows = {(r["first"], r["second"]): r for r in answer(place, "groups")["contrasts"] if r["measure"] == "pointing"}
    assert len(rows) == 4 and {row["family"] for row in rows.values()} == {4}
    assert {row["models_family"] for row in rows.values()} == {1}, "one contrast has a test over models"
    assert rows["first", "second"]["in_both"] == "kad" and rows["first", "second"]["models_p"] is None
    difference = (whole(written, "clip", "pointing") - whole(written, "mavl", "pointing")) / 2
    assert rows["first", "second"]["difference"] == pytest.approx(difference)
    assert min(r["p_holm"] for r in rows.values()) == pytest.approx(min(1, 4 * min(r["p"] for r in rows.values())))


def test_tests_over_patients(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A contrast near 0: sign flips of what patients add, and a normal p of AUC with the jackknife's error."""
    place, written = run
    asked(place, capsys, "--division", "loose")
    rows = {r["measure"]: r for r in answer(place, "groups")["contrasts"] if (r["first"], r["second"]) == SIDES}
    weights = {"kad": 0.5, "clip": 0.5, "siglip": -1.0}
    added: dict[str, float] = defaultdict(float)
    variance = 0.0
    for dataset in ("one", "two"):
        folds = []
        patients = sorted({row.patient_id or "" for row in written["kad", dataset]})
        for model, weight in weights.items():
            for finding in FINDINGS:
                own = [r for r in written[model, dataset] if r.finding == finding]
                pairs = [r for r in own if r.region_area]
                for row in pairs:
                    added[f"{dataset} {row.patient_id}"] += weight * float(bool(row.hit)) / len(pairs) / 4
                table = [(r.label, r.logit, r.patient_id) for r in own]
                left = [[each for each in table if each[2] != name] for name in patients]
                auc = [roc_auc_score([a for a, *_ in part], [b for _, b, _ in part]) for part in left]
                folds.append(weight * np.array(auc) / 4)
        totals = np.sum(folds, axis=0)
        variance += (len(patients) - 1) * float(np.var(totals))
    values = np.array(list(added.values()))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (20_000, len(values)))
    p = mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-12)
    assert rows["pointing"]["p"] == pytest.approx(p, abs=0.02) and p > 0.1
    p = 2 * stats.norm.sf(abs(rows["auc"]["difference"]) / np.sqrt(variance))
    assert rows["auc"]["p"] == pytest.approx(p, abs=0.03) and p > 0.1


def test_what_was_not_asked_for_is_not_shown(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, _ = run
    said = asked(place, capsys, "--division", "loose", "--over", "patients")
    assert "over models" not in said.split("percentage points")[0] and "no interval over models" not in said
    four = [word for name in MODELS[:4] for word in ("--model", name)]
    said = asked(place, capsys, "--division", "kind", "--over", "models", *four)
    assert "over patients" not in said.split("percentage points")[0]
    assert "kind: without a result here: carzero" in said


@pytest.mark.parametrize(
    ("groups", "more", "code", "words"),
    [
        ("", (), 2, "names no groups of models; write a table such as [groups.pretraining]"),
        (GROUPS, ("--division", "kinds"), 2, "There is no [groups.kinds] in the configuration: did you mean 'kind'?"),
        (GROUPS.replace('"mavl"]', '"mavel"]'), (), 2, "names 'mavel' in 'second', but"),
        ('[groups.a]\nx = ["kad"]\ny = []', (), 2, "[groups.a]: the group 'y' is empty; list its models."),
        ('[groups.a]\nx = ["kad"]', (), 2, "[groups.a] has 1 group; name at least two"),
        ('[groups.a]\nx = "kad"\ny = ["clip"]', (), 2, "groups.a.x' must be a list of models."),
        ("[groups]\na = 3", (), 2, "groups.a' must be a table"),
        (GROUPS, ("--over", "models"), 2, "since alone has one model with Point; add a model or take --over patients."),
        ('[groups.a]\nx = ["kad"]\ny = ["baseline:center"]', ("--model", "kad"), 1, "has no number in two groups of a"),
    ],
)
def test_bad_groups_are_sentences(
    run: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], groups: str, more: tuple[str, ...],
    code: int, words: str,
) -> None:  # fmt: skip
    (tmp_path / "xbench.toml").write_text(groups)
    said = study(capsys, "groups", run[0], "--config", tmp_path / "xbench.toml", "--replicates", 40, *more, code=code)
    assert words in said and said.count("\n") == 1
