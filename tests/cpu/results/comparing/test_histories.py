"""Any two histories of one bundle: its results under two names never differ, whatever happened between them.

The answer of the bundle to a finding belongs to the content of an image file, the truth to the case. A history decides
which file, patient and truth a case had when the bundle was evaluated, and which cases, in which order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from result_rows import ResultRow, table_of
from stored_counts import PIXELS, random_overlap, square
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.reporting.comparison.comparison import Comparison, compare_runs
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.comparing.difference import Difference
from xbench_fast.runtime.results.comparing.model_differences import ModelDifference, find_differences
from xbench_fast.runtime.results.load_rows import StoredRun
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results
from xbench_fast.runtime.results.selected_pairs import Resampling
from xbench_fast.runtime.results.storage import KEY_FIELD

CASES, FINDINGS = 26, ("Mass", "Effusion")
REPLICATES = 12
PATIENTS = {
    "none": lambda case: None,
    "file": lambda case: f"p{case // 2}",
    "some": lambda case: None if case % 3 == 0 else f"p{case // 2}",
    "other": lambda case: f"q{case // 2}" if case < 8 else f"p{case // 2}",
}


@dataclass(frozen=True)
class History:
    """What a bundle was evaluated on. order: of the cases in the list; first, stop: the part of it; exchanged: cases
    whose files stood under the name of the next of them; patients: of `PATIENTS`; lost: cases without a readable file;
    moved: cases with another region and label; findings: in their order; hashed: whether rows have `image_hash`;
    weights: of run.json; bundle: which one."""

    order: tuple[int, ...] = tuple(range(CASES))
    first: int = 0
    stop: int = CASES
    exchanged: tuple[int, ...] = ()
    patients: str = "none"
    lost: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    findings: tuple[str, ...] = FINDINGS
    protocol: str = "default"
    hashed: bool = True
    weights: str = "published"
    bundle: str = "one"

    def file(self, case: int) -> int:
        """The file under the name of a case."""
        if case not in self.exchanged:
            return case
        return self.exchanged[(self.exchanged.index(case) + 1) % len(self.exchanged)]


SUBSETS = st.frozensets(st.integers(0, CASES - 1), max_size=6)
ORDERS = st.one_of(st.just(tuple(range(CASES))), st.permutations(range(CASES)).map(tuple))
HISTORIES = st.builds(
    History,
    order=ORDERS,
    first=st.sampled_from((0, 0, 0, CASES // 2)),
    stop=st.sampled_from((CASES, CASES, CASES, 20)),
    exchanged=st.one_of(st.just(()), st.permutations(range(CASES)).flatmap(
        lambda order: st.integers(2, CASES).map(lambda count: tuple(order[:count])))),
    patients=st.sampled_from(tuple(PATIENTS)),
    lost=st.one_of(st.just(frozenset()), SUBSETS),
    moved=st.one_of(st.just(frozenset()), SUBSETS),
    findings=st.sampled_from((FINDINGS, FINDINGS, FINDINGS[::-1], FINDINGS[:1])),
    protocol=st.sampled_from(("default", "default", "default", "paper")),
)  # fmt: skip


# A third result beside the two must not change what they are: a baseline, own maps, or another model.
THIRD = st.one_of(
    st.none(),
    st.none(),
    st.tuples(HISTORIES, st.sampled_from(("baseline", "maps", "published"))).map(
        lambda drawn: replace(drawn[0], weights=drawn[1], bundle="three")
    ),
)


@st.composite
def two_histories(draw: st.DrawFn) -> tuple[History, History]:
    """Rows of earlier versions have no hashes: nobody can tell which files they are of, so no files are exchanged."""
    one, two = draw(HISTORIES), draw(HISTORIES)
    if draw(st.sampled_from((False, False, False, True))):
        return replace(one, exchanged=()), replace(two, exchanged=(), hashed=False)
    return one, two


MANY = settings(
    max_examples=200, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "little")


@lru_cache(None)
def _truth(case: int, finding: str, moved: bool) -> tuple[int, int]:
    """Label, and pixels of the region."""
    label = (_seed("label", case, finding) + moved) % 2
    return label, 900 + 7 * case + 400 * moved if label else 0


@lru_cache(None)
def _counts(bundle: str, file: int, finding: str, region: int) -> tuple[Any, Any, int, bool]:
    rng = np.random.default_rng(_seed(bundle, file, finding, region))
    area = np.sort(rng.integers(1, PIXELS, 101))[::-1].astype(np.int32)
    area[0] = PIXELS
    return area, random_overlap(rng, area, region), int(rng.integers(PIXELS)), bool(rng.random() < 0.5)


def rows_of(history: History) -> list[ResultRow]:
    """The rows of the evaluation."""
    rows = []
    for case in history.order[history.first : history.stop]:
        file, patient = history.file(case), PATIENTS[history.patients](case)
        hashed = hashlib.sha256(f"file {file}".encode()).digest()[:16] if history.hashed else None
        for finding in history.findings:
            label, region = _truth(case, finding, case in history.moved)
            row = ResultRow(f"c{case:02d}", patient, finding, "ok", None, label, image_hash=hashed)
            rows.append(row)
            if case in history.lost:
                row.status, row.reason, row.image_hash = "missing", "no file", bytes(16)
                continue
            row.logit = np.float32(_seed(history.bundle, "logit", file, finding) % 1000 / 100)
            row.region_area, row.sub_pixel = region, False
            if region:
                row.area, row.overlap, row.argmax, row.hit = _counts(history.bundle, file, finding, region)
                row.degenerate = False
                row.keep(square(region), (0.0, 0.0, 1.0, 1.0))
    return rows


def stored(folder: Path, histories: Sequence[History], dataset: str = "one") -> StoredRun:
    """A run directory with a model for each history, "a", "b" and so on."""
    cells: dict[str, Any] = {}
    for model, history in zip("abcdef", histories, strict=False):
        key = f"{model}{dataset}".ljust(64, "0")
        table = table_of(rows_of(history), model, dataset, {KEY_FIELD: key})
        pq.write_table(table, folder / f"{model}.parquet")
        cells[f"{model}--{dataset}"] = {
            "model": model, "dataset": dataset, "state": "done", "key": key, "file": f"{model}.parquet",
            "ingredients": {"engine": "numpy fp32", "limit": None}, "weights": history.weights, "grid": [4, 4],
            "title": "The one", "findings": list(history.findings), "protocol": history.protocol, "model_family": model,
        }  # fmt: skip
    run = {"code_version": "0", "created": "", "updated": "", "machine": {}, "config": {}, "cells": cells}
    return StoredRun(folder, run)


def report(run: StoredRun) -> tuple[Results, list[ModelDifference]]:
    results = make_results(run, Choices(replicates=REPLICATES))
    if len({cell.protocol for cell in results.finished}) > 1:
        return results, []
    found = find_differences(results)
    return results, [*found.numbers, *found.classes]


def compared(run: StoredRun, *models: str) -> Comparison | None:
    """None where the comparison is refused."""
    try:
        return compare_runs(run, run, models=(models[0], models[1]), resampling=Resampling(REPLICATES))
    except RunError as error:
        assert "no case in common" in str(error) or "evaluated by protocol" in str(error), error
        return None


def changes(comparison: Comparison | None) -> Iterator[Difference]:
    for cell in comparison.cells if comparison else ():
        yield from cell.whole
        yield from cell.classes


@MANY
@given(both=two_histories(), third=THIRD)
@example(both=(History(), History(exchanged=tuple(range(20)))), third=None)
@example(both=(History(patients="none"), History(patients="file")), third=History(weights="baseline"))
@example(both=(History(patients="other"), History(patients="file")), third=History(weights="maps"))
@example(both=(History(), History()), third=History(patients="file", exchanged=(1, 2, 3), bundle="three"))
@example(both=(History(order=tuple(range(CASES))[::-1]), History(findings=FINDINGS[::-1])), third=None)
def test_one_bundle_never_differs_from_itself(
    both: tuple[History, History], third: History | None, tmp_path: Path
) -> None:
    """The difference is 0 with an interval of exactly 0, or there is none; and both rank alike, or not at all."""
    run = stored(tmp_path, both if third is None else (*both, third))
    results, found = report(run)
    mine_alone = [item for item in found if {item.first, item.second} == {"a", "b"}]
    for item in [*mine_alone, *changes(compared(run, "a", "b"))]:
        assert item.value == 0, item
        assert item.interval is None or (item.interval.low, item.interval.high) == (0, 0), item
        assert item.p in (None, 1), item
    for field in ("pointing", "dice_fixed", "dice_best", "dice_cross_fitted", "auc"):
        for name in ("", *FINDINGS):
            if results.number("a", "one", field, name).basis == results.number("b", "one", field, name).basis:
                mine, other = (results.number(model, "one", field, name).value for model in "ab")
                assert mine == pytest.approx(other, abs=1e-12), (field, name)


def turned(item: Difference) -> tuple[Any, ...]:
    """What the same difference is in the other direction."""
    ends = None if item.interval is None else (-item.interval.high, -item.interval.low)
    return item.field, item.name, item.n, -item.value, ends, item.p, item.p_holm


def told(item: Difference) -> tuple[Any, ...]:
    ends = None if item.interval is None else (item.interval.low, item.interval.high)
    return item.field, item.name, item.n, item.value, ends, item.p, item.p_holm


@settings(MANY, max_examples=20)
@given(both=two_histories())
@example(both=(History(), History(patients="file")))
@example(both=(History(order=tuple(range(CASES))[::-1]), History(findings=FINDINGS[::-1], patients="some")))
@example(both=(History(patients="other", exchanged=(1, 2, 3)), History(patients="file", lost=frozenset({5, 6}))))
def test_the_order_of_two_models_changes_the_sign_alone(both: tuple[History, History], tmp_path: Path) -> None:
    """To the last bit; and a report subtracts what `compare` subtracts."""
    run = stored(tmp_path, (both[0], replace(both[1], bundle="two")))
    there, back = ([*changes(compared(run, *models))] for models in ("ab", "ba"))
    assert list(map(told, there)) == list(map(turned, back))
    first_minus_second = {(item.field, item.name): item for item in back}
    for item in report(run)[1]:
        same = first_minus_second[item.field, item.name]
        assert (item.n, item.p) == (same.n, pytest.approx(same.p, abs=1e-12))
        assert item.value == pytest.approx(same.value, abs=1e-12)
        assert (item.interval is None) == (same.interval is None)
        if item.interval is not None and same.interval is not None:
            ends = (same.interval.low, same.interval.high)
            assert (item.interval.low, item.interval.high) == pytest.approx(ends, abs=1e-12)
