"""Groups of pairs and gaps between two, against goldens, loops and simulated runs (docs/subgroups.md §5)."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from xbench_fast.metrics_gpu.recognition.delong import auc_parts
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.intervals import Interval
from xbench_fast.metrics_gpu.statistics.two_groups import mantel_haenszel, newcombe_interval, permutation_tests
from xbench_fast.metrics_gpu.trust.group_auc import ScoredImages, auc_gap, auc_of_group
from xbench_fast.metrics_gpu.trust.subgroups import (
    LEAST_TESTED,
    Gap,
    MeasuredPairs,
    corrected,
    group_gap,
    group_means,
)

DRAWS = 40


def golden(reference_files: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((reference_files / "trust" / f"{name}.json").read_text())
    return found


def world(
    seed: int, patients: int = 60, planted: float = 0.0, shared: bool = False
) -> tuple[MeasuredPairs, np.ndarray]:
    """Pairs of two groups; the second one has larger regions, which are easier, and `planted` is taken from the hits of
    the first. shared: half of the patients are in both groups."""
    random = np.random.default_rng(seed)
    patient_of = np.repeat(np.arange(patients), 1 + random.poisson(0.6, patients))
    first = (random.random(patients) < 0.4)[patient_of]
    if shared:
        first = np.where(random.random(len(patient_of)) < 0.5, random.random(len(patient_of)) < 0.4, first)
    size = np.where(first, random.integers(0, 2, len(first)), random.integers(0, 4, len(first)))
    ease = np.array([0.2, 0.4, 0.6, 0.8])[size] - planted * first
    hits = (random.random(len(first)) + 0.3 * (random.random(patients) - 0.5)[patient_of] < ease).astype(float)
    values = {"pointing": hits, "dice_fixed": random.random(len(first))}
    return MeasuredPairs(
        values, 4 * random.integers(0, 3, len(first)) + size, patient_of, draw_patients(patients, DRAWS, seed)
    ), first


@pytest.mark.parametrize("name", ["gap is only size", "planted gap"])
def test_goldens_of_gaps(reference_files: Path, name: str) -> None:
    told = golden(reference_files, "subgroups")[name]
    rows = [
        (stratum, side == 0, float(hit < hits))
        for stratum, sides in enumerate(told["cells_hits_n_a_then_b"].values())
        for side, (hits, n) in enumerate(sides)
        for hit in range(n)
    ]
    stratum, first, hits = (np.array(column) for column in zip(*rows, strict=True))
    common = mantel_haenszel(hits, first, stratum)
    assert common.risk_difference == pytest.approx(told["mantel_haenszel_risk_difference"], abs=1e-9)
    assert common.odds_ratio == pytest.approx(told["mh_odds_ratio"], abs=1e-9)
    assert common.p == pytest.approx(told["cmh_p_no_correction"], abs=1e-9)
    pairs = MeasuredPairs({"pointing": hits}, stratum, np.arange(len(hits)), draw_patients(len(hits), DRAWS))
    found = group_gap(pairs, first, ~first)
    raw, standardised = found.raw["pointing"], found.standardised["pointing"]
    assert raw.value == pytest.approx(told["raw_gap"], abs=1e-12) and found.common == common
    assert raw.interval is not None and raw.interval.method == "newcombe"
    assert (raw.interval.low, raw.interval.high) == pytest.approx(told["raw_newcombe_95"], abs=1e-9)
    assert standardised.value == pytest.approx(told["standardised_gap"], abs=1e-12)
    assert (found.strata, found.strata_left_out, found.shared) == (2, 0, 0)
    assert raw.p is not None and raw.p < 0.02 and standardised.p is not None
    # The test of the standardised gap is that of the golden but for its weights.
    assert standardised.p == pytest.approx(told["cmh_p_no_correction"], abs=0.001)


def test_expected_hits_have_the_interval_of_a_mean() -> None:
    """Newcombe's and Wilson's intervals are of counts, and a share of tied pixels is none."""
    counts, first = world(1)
    shares = MeasuredPairs({"pointing": counts.values["dice_fixed"], "dice_fixed": counts.values["dice_fixed"]},
                           counts.stratum_of, counts.patient_of, counts.draws)  # fmt: skip
    gap = group_gap(shares, first, ~first, 19)
    assert gap.raw["pointing"].interval == gap.raw["dice_fixed"].interval
    assert gap.raw["pointing"].interval.method == "bootstrap"  # type: ignore[union-attr]
    assert group_gap(counts, first, ~first, 19).raw["pointing"].interval.method == "newcombe"  # type: ignore[union-attr]
    means = group_means(shares, first)
    assert means["pointing"] == means["dice_fixed"]


def test_golden_of_two_shares(reference_files: Path) -> None:
    told = golden(reference_files, "statistics")["two_groups"]
    found = newcombe_interval(*(told[key] for key in ("hits_a", "n_a", "hits_b", "n_b")))
    assert (found.low, found.high) == pytest.approx(told["newcombe_95"], abs=1e-9)
    with pytest.raises(ValueError, match="n >= 1"):
        newcombe_interval(0, 0, 1, 2)


def test_permutations_are_those_of_all_divisions() -> None:
    random = np.random.default_rng(3)
    number, first = random.integers(1, 4, 11), np.arange(11) < 4
    sums = np.column_stack([random.binomial(number, 0.5), random.normal(size=11), 0.7 * number])

    def gaps(side: np.ndarray) -> np.ndarray:
        return np.abs(sums[side].sum(0) / number[side].sum() - sums[~side].sum(0) / number[~side].sum())

    divisions = [np.isin(np.arange(11), own) for own in itertools.combinations(range(11), 4)]
    exact = np.mean([gaps(side) >= gaps(first) - 1e-12 for side in divisions], axis=0)
    found = permutation_tests(number, sums, first, 40_000)
    assert [test.p for test in found] == pytest.approx(exact, abs=0.01) and found[2].p == 1.0
    assert [test.p for test in permutation_tests(number, sums, ~first, 40_000)] == [test.p for test in found]
    assert permutation_tests(number, sums, first, 99, 1) != permutation_tests(number, sums, first, 99, 2)
    order = np.arange(60)
    (far,) = permutation_tests(np.ones(60, int), (order < 30)[:, None].astype(float), order < 30, 199)
    assert far.p == 1 / 200 and far.bound
    with pytest.raises(ValueError, match="two groups"):
        permutation_tests(number, sums, first | True, 9)
    with pytest.raises(ValueError, match="do not fit"):
        permutation_tests(number * 0, sums, first, 9)


def naive(
    pairs: MeasuredPairs, first: np.ndarray, name: str, counts: np.ndarray, weights: dict[int, int] | None
) -> float:
    """The gap of one draw by loops over pairs; weights: of the strata, None for the raw gap."""
    sums: dict[tuple[int, bool], list[float]] = {}
    for place, value in enumerate(pairs.values[name]):
        stratum = int(pairs.stratum_of[place]) if weights else 0
        if weights is None or stratum in weights:
            own = sums.setdefault((stratum, bool(first[place])), [0.0, 0.0])
            own[0] += counts[pairs.patient_of[place]] * value
            own[1] += counts[pairs.patient_of[place]]
    gap = total = 0.0
    for stratum in weights or {0: 1}:
        (a, n_a), (b, n_b) = sums.get((stratum, True), (0, 0)), sums.get((stratum, False), (0, 0))
        if n_a and n_b:
            weight = weights[stratum] if weights else 1
            gap, total = gap + weight * (a / n_a - b / n_b), total + weight
    return gap / total if total else math.nan


@pytest.mark.parametrize("shared", [False, True])
def test_gaps_against_loops(shared: bool) -> None:
    pairs, first = world(1, shared=shared)
    found = group_gap(pairs, first, ~first, 199)
    both = {int(s) for s in pairs.stratum_of[first]} & {int(s) for s in pairs.stratum_of[~first]}
    every = {int(s) for s in pairs.stratum_of}
    weights = {s: int((pairs.stratum_of == s).sum()) for s in sorted(both)}
    assert (found.strata, found.strata_left_out) == (len(both), len(every - both)) and every - both
    assert found.pairs_left_out == sum(int((pairs.stratum_of == s).sum()) for s in every - both)
    sides = [{int(p) for p in pairs.patient_of[own]} for own in (first, ~first)]
    assert found.patients == (len(sides[0]), len(sides[1])) and found.shared == len(sides[0] & sides[1])
    assert bool(found.shared) == shared and found.pairs == (int(first.sum()), int((~first).sum()))
    once = np.ones(pairs.draws.patients)
    for name in pairs.values:
        for kind, own in (("raw", None), ("standardised", weights)):
            gap = getattr(found, kind)[name]
            assert gap.value == pytest.approx(naive(pairs, first, name, once, own), abs=1e-12)
            drawn = np.array([naive(pairs, first, name, counts, own) for counts in pairs.draws.counts])
            assert gap.interval is not None
            if gap.interval.method == "newcombe":
                assert (name, kind, shared) == ("pointing", "raw", False)
            else:
                ends = np.percentile(drawn[~np.isnan(drawn)], [2.5, 97.5])
                assert (gap.interval.low, gap.interval.high) == pytest.approx(ends, abs=1e-12)
        # What patients add, by loops.
        added = dict.fromkeys(range(pairs.draws.patients), 0.0)
        for place, value in enumerate(pairs.values[name]):
            own = pairs.stratum_of == pairs.stratum_of[place]
            if int(pairs.stratum_of[place]) in both:
                n, side = int(own.sum()), int((own & (first == first[place])).sum())
                away = (value - pairs.values[name][own].mean()) / side * (1 if first[place] else -1)
                share = n / sum(weights.values()) * math.sqrt(n / (n - 1))
                added[int(pairs.patient_of[place])] += share * away
        spread = math.sqrt(sum(value * value for value in added.values()))
        gap = found.standardised[name]
        assert gap.p == pytest.approx(2 * norm.sf(abs(gap.value or 0) / spread), abs=1e-12)
        if shared:  # the same, in one stratum
            values, n = pairs.values[name], len(first)
            away = (values - values.mean()) / np.where(first, first.sum(), -(~first).sum()) * math.sqrt(n / (n - 1))
            spread = math.sqrt((np.bincount(pairs.patient_of, away) ** 2).sum())
            assert found.raw[name].p == pytest.approx(2 * norm.sf(abs(found.raw[name].value or 0) / spread), abs=1e-12)


def test_measures_of_a_group() -> None:
    pairs, first = world(4)
    found = group_means(pairs, first)
    for name, values in pairs.values.items():
        value, interval = found[name].value, found[name].interval
        assert value == pytest.approx(values[first].mean()) and interval is not None
        drawn = [
            np.average(values[first], weights=counts[pairs.patient_of[first]])
            for counts in pairs.draws.counts.astype(float)
        ]
        if interval.method == "bootstrap":
            assert (interval.low, interval.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]))
    few = first & (pairs.patient_of < 5)
    assert few.any() and group_means(pairs, few) == {}, "of fewer than 10 patients only n"


def test_few_patients_are_counted_and_not_tested() -> None:
    pairs, first = world(5, patients=200)
    for patients, printed, tested in (
        (0, False, False),
        (9, False, False),
        (10, True, False),
        (19, True, False),
        (20, True, True),
    ):
        some = np.isin(pairs.patient_of, np.unique(pairs.patient_of[first])[:patients])
        found = group_gap(pairs, first & some, ~first, 99)
        assert (found.patients[0], bool(found.raw), found.tested) == (patients, printed, tested)
        assert all((gap.p is not None) == tested for gap in (*found.raw.values(), *found.standardised.values()))
    assert LEAST_TESTED == 20
    with pytest.raises(ValueError, match="both groups"):
        group_gap(pairs, first, first)


def test_no_stratum_with_both_groups() -> None:
    pairs, first = world(6, patients=80)
    apart = replace(pairs, stratum_of=first.astype(np.intp))
    found = group_gap(apart, first, ~first, 99)
    assert found.raw and not found.standardised and (found.strata, found.pairs_left_out) == (0, len(first))
    assert found.common.risk_difference is found.common.p is None
    same = replace(pairs, values={"pointing": np.ones(len(first))})
    found = group_gap(same, first, ~first, 99)
    assert found.standardised["pointing"].p is None and found.raw["pointing"].p == 1.0


@pytest.mark.parametrize(
    ("low", "high", "p_holm", "word"),
    [
        (-0.04, 0.05, 0.9, "pass"),
        (-0.05, 0.05, 0.9, "cannot tell"),
        (0.01, 0.3, 0.04, "fail"),
        (-0.3, -0.01, 0.04, "fail"),
        (0.01, 0.3, 0.05, "cannot tell"),
        (0.01, 0.03, 0.2, "cannot tell"),
        (-0.04, 0.05, None, "cannot tell"),
    ],
)
def test_words(low: float, high: float, p_holm: float | None, word: str) -> None:
    assert Gap(0.0, Interval(low, high, 0.95, "bootstrap"), p=p_holm, p_holm=p_holm).word == word
    assert Gap(0.0, None, p=0.01, p_holm=0.01).word == "cannot tell"


def families(seed: int, planted: float) -> list[list[str]]:
    """The words of gaps between the halves of three attributes; `planted`: in the hits of the first attribute alone."""
    random = np.random.default_rng(seed)
    pairs, first = world(seed, patients=150, planted=planted)
    sides = [first] + [(random.random(150) < 0.5)[pairs.patient_of] for _ in range(2)]
    found = corrected([group_gap(pairs, side, ~side, 999) for side in sides])
    assert found[0].raw["pointing"].p_holm is not None
    return [[gap.standardised["pointing"].word for gap in found], [gap.raw["pointing"].word for gap in found]]


def test_false_alarms_and_planted_gaps_in_simulated_runs() -> None:
    """Of 200 runs without a gap at equal size 5 % may have an alarm in their family; a planted gap is found."""
    without = [families(seed, 0.0) for seed in range(200)]
    alarms = sum("fail" in standardised for standardised, _ in without)
    assert alarms <= 18, "99.5 % of 200 runs at 5 %"
    assert sum("fail" in raw for _, raw in without) > 60, "the raw gap is that of the sizes"
    planted = [families(seed, 0.4)[0] for seed in range(30)]
    assert sum(words[0] == "fail" for words in planted) >= 28
    assert sum("fail" in words[1:] for words in planted) <= 6


def test_families() -> None:
    gaps = [group_gap(*(lambda p, f: (p, f, ~f))(*world(seed)), 199) for seed in (1, 2, 3)]
    untested = replace(gaps[0], raw={"pointing": Gap(0.1)}, standardised={})
    found = corrected([*gaps, untested])
    for kind in ("raw", "standardised"):
        for name in ("pointing", "dice_fixed"):
            ps = sorted(getattr(gap, kind)[name].p for gap in gaps)
            smallest = min(getattr(gap, kind)[name].p_holm for gap in found[:3])
            assert smallest == pytest.approx(min(1.0, 3 * ps[0])), "a family of three for each measure"
    assert found[3].raw["pointing"].p_holm is None


def test_auc_of_groups_and_its_gap() -> None:
    random = np.random.default_rng(8)
    images, patients = 300, 120
    patient_of, first = random.integers(0, patients, images), random.random(images) < 0.4
    labels = (random.random((images, 3)) < (0.4, 0.3, 0.002)).astype(np.int8)
    labels[::7, 1] = -1
    logits = labels + random.normal(size=labels.shape)
    scored = ScoredImages(logits, labels, ("a", "b", "rare"), patient_of, draw_patients(patients, DRAWS))

    def auc(members: np.ndarray, c: int) -> float:
        own = members & (labels[:, c] >= 0)
        return float(roc_auc_score(labels[own, c], logits[own, c]))

    found = auc_of_group(scored, first)
    assert found is not None and found[1] == 2
    assert found[0].value == pytest.approx(np.mean([auc(first, c) for c in (0, 1)]))
    assert found[0].interval is not None and found[0].interval.low < found[0].value < found[0].interval.high
    gap = auc_gap(scored, first, ~first)
    assert gap is not None and gap.interval is not None and gap.p is not None
    assert gap.value == pytest.approx(np.mean([auc(first, c) - auc(~first, c) for c in (0, 1)]))
    parts = np.zeros(patients)
    for side, sign in ((first, 1), (~first, -1)):
        for c in (0, 1):
            own = side & (labels[:, c] >= 0)
            parts += sign * auc_parts(logits[own, c], labels[own, c], patient_of[own], patients) / 2
    assert gap.p == pytest.approx(2 * norm.sf(abs(gap.value or 0) / math.sqrt((parts**2).sum())))
    lacking = np.where(first & (labels == 1).T, 0, labels.T)[1]  # the first group has no case of the second finding
    one_sided = replace(scored, labels=np.column_stack([labels[:, 0], lacking, labels[:, 2]]))
    common = auc_gap(one_sided, first, ~first)
    assert common is not None and common.value == pytest.approx(auc(first, 0) - auc(~first, 0))
    turned = auc_gap(one_sided, ~first, first)
    assert turned is not None and turned.value == pytest.approx(-common.value), "whichever side lacks it"
    worse = np.where(first[:, None], random.normal(size=labels.shape), logits)
    seen = auc_gap(replace(scored, logits=worse), first, ~first)
    assert seen is not None and seen.p is not None and seen.p < 0.001 < gap.p
    few = patient_of < 9
    assert auc_of_group(scored, few) is None and auc_gap(scored, few, ~few) is None
    untested = auc_gap(scored, patient_of < 19, patient_of >= 19)
    assert untested is not None and untested.p is None
