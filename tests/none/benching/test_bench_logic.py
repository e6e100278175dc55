"""What makes a benchmark valid, its statistics, and what its oracles notice. Nothing here asserts a time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_sweep import assert_equal
from xbench_fast.engines.base import Scores
from xbench_fast.engines.errors import ConfigError
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.benching.benchmark import BenchReport
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.benchmark_table import report_facts, report_table, to_record
from xbench_fast.runtime.benching.ceilings import Ceilings, CeilingSizes, cpu_ceilings
from xbench_fast.runtime.benching.cost_estimate import _macs
from xbench_fast.runtime.benching.gpu_state import gpu_state, throttling
from xbench_fast.runtime.benching.inputs import film_files, films_as_cases, found_files, make_pairs
from xbench_fast.runtime.benching.measurement import Limit, Measurement, NotRun
from xbench_fast.runtime.benching.oracle import check_counts, check_decode, check_scores, naive_counts
from xbench_fast.runtime.benching.parts import decode, host_sweep
from xbench_fast.runtime.benching.plan import Plan
from xbench_fast.runtime.benching.timing import RepeatSpread, clocked, median_ratio, percentiles, timed
from xbench_fast.runtime.data.images.decode import read_grey

STEADY = [1.0, 1.05, 0.95, 1.02, 0.98]
PLAN = Plan(("sweep",), (1,), 3, 6, repeats=5, side=24)


def measured(seconds=STEADY, **changes):
    return Measurement("offline", "m", "by", 8, {"images": 100, "pairs": 50}, seconds, **changes)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40))
def test_percentiles_are_those_of_numpy(values):
    for name, value in percentiles(values).items():
        assert value == pytest.approx(np.percentile(values, int(name[1:])), rel=1e-12)
    found = RepeatSpread.of(values)
    assert (found.median, found.least, found.greatest) == (np.median(values), min(values), max(values))


def test_rates_and_fractions():
    one = measured([2.0, 1.0, 4.0, 2.0, 2.0], limit=Limit("half a copy", 200.0))
    assert one.rate() == RepeatSpread(50.0, 25.0, 100.0) and one.rate("pairs").median == 25.0
    assert one.fraction == 0.25 and one.rate().relative == 1.5
    assert measured().fraction is None and measured(limit=Limit("none", 0.0)).fraction is None
    assert RepeatSpread(0.0, 0.0, 0.0).relative == math.inf
    for function in (percentiles, RepeatSpread.of):
        with pytest.raises(ValueError, match="no value"):
            function([])


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (measured(), None),
        (measured([1.0] * 4), "only 4 of at least 5 repeats"),
        (measured([1.0, 1.0, 1.0, 1.0, 1.3]), None),
        (measured([1.0, 1.0, 1.0, 1.0, 1.4]), "spread by 29 %"),
        (measured(problems=["logits differ"]), "logits differ"),
    ],
)
def test_what_makes_a_measurement_invalid(one, words):
    report = BenchReport(PLAN, [one])
    if words is None:
        assert report.verdict() == "VALID" and not report.reasons()
    else:
        assert report.verdict() == "INVALID" and words in report.reasons()[0] and "offline, m" in report.reasons()[0]
    assert to_record(report)["verdict"] == report.verdict() == report_facts(report)[-1]


def test_a_run_is_invalid_when_clocks_were_held_down_or_nothing_was_measured():
    assert BenchReport(PLAN).reasons() == ["nothing was measured"]
    cool, capped, hot = ({"reasons": bits} for bits in (0x1, 0x4, 0x28))
    assert BenchReport(PLAN, [measured()], states=[cool, capped]).verdict() == "VALID"
    held = BenchReport(PLAN, [measured()], states=[cool, hot])
    assert held.verdict() == "INVALID" and "hardware slowdown, software thermal" in held.reasons()[0]
    assert throttling([None, {}]) is None


def test_the_state_of_a_gpu_is_read_whatever_the_driver_calls_it():
    def ask(fields):
        if fields == "clocks_throttle_reasons.active":
            return "0x0000000000000004"
        return "1980, 3201, 512.31, [N/A], 61, 99" if "," in fields else None

    state = gpu_state(ask=ask)
    assert state is not None and state["reasons"] == 4 and state["power_limit"] is None
    assert (state["clocks_sm"], state["power_draw"], state["temperature_gpu"]) == (1980, 512.31, 61)
    assert gpu_state(ask=lambda fields: None) is None


def test_repeats_end_with_their_number_or_their_time():
    now = [0.0]
    calls = []

    def work(repeat):
        calls.append(repeat)
        now[0] += 10.0

    assert timed(work, 3, 1e9, lambda: now[0]) == [10.0] * 3 and calls == [-1, 0, 1, 2]
    assert timed(work, 9, 25.0, lambda: now[0]) == [10.0] * 3
    assert timed(work, 9, 0.0, lambda: now[0]) == [10.0]


def test_naive_counts_are_those_of_the_tests_own_oracle():
    rng = np.random.default_rng(1)
    grids, masks = rng.standard_normal((3, 5, 7)).astype(np.float32), rng.random((3, 30, 41)) < 0.3
    grids[2] = 4
    found = [naive_counts(grid, mask) for grid, mask in zip(grids, masks, strict=True)]
    kinds = {"hit": bool, "degenerate": bool}
    counts = Counts(**{name: np.array([f[name] for f in found], kinds.get(name, np.int32)) for name in found[0]})
    assert_equal(counts, grids, masks)


@pytest.mark.parametrize("field", ["area", "overlap", "region", "argmax", "hit", "degenerate"])
def test_a_wrong_count_is_noticed(field):
    grids, masks = make_pairs(2, np.random.default_rng(0))
    counts = sweep(grids, masks)
    assert check_counts(counts, grids, masks) is None
    column = getattr(counts, field)
    column[1] = ~column[1] if column.dtype == bool else column[1] + 1
    assert f"the sweep's {field}" in str(check_counts(counts, grids, masks))


def test_wrong_scores_are_noticed():
    rng = np.random.default_rng(0)
    wanted = Scores(rng.random((2, 3), np.float32), rng.random((2, 3, 4, 4), np.float32))
    near = Scores(wanted.logits * np.float32(1.01), wanted.saliency)
    assert check_scores(wanted, wanted, "fp32") is None and check_scores(near, wanted, "fp16") is None
    assert "logits differ" in str(check_scores(near, wanted, "fp32"))
    broken = wanted.saliency.copy()
    broken[0, 0, 0, 0] = np.nan
    assert "saliency differ" in str(check_scores(Scores(wanted.logits, broken), wanted, "bf16"))
    assert "shape" in str(check_scores(Scores(wanted.logits[:1], wanted.saliency), wanted, "fp32"))


def test_wrong_pixels_are_noticed(tmp_path):
    first, second = film_files(tmp_path, 2, 24, seed=5)
    assert check_decode(first, read_grey(first)) is None
    assert "other pixels" in str(check_decode(first, read_grey(second)))
    assert check_decode(first.with_suffix(".dcm"), read_grey(first)) is None
    for hidden in (".thumbnails/a.png", "@eaDir/a.png", "._image000000.png"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).touch()
    assert found_files(tmp_path, 5) == [first, second]
    with pytest.raises(ConfigError, match="There is no folder"):
        found_files(tmp_path / "nope", 5)


def test_sweep_and_decode_run_and_are_checked(tmp_path, monkeypatch):
    ceilings = cpu_ceilings(CeilingSizes(1 << 12, 16))
    assert ceilings.bandwidth > 0 and set(ceilings.products) == {"fp32"}
    one = host_sweep(PLAN, Ceilings("cpu", 7874e3, {}))
    assert one.counts == {"pairs": 6} and len(one.seconds) == 5 and not one.problems
    assert one.limit is not None and one.limit.rate == pytest.approx(1000)  # 784 + 6272 + 808 + 8 + 2 bytes a pair
    two = decode(PLAN, film_files(tmp_path, 3, 24, seed=0))
    assert two.counts == {"images": 3} and not two.problems and two.limit is not None
    monkeypatch.setattr("xbench_fast.runtime.benching.parts.sweep", lambda maps, masks: sweep(-maps, masks))
    assert host_sweep(PLAN, ceilings).problems


def test_inputs_depend_on_the_seed_alone(tmp_path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    files = [film_files(folder, 2, 24, seed) for folder, seed in zip(folders, (1, 1, 2), strict=True)]
    contents = [[path.read_bytes() for path in paths] for paths in files]
    assert contents[0] == contents[1] != contents[2]
    cases = films_as_cases(files[0], ["A", "B"], 0)
    assert [case.labels for case in cases] == [{"A": 1, "B": 0}, {"A": 0, "B": 1}]
    assert all(case.regions[name].mask(1024, 1024).any() for case in cases for name in case.regions)


def test_multiply_accumulates_by_hand():
    def node(kind, inputs, output):
        shapes = [{"float": shape} for shape in inputs]
        return {"op_name": kind, "input_type_shape": shapes, "output_type_shape": [{"float": output}]}

    assert _macs([node("Conv", [[2, 3, 8, 8], [4, 3, 3, 3], [4]], [2, 4, 4, 4])]) == 2 * 4 * 16 * 27
    assert _macs([node("MatMul", [[6, 5], [5, 7]], [6, 7])]) == 6 * 5 * 7
    assert _macs([node("Conv", [[2, 3, 8, 8]], [2, 4, 4, 4])]) is None
    assert _macs([node("MatMul", [[2, 6, 5]], [2, 6, 7])]) == 2 * 6 * 5 * 7  # of packed weights no shape is listed
    assert _macs([node("Gemm", [[5, 6]], [5, 7])]) == _macs([node("Gemm", [[5, 6], [6, 7]], [5, 7])]) == 5 * 6 * 7
    assert _macs([node("Gemm", [[5, 6], [5, 7], [7]], [6, 7])]) == 6 * 5 * 7
    assert _macs([node("Relu", [[6, 5]], [6, 5]), node("Add", [[6, 5], [5]], [6, 5])]) == 0


def test_the_record_and_the_table_hold_what_was_measured_and_what_was_not():
    one = measured(limit=Limit("a copy", 1000.0), latencies=[0.001] * 9 + [0.1], notes=["odd"])
    report = BenchReport(PLAN, [one], [NotRun("sweep", "GPU", "no GPU")], {"cpu": Ceilings("cpu", 2e9, {"fp32": 5e11})})
    record = to_record(report)
    assert set(record) == {
        "schema", "verdict", "reasons", "measurements", "not_run", "limits", "gpu_states", "plan", "version", "machine"
    }  # fmt: skip
    (entry,) = record["measurements"]
    assert entry["per_second"]["images"]["median"] == 100 and entry["fraction_of_limit"] == pytest.approx(0.1)
    assert entry["latency_ms"]["p50"] == pytest.approx(1.0) and entry["calls"] == 10 and entry["seconds"] == STEADY
    assert record["limits"]["cpu"] == {"device": "cpu", "copy_gb_s": 2.0, "product_tflop_s": {"fp32": 1.0}}
    assert record["not_run"] == [{"scenario": "sweep", "subject": "GPU", "reason": "no GPU"}]
    assert json.loads(json.dumps(record["plan"])).keys() == {
        "scenarios", "batches", "images", "pairs", "repeats", "seconds", "seed", "threads", "side", "own_files",
        "against",
    }  # fmt: skip
    table = report_table(report)
    assert len(table.rows) == 3 and table.rows[2][4] == "not run" and table.rows[2][-1] == "no GPU"
    assert any("p99" in line for line in report_facts(report)) and "odd" in report_facts(report)


@pytest.mark.parametrize("changes", [{"scenarios": ("fast",)}, {"batches": (0,)}, {"images": 0}, {"repeats": 0}])
def test_plans_that_make_no_sense(changes):
    with pytest.raises(ValueError, match=r"unknown scenario 'fast': known are|at least 1"):
        Plan(**{"scenarios": ("sweep",), "batches": (1,), "images": 1, "pairs": 1, **changes})


def test_a_call_is_clocked_and_rounds_are_compared_within_themselves() -> None:
    once = clocked(lambda: sum(range(100_000)))
    assert once.result == sum(range(100_000)) and 0 < once.thread <= once.cpu + 0.01 and once.wall > 0
    assert median_ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == 3.0
    for rounds in ([], [1.0, 2.0]):
        with pytest.raises(ValueError, match=r"no round|argument 2"):
            median_ratio(rounds, [1.0][: len(rounds)])


def test_a_record_names_code_and_machine(tmp_path: Path) -> None:
    write_record(tmp_path / "new" / "figures.json", {"images": 3})
    found = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert found["images"] == 3 and {"cpu", "cores", "python"} <= set(found["machine"]) and found["code_version"]
