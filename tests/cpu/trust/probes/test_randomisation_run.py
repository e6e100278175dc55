"""The probe randomisation from the command line: what passes, what fails, and that a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from synthetic import CLASSES, make_dataset
from trust_graphs import fixed_map_bundle, stacked_bundle
from xbench_fast.engines.backends.ort import CpuEngine
from xbench_fast.metrics_gpu.trust.similarity import spearman
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.resizing import to_model
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.randomisation import RandomisationProbe, exchanged_prompts
from xbench_fast.runtime.trust.probes.randomised import RandomisedGraph

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def run(line: list[object], status: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in line])
    assert ended.value.code == status


def entry(out: Path) -> dict[str, Any]:
    (found,) = json.loads((out / "trust.json").read_text())["cells"].values()
    return dict(found)


@pytest.fixture
def fixed(tmp_path: Path) -> list[object]:
    """The command for a model whose map is the same for every image, on 15 patients."""
    fixed_map_bundle(tmp_path / "fixed")
    make_dataset(tmp_path / "data", 30)
    line: list[object] = ["trust", "--model", tmp_path / "fixed", "--data", f"coco={tmp_path / 'data'}", "--threads", 1]
    return [*line, "--engine", "onnxruntime-cpu", "--probe", "randomisation", "--pairs", 40]


def test_a_map_of_positions_alone_fails(
    tmp_path: Path, fixed: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        [
            *fixed,
            "--seeds",
            2,
            "--blocks",
            2,
            "--mode",
            "cascade",
            "--mode",
            "independent",
            "--mode",
            "text",
            "--out",
            tmp_path / "t",
        ]
    )
    found = entry(tmp_path / "t")
    words = {question["question"]: question["word"] for question in found["questions"]}
    assert words == {"randomisation_spearman": "fail", "randomisation_ssim": "fail", "randomisation_roc_auc": "fail"}
    assert {question["value"] for question in found["questions"]} == {0.0}
    assert found["facts"]["layers_of_the_score_only"] == found["facts"]["layers"] == 2
    assert found["facts"]["below_two_patients"] == {"spearman": None, "ssim": None}
    assert found["passes"] == found["images"] * (1 + 2 * (2 + 2 + 1))
    said = capsys.readouterr().out
    assert "2 of 2 layers decide the score but not the map: no learnt layer feeds the map" in said
    assert "mean over the seeds: Spearman never, SSIM never" in said
    assert (
        "prompts exchanged: Spearman 1.00" in said and "each block alone, from the output: Spearman 1.00, 1.00" in said
    )
    rows = pq.read_table(tmp_path / "t" / found["file"]).to_pylist()
    logits = {
        (row["seed"], row["step"]): row["logit"]
        for row in rows
        if row["mode"] == "cascade" and row["case_id"] == "case0000"
    }
    assert len(set(logits.values())) == len(logits) >= 4, "the weights did change"
    text = (tmp_path / "t" / "trust.csv").read_text()
    assert text.count("fail") >= 3 and "randomisation_ssim" in text


def test_a_killed_run_goes_on_with_equal_rows(
    tmp_path: Path, fixed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [*fixed, "--seeds", 2, "--blocks", 2]
    run([*whole, "--out", tmp_path / "whole"])
    calls, asked = 0, CpuEngine._run

    def stopping(self: CpuEngine, *inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return asked(self, *inputs)

    with monkeypatch.context() as patch:
        patch.setattr(CpuEngine, "_run", stopping)
        run([*whole, "--out", tmp_path / "cut"], 130)
    kept = sorted(path.name for path in (tmp_path / "cut").glob("cells/*.parts/*"))
    assert kept == ["000000.parquet", "000001.parquet"], "the model as it is, and the first step"
    totals, counted = list[int](), list[int]()

    @contextmanager
    def cell(self: PlainProgress, title: str, total: int, unit: str = "cases") -> Iterator[Callable[[int], None]]:
        totals.append(total)
        yield counted.append

    monkeypatch.setattr(PlainProgress, "cell", cell)
    run([*whole, "--out", tmp_path / "cut"])
    assert [sum(counted)] == totals, "the progress ends at its total"
    one, other = (entry(tmp_path / name) for name in ("cut", "whole"))
    assert one["made"] == 4 * one["images"], "the model as it is is asked again for the comparison"
    tables = [pq.read_table(tmp_path / name / found["file"]) for name, found in (("cut", one), ("whole", other))]
    assert tables[0].equals(tables[1])
    assert one["questions"] == other["questions"]


def test_the_cascade_begins_at_the_output_and_leaves_the_head_alone(tmp_path: Path) -> None:
    bundle = stacked_bundle(tmp_path / "stacked")

    def plan(**options: Any) -> list[tuple[str, int, int, list[str]]]:
        probe = RandomisationProbe(ProbeOptions(**options))
        assert probe.steps(bundle) == 1 + len(probe.plan(bundle))
        return [
            (each.mode, each.seed, each.step, [layer.tensors[0] for layer in each.layers])
            for each in probe.plan(bundle)
        ]

    whole = ["project", "third", "second", "first"]
    assert plan(seed=0, seeds=1, blocks=3) == [
        ("cascade", 0, 1, whole[:2]),
        ("cascade", 0, 2, whole[:3]),
        ("cascade", 0, 3, whole),
    ], "4 layers in 3 steps: 4/3 and 8/3 are rounded up"
    assert plan(seeds=2, seed=7, blocks=2, modes=("independent", "text")) == [
        ("independent", 7, 1, whole[:2]),
        ("independent", 7, 2, whole[2:]),
        ("text", 7, 1, []),
        ("independent", 8, 1, whole[:2]),
        ("independent", 8, 2, whole[2:]),
        ("text", 8, 1, []),
    ]
    assert len(plan(seeds=1, blocks=10)) == 4, "there are no more steps than layers"


def test_each_pair_is_compared_with_itself(tmp_path: Path) -> None:
    """All rows of an independent loop: the graph with other weights, asked about one image at a time."""
    bundle = stacked_bundle(tmp_path / "stacked")
    make_dataset(tmp_path / "data", 9)
    line: list[object] = [
        "trust",
        "--model",
        bundle.path,
        "--data",
        f"coco={tmp_path / 'data'}",
        "--engine",
        "onnxruntime-cpu",
    ]
    probes = ["--probe", "repeat", "--probe", "randomisation"]
    run(
        [
            *line,
            *probes,
            "--blocks",
            1,
            "--seed",
            0,
            "--seeds",
            1,
            "--mode",
            "cascade",
            "--mode",
            "text",
            "--out",
            tmp_path / "t",
        ]
    )
    cells = json.loads((tmp_path / "t" / "trust.json").read_text())["cells"]
    rows, once = (
        pq.read_table(tmp_path / "t" / cells[f"stacked--coco--{probe}"]["file"]).to_pylist()
        for probe in ("randomisation", "repeat")
    )
    trained = {(row["case_id"], row["finding"]): row["logit"] for row in rows if row["mode"] == "trained"}
    assert trained == {(row["case_id"], row["finding"]): row["logit"] for row in once} and len(trained) == 6
    prompts, graph = bundle.prompt_set("coco"), RandomisedGraph(bundle)
    feeding = [layer for layer in graph.layers if layer.feeds_saliency]
    with graph.bundle(feeding, 0, "permute") as random, CpuEngine(random) as other, CpuEngine(bundle) as engine:
        for mode, asked, text in (
            ("cascade", other, prompts.features),
            ("text", engine, exchanged_prompts(prompts, 0).features),
        ):
            for row in rows:
                if row["mode"] == mode:
                    image = read_grey(tmp_path / "data" / "images" / f"{row['case_id']}.png")
                    pixels = to_model(image, bundle.manifest.geometry)[None, None]
                    place = CLASSES.index(row["finding"])
                    before, after = engine.run(pixels, prompts.features), asked.run(pixels, text)
                    alike = spearman(before.saliency[:, place], after.saliency[:, place])
                    assert row["spearman"] == pytest.approx(alike[0]), row
                    assert row["logit"] == pytest.approx(after.logits[0, place])
