"""`xbench-fast bench` on the CPU with a tiny model, and the one-call GPU check where there is no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import small_models
import synthetic
from xbench_fast.engines.base import Engine, EngineInfo, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import open_engine
from xbench_fast.export.cost import measure_cost
from xbench_fast.runtime.benching import against
from xbench_fast.runtime.benching import benchmark as bench
from xbench_fast.runtime.benching.benchmark import Bench, BenchReport, run_bench
from xbench_fast.runtime.benching.ceilings import CeilingSizes, cpu_ceilings
from xbench_fast.runtime.benching.cost_estimate import image_macs
from xbench_fast.runtime.benching.plan import SCENARIOS, Plan
from xbench_fast.runtime.cli.app import _run

SMALL = CeilingSizes(1 << 12, 16)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return synthetic.make_bundle(tmp_path / "bundles" / "blocks-32", graph=synthetic.save_graph(tmp_path / "g.onnx"))


def run(bundles: list[Bundle], opened: Any = None, **changes: Any) -> BenchReport:
    plan = Plan(**{"scenarios": SCENARIOS, "batches": (2, 4), "images": 8, "pairs": 4, "side": 40, **changes})
    lines: list[str] = []
    opened = opened or (lambda one: open_engine(one, "onnxruntime-cpu", threads=1))
    report = run_bench(plan, bundles, Bench(opened, lines.append, None, SMALL, SMALL))
    assert lines
    return report


def problems(report: BenchReport) -> list[str]:
    """Reasons other than the machine's: how much repeats spread is not this test's business."""
    return [reason for one in report.measurements for reason in one.problems]


def test_every_scenario_runs_on_the_cpu_and_its_results_are_right(bundle: Bundle) -> None:
    report = run([bundle])
    assert not problems(report)
    found = [(one.scenario, one.batch) for one in report.measurements]
    best = report.best("blocks-32")
    assert best is not None and best.batch in (2, 4)
    assert found == [
        ("offline", 2), ("offline", 4), ("single-stream", 1), ("prepared", best.batch), ("files", best.batch),
        ("sweep", 4), ("decode", None),
    ]  # fmt: skip
    assert all(len(one.seconds) == 5 for one in report.measurements)
    assert [(one.scenario, one.subject) for one in report.not_run] == [("sweep", "GPU")]
    whole = report.measurements[3]
    assert whole.counts == {"images": 8, "pairs": 8} and whole.limit is not None
    assert whole.limit.rate == best.rate().median
    assert len(report.measurements[2].latencies) == 100


def test_macs_of_an_image_are_counted_from_a_run(bundle: Bundle) -> None:
    side = synthetic.SIZE // synthetic.GRID
    assert image_macs(bundle, synthetic.prompt_set().features) == synthetic.GRID**2 * side * side


def test_bench_and_exporter_count_the_same(small_bundles: dict[str, Bundle]) -> None:
    for name in small_models.MODELS:
        text = small_bundles[name].prompt_set("coco").features
        with pytest.MonkeyPatch.context() as patch:
            cost = measure_cost(small_models.small_adapter(name, patch), len(text))
        assert image_macs(small_bundles[name], text) == cost.image_macs > 10**6


class Wrong(Engine):
    """Says it is a GPU's engine, runs on the CPU, and is a little off."""

    factor = np.float32(1.01)

    def _open(self) -> EngineInfo:
        self._inner = open_engine(self.bundle, "onnxruntime-cpu", threads=1).__enter__()
        return EngineInfo("onnxruntime-cuda", "cpu", "fp32", "test")

    def _run(self, pixels: Any, text: Any) -> Scores:
        scores = self._inner.run(pixels, text)
        return Scores(scores.logits * self.factor, scores.saliency)

    def _close(self) -> None:
        self._inner.__exit__(None, None, None)


def test_wrong_results_and_a_fallback_are_told(bundle: Bundle) -> None:
    report = run([bundle], Wrong, scenarios=("offline", "prepared"), batches=(4,))
    assert report.verdict() == "INVALID"
    said = " ".join(report.reasons())
    assert "onnxruntime-cuda runs on the CPU instead of a GPU" in said
    assert "logits differ from onnxruntime-cpu by 0.01" in said and "stored logits differ" in said


def test_what_cannot_run_is_a_row_with_its_reason(bundle: Bundle, tmp_path: Path) -> None:
    def refused(one: Bundle) -> Engine:
        raise EngineError("There is no such GPU.")

    report = run([bundle], refused, scenarios=("offline", "files"))
    assert [(one.scenario, one.reason) for one in report.not_run] == [
        ("offline", "There is no such GPU."), ("files", "There is no such GPU."),
    ]  # fmt: skip
    assert report.reasons() == ["nothing was measured"]
    assert [one.reason for one in run([], scenarios=("offline",)).not_run] == ["no bundle was given"]
    bare = synthetic.make_bundle(tmp_path / "bare-32", graph=tmp_path / "g.onnx", sets=())
    told = run([bare], scenarios=("files",), batches=(2,), images=2)
    assert not problems(told) and "no prompt set" in told.not_run[0].reason


def test_a_bundle_that_states_its_largest_batch_is_measured_up_to_it(bundle: Bundle, tmp_path: Path) -> None:
    few = synthetic.make_bundle(tmp_path / "few-32", graph=bundle.file("image"), largest_batch=3)
    report = run([few], scenarios=("offline",), batches=(2, 4, 8))
    assert [one.batch for one in report.measurements] == [2, 3] and not problems(report)


def test_other_runners_stand_beside_the_engine(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Other:
        detail = "a test"

        def __init__(self, model: str, variant: str, precision: str, device: str) -> None:
            calls.append((model, variant, precision, device))

        def prepare(self, pixels: Any, text: Any) -> None:
            calls.append((pixels.shape, text.shape))

        def run(self, number: int) -> None:
            calls.append(number)

    monkeypatch.setattr(against, "RUNNERS", SimpleNamespace(load=lambda name: Other))
    report = run([bundle], scenarios=("offline",), batches=(4,), against=("other",))
    assert calls[:2] == [("blocks", "32", "fp32", "cpu"), ((4, 1, 32, 32), (3, 2))] and calls[2:8] == [2] * 6
    beside = [(one.runner, one.batch) for one in report.measurements]
    assert beside[1:] == [("other (a test)", 4), ("other (a test)", 8)]


def test_a_failing_comparison_does_not_end_the_run(bundle: Bundle) -> None:
    report = run([bundle], scenarios=("offline",), batches=(4,), against=("eager",))
    assert len(report.measurements) == 1
    assert {one.scenario for one in report.not_run} == {"offline"} and "blocks" in report.not_run[0].reason


def test_the_command(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(bench, "cpu_ceilings", lambda sizes: cpu_ceilings(SMALL))
    out = tmp_path / "bench.json"
    arguments = ["bench", "offline", "sweep", "--bundles", str(bundle.path.parent), "--engine", "onnxruntime-cpu"]
    code = _run([*arguments, "--images", "4", "--pairs", "4", "--batch", "2", "--threads", "1", "--json", str(out)])
    record = json.loads(out.read_text())
    shown = capsys.readouterr().out
    assert record["schema"] == 1 and record["verdict"] == shown.strip().splitlines()[-1]
    assert code == (0 if record["verdict"] == "VALID" else 1)
    assert [one["scenario"] for one in record["measurements"]] == ["offline", "sweep"]
    assert "offline" in shown and "images" in shown and "not run" in shown
    assert _run(["bench", "sweep", "--against", "magic"]) == 2
    assert "Unknown runner 'magic': known are " in capsys.readouterr().err


def test_what_is_measured_is_kept_when_the_run_is_ended(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """By Ctrl-C, here while the images are drawn: they are drawn when a scenario first needs them."""

    def interrupted(*_: Any) -> list[Path]:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "cpu_ceilings", lambda sizes: cpu_ceilings(SMALL))
    monkeypatch.setattr(bench, "film_files", interrupted)
    out = tmp_path / "bench.json"
    arguments = ["bench", "offline", "prepared", "--bundles", str(bundle.path.parent), "--engine", "onnxruntime-cpu"]
    assert _run([*arguments, "--images", "4", "--batch", "2", "--threads", "1", "--json", str(out)]) == 130
    record = json.loads(out.read_text())
    assert [one["scenario"] for one in record["measurements"]] == ["offline"]
    assert record["verdict"] == "INVALID" and "it was not finished" in record["reasons"]


def test_the_gpu_check_says_what_it_did_not_run(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    check = [sys.executable, str(root / "benchmarks/gpu_check.py"), "--out", str(out), "--seconds", "100"]
    parts = ["kernel", "sanitizer", "tests", "torch", "engine-tensorrt", "engine-onnxruntime-cuda", "dali"]
    for part in parts:
        check += ["--only", part]
    done = subprocess.run(check, capture_output=True, text=True, timeout=120, check=False)
    rows = json.loads(out.read_text())["rows"]
    if not any("no NVIDIA GPU" in row["note"] for row in rows):
        pytest.skip("there is a GPU here, on which the check itself says what is wrong")
    parts.insert(parts.index("engine-tensorrt"), "export")  # engines without bundles bring it
    assert done.returncode == 0 and [row["part"] for row in rows] == parts
    assert all(row["status"] == "not run" and row["note"] == "no NVIDIA GPU" for row in rows)
    assert done.stdout.count("not run: no NVIDIA GPU") == len(parts)
    assert done.stdout.splitlines()[-1] == f"0 of {len(parts)} rows failed, {len(parts)} were not run"
