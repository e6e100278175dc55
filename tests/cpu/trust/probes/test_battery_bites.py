"""The trust tests as a user runs them: models that are made to fail a question fail it, and the trained one passes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb
from box_world import command
from PIL import Image
from synthetic import CLASSES
from trust_graphs import deaf_bundle, edge_bundle
from xbench_fast.demo.phantoms import phantoms, write
from xbench_fast.engines.bundle import Bundle
from xbench_fast.metrics_gpu.trust.similarity import spearman
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.stored_maps import load_maps
from xbench_fast.runtime.trust.probes.randomised import RandomisedGraph

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

QUESTIONS = ("finds the region", "answers the image", "answers the prompt")
PHANTOMS = 60


@pytest.fixture(scope="module")
def demo(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained demo model as a bundle, and phantoms of the split that it never saw. No other model of the tests has
    learnt anything."""
    made = tmp_path_factory.mktemp("demo")
    shutil.copytree(root / "demo" / "bundles", made / "bundles")
    write(made / "phantoms", phantoms("test", PHANTOMS))
    return made


def trusted(run: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(dataset, question) -> the verdict of `study trust`."""
    assert command("study", "trust", run, "--replicates", 200, "--quiet") == 0
    rows = json.loads((run / "studies" / "trust" / "trust.json").read_text())["verdicts"]
    return {(row["dataset"], row["question"]): row for row in rows}


def probed(out: Path, bundle: Path, *line: object) -> dict[str, Any]:
    """The record of one probe of the command `trust`."""
    given = ("--engine", "onnxruntime-cpu", "--threads", 1, "--out", out)
    assert command("trust", "--model", bundle, *line, *given) == 0
    (found,) = json.loads((out / "trust.json").read_text())["cells"].values()
    return dict(found)


def test_the_trained_demo_model_passes_on_phantoms(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle,) = (demo / "bundles").iterdir()
    data = ("--data", f"phantoms={demo / 'phantoms'}", "--data-option", "phantoms.reader=coco")
    options = ("--probe", "randomisation", "--pairs", 30, "--blocks", 1, "--seeds", 2)
    found = probed(demo / "t", bundle, *data, *options)
    assert [question["word"] for question in found["questions"]] == ["pass"] * 3, found["questions"]
    assert found["facts"]["layers"] == 49 and found["facts"]["layers_of_the_score_only"] == 4
    assert found["facts"]["two_patients"]["spearman"] > 0.5
    assert all(abs(step["spearman"]) < 0.3 for step in found["facts"]["steps"])
    said = capsys.readouterr().out
    assert (
        "demo model trained on generated phantoms" in said and "4 of 49 layers decide the score but not the map" in said
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_the_demo_model_with_random_weights_passes_no_question(
    demo: Path, root: Path, tmp_path: Path, seed: int
) -> None:
    """As it is it passes all three on phantoms (tests/cpu/reporting/studies); the margins are there for such maps."""
    (path,) = (demo / "bundles").iterdir()
    graph, source = RandomisedGraph(Bundle.load(path)), root / "demo" / "chestxdet10"
    with graph.bundle(graph.layers, seed, "permute") as random:
        radiographs = xb.load_dataset("chestxdet10", source, patients="patients.csv", frame=512)
        xb.evaluate(
            str(random.path),
            [xb.load_dataset("phantoms", demo / "phantoms", reader="coco"), radiographs],
            out=tmp_path / "run",
            engine="onnxruntime-cpu",
        )
    rows = trusted(tmp_path / "run")
    assert len(rows) == 6
    for key, row in rows.items():
        assert row["verdict"] != "pass" and -0.04 < row["difference"] < 0.03, (key, row)


def two_findings(root: Path, count: int = 24) -> Path:
    """A dataset in COCO's form: dark images, each of a patient of its own, with a bright Mass and a bright Effusion."""
    rng = np.random.default_rng(2)
    (root / "images").mkdir(parents=True)
    images, annotations = [], []
    for place in range(count):
        picture, name = rng.integers(0, 60, (64, 64), np.uint8), f"i{place:02d}"
        for category, left in enumerate(rng.permutation([0, 32]).tolist(), 1):
            x, y = left + int(rng.integers(2, 12)), int(rng.integers(2, 44))
            picture[y : y + 16, x : x + 16] += rng.integers(60, 190, (16, 16), np.uint8)
            annotations.append({"image_id": name, "category_id": category, "bbox": [x, y, 16, 16]})
        Image.fromarray(picture).save(root / "images" / f"{name}.png")
        images.append({"id": name, "file_name": f"{name}.png", "height": 64, "width": 64, "patient_id": name})
    categories = [{"id": number, "name": name} for number, name in enumerate(CLASSES, 1)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(document))
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_findings(tmp_path_factory.mktemp("two") / "data")


def evaluated(out: Path, data: Path, models: Sequence[object]) -> Path:
    given = [word for model in models for word in ("--model", model)]
    assert command("eval", "--data", f"coco={data}", *given, "--threads", 1, "--out", out) == 0
    return out


def test_a_map_that_ignores_its_prompt_answers_the_image_alone(tmp_path: Path, data: Path) -> None:
    bundle = deaf_bundle(tmp_path / "deaf")
    rows = trusted(evaluated(tmp_path / "run", data, [bundle.path]))
    assert [rows["coco", question]["verdict"] for question in QUESTIONS] == ["pass", "pass", "fail"]
    prompt = rows["coco", "answers the prompt"]
    assert prompt["difference"] == prompt["difference_low"] == prompt["difference_high"] == 0 and prompt["p"] == 1


def test_the_same_bundle_twice_has_the_same_maps(tmp_path: Path, data: Path) -> None:
    bundle = deaf_bundle(tmp_path / "deaf")
    runs = [evaluated(tmp_path / name, data, [bundle.path]) for name in ("one", "two")]
    for name in ("flipped_hits", "moved_maxima", "changed_truth"):
        assert command("compare", *runs, "--fail-if", f"{name} > 0") == 0
    one, two = (load_maps(load_run(run), "deaf", "coco").saliency for run in runs)
    assert one is not None and two is not None and (spearman(one, two) == 1).all()
    found = probed(tmp_path / "t", bundle.path, "--data", f"coco={data}", "--probe", "repeat")
    assert found["facts"] == {"logit_change": 0, "map_change": 0}


def test_an_edge_detector_stays_similar_and_fails(tmp_path: Path, data: Path) -> None:
    """Gradients, which are not learnt, and a learnt layer that adds them up: random weights add them up as well."""
    line = (
        "--data",
        f"coco={data}",
        "--probe",
        "randomisation",
        "--pairs",
        48,
        "--blocks",
        1,
        "--seed",
        0,
        "--seeds",
        2,
    )
    found = probed(
        tmp_path / "t", edge_bundle(tmp_path / "edges").path, *line, "--mode", "cascade", "--mode", "independent"
    )
    assert [question["word"] for question in found["questions"]] == ["fail"] * 3, found["questions"]
    assert found["facts"]["layers"] == 1 and found["facts"]["layers_of_the_score_only"] == 0
    assert all(step["spearman"] > 0.9 for step in found["facts"]["steps"]), "in both modes"


def test_a_planted_gap_between_views_is_found_in_phantoms(demo: Path, tmp_path: Path) -> None:
    from xbench_fast.runtime.data.datasets.formats.coco import Coco

    cases, rng = Coco(demo / "phantoms").cases(), np.random.default_rng(4)
    views = {case.case_id: ("AP", "PA")[place % 2] for place, case in enumerate(cases)}
    table = "".join(f"{name},{view},{'FM'[rng.integers(2)]}\n" for name, view in views.items())
    (tmp_path / "who.csv").write_text(f"case,view,sex\n{table}")
    for name, missed in (("fair", 0.3), ("unfair", 0.7)):
        for case in cases:
            for finding, region in case.regions.items():
                cells = region.mask(224, 224).reshape(14, 16, 14, 16).mean(axis=(1, 3), dtype=np.float32)
                away = rng.random() < (missed if views[case.case_id] == "AP" else 0.3)
                target = tmp_path / name / case.case_id / f"{finding}.npy"
                target.parent.mkdir(parents=True, exist_ok=True)
                np.save(target, np.flipud(cells) if away else cells)
    run = tmp_path / "run"
    models = [word for name in ("fair", "unfair") for word in ("--model", f"maps:{tmp_path / name}")]
    data_options = ("--data", f"phantoms={demo / 'phantoms'}", "--data-option", "phantoms.reader=coco")
    assert command("eval", *data_options, *models, "--out", run) == 0
    given = ("--attributes", f"phantoms={tmp_path / 'who.csv'}", "--replicates", 200, "--quiet")
    assert command("study", "subgroups", run, *given) == 0
    told = json.loads((run / "studies" / "subgroups" / "subgroups.json").read_text())
    words = {row["model"]: row for row in told["summary"]}
    unfair = words["maps:unfair"]
    assert (unfair["verdict"], unfair["attribute"], unfair["first"]) == ("fail", "view", "AP")
    assert unfair["standardised"] < -0.15
    failed = [(row["model"], row["attribute"]) for row in told["gaps"] if row["verdict"] == "fail"]
    assert failed == [("maps:unfair", "view")] and words["maps:fair"]["verdict"] != "fail"
