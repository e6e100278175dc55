"""A served answer equals the evaluation's, to the bit, for each model.

The models are small (`small_models`); exporting them takes most of the time, about a minute on two idle cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from serving_process import ServerProcess
from synthetic import make_dataset
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.runtime.serving.inference.feature_cache import FeatureCache, KeptFeatures
from xbench_fast.runtime.serving.prometheus_metrics import Metrics

for package in ("torch", "onnx", "onnxscript", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
http = pytest.importorskip("tritonclient.http")

from small_models import MODELS  # noqa: E402
from xbench_fast.export.int8 import Recipe, quantise  # noqa: E402

CASES = 9
OUTPUTS = ("logits", "logits_negative", "probabilities", "saliency", "frames", "mask")
TAUS = (0.0, 0.37, 0.5, 1.0)


@pytest.fixture(scope="module")
def folder(small_bundles: dict[str, Bundle], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of all models, a dataset, and a run directory in which every batch of 4 but the last is full."""
    made = tmp_path_factory.mktemp("serve-models")
    (made / "models").symlink_to(small_bundles[MODELS[0]].path.parent)
    make_dataset(made / "data", CASES)
    for reader, out in (("coco", "run"), ("single", "alone")):
        line = [sys.executable, "-m", "xbench_fast.runtime.cli", "eval", "--all", "--bundles", str(made / "models")]
        line += ["--data", f"films={made / 'data'}", "--data-option", "films.reader=coco", "--out", str(made / out)]
        line += ["--data-option", f"films.prompts={reader}", "--batch", "4"]
        line += ["--threads", "1", "--engine", "onnxruntime-cpu"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    options = ("--max-batch", 5, "--max-delay-ms", 50, "--prompt-set", "coco", "--queue", 200)
    with ServerProcess(folder / "models", folder, *options) as process:
        yield process
        assert process.stop() == 0


def rows(folder: Path, model: str, run: str = "run") -> dict[tuple[str, str], dict[str, Any]]:
    document = json.loads((folder / run / "run.json").read_text())
    table = pq.read_table(folder / run / document["cells"][f"{model}--films"]["file"])
    return {(row["case_id"], row["finding"]): row for row in table.to_pylist()}


def files(folder: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted((folder / "data" / "images").iterdir())}


def inputs(*images: bytes) -> list[Any]:
    tensor = http.InferInput("image", [len(images)], "BYTES")
    tensor.set_data_from_numpy(np.array([*images, None], object)[:-1])
    return [tensor]


def compare(result: Any, place: int, case: str, expected: dict[tuple[str, str], dict[str, Any]], tau: float) -> int:
    """One image of an answer against the rows of an evaluation; returns how many maps were compared."""
    findings = [name.decode() for name in result.as_numpy("findings")]
    values = {name: result.as_numpy(name)[place] for name in OUTPUTS}
    maps = 0
    for index, finding in enumerate(findings):
        row = expected.get((case, finding))
        if row is None:
            continue
        assert values["logits"][index] == np.float32(row["logit"])
        assert values["probabilities"][index] == 1 / (1 + np.exp(-np.float64(row["logit"]))) or np.isclose(
            values["probabilities"][index], 1 / (1 + np.exp(-np.float64(row["logit"]))), rtol=1e-15
        )
        negative = values["logits_negative"][index]
        assert np.isnan(negative) if row["logit_negative"] is None else negative == np.float32(row["logit_negative"])
        if row["area"] is None:
            continue
        maps += 1
        stored = np.array(row["saliency"], np.float32)
        np.testing.assert_array_equal(values["saliency"][index].reshape(-1).view(np.uint32), stored.view(np.uint32))
        np.testing.assert_array_equal(values["frames"], row["frame"])
        assert int(values["mask"][index].sum()) == row["area"][round(tau * 100)]
    return maps


@pytest.mark.parametrize("model", MODELS)
def test_a_served_answer_is_the_evaluations(folder: Path, server: ServerProcess, model: str) -> None:
    """One by one, all in one request, and many requests at once that share batches of other sizes."""
    expected, images = rows(folder, model), files(folder)
    client = http.InferenceServerClient(server.address, concurrency=CASES, network_timeout=120, connection_timeout=120)
    outputs = [http.InferRequestedOutput(name) for name in (*OUTPUTS, "findings")]
    maps = 0
    for (case, image), tau in zip(images.items(), TAUS * 3, strict=False):
        alone = client.infer(model, inputs(image), outputs=outputs, parameters={"tau": tau})
        maps += compare(alone, 0, case, expected, tau)
    together = client.infer(model, inputs(*images.values()), outputs=outputs)
    assert maps == sum(compare(together, place, case, expected, 0.5) for place, case in enumerate(images)) > 3
    pending = [client.async_infer(model, inputs(image), outputs=outputs) for image in images.values()]
    assert maps == sum(
        compare(item.get_result(), 0, case, expected, 0.5) for case, item in zip(images, pending, strict=True)
    )
    client.close()


@pytest.mark.parametrize("model", [*MODELS, "kad int8", "clip int8", "medklip int8"])
def test_what_is_kept_gives_the_bits_of_the_whole_graph(
    small_bundles: dict[str, Bundle], tmp_path: Path, model: str
) -> None:
    """Other numbers of images and texts than those that are compared at the start."""
    bundle = small_bundles[model.split()[0]]
    prompts, rng = bundle.prompt_set("coco"), np.random.default_rng(0)
    pixels = rng.integers(0, 256, (5, 1, *2 * (bundle.manifest.geometry.size,)), np.uint8)
    if "int8" in model:
        manifest = replace(bundle.manifest, precision="int8")
        recipe = Recipe("any-cpu", not_learnt=frozenset(manifest.not_learnt))
        quantise(bundle.file("image"), tmp_path / "image.onnx", recipe, [{"pixels": pixels, "text": prompts.features}])
        files = {"image.onnx": tmp_path / "image.onnx"}
        files |= {item.file: bundle.path / item.file for item in manifest.prompt_sets.values()}
        bundle = write_bundle(tmp_path / "low", manifest, files)
    cache = FeatureCache(1 << 28, Metrics())
    with open_engine(bundle, "onnxruntime-cpu", threads=1) as engine:
        texts = [prompts.features[rows] for rows in ([0], [3, 1], range(len(prompts.features)))]
        batches = [pixels[rows] for rows in ([0], [0, 1], [2, 0, 3], range(5))]
        wanted = [[engine.run(batch, text) for text in texts] for batch in batches]
        kept = KeptFeatures(cache, engine)
        kept.run(pixels[:2], prompts.features)
        for batch, answers in zip(batches, wanted, strict=True):
            for text, scores in zip(texts, answers, strict=True):
                for _ in range(2):
                    found = kept.run(batch, text)
                    assert np.array_equal(found.logits, scores.logits, equal_nan=True)
                    assert np.array_equal(found.saliency, scores.saliency, equal_nan=True)
    assert len(cache) == 5


@pytest.mark.parametrize("model", MODELS)
def test_a_set_of_one_query_too(folder: Path, server: ServerProcess, model: str) -> None:
    """One image and one query is where a matrix has a single row; the last batch of the evaluation is one image."""
    expected, images = rows(folder, model, "alone"), files(folder)
    client = http.InferenceServerClient(server.address, network_timeout=120, connection_timeout=120)
    outputs = [http.InferRequestedOutput(name) for name in (*OUTPUTS, "findings")]
    for case, image in images.items():
        alone = client.infer(model, inputs(image), outputs=outputs, parameters={"prompt_set": "single"})
        compare(alone, 0, case, expected, 0.5)
    together = client.infer(model, inputs(*images.values()), outputs=outputs, parameters={"prompt_set": "single"})
    assert sum(compare(together, place, case, expected, 0.5) for place, case in enumerate(images)) == 3
    client.close()


@pytest.mark.parametrize("model", ["kad", "mavl"])
def test_a_selection_is_answered_from_the_whole_set(folder: Path, server: ServerProcess, model: str) -> None:
    """Queries see one another in these models: asking for one finding gives what asking for all gives for it."""
    image = next(iter(files(folder).values()))
    client = http.InferenceServerClient(server.address, network_timeout=120, connection_timeout=120)
    everything = client.infer(model, inputs(image))
    names = http.InferInput("findings", [2], "BYTES")
    names.set_data_from_numpy(np.array([b"Unicorn", b"Mass"], object))
    some = client.infer(model, [*inputs(image), names])
    assert some.as_numpy("findings").tolist() == [b"Unicorn", b"Mass"]
    np.testing.assert_array_equal(some.as_numpy("logits"), everything.as_numpy("logits")[:, [2, 0]])
    client.close()


@pytest.fixture(scope="module")
def repository(folder: Path) -> Path:
    from xbench_fast.export.cli import main

    line = ["triton", "--model", "all", "--bundles", str(folder / "models"), "--out", str(folder / "repository")]
    assert main([*line, "--device", "cpu"]) == 0
    return folder / "repository"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prompt_set", ["coco", "single"])
def test_a_graph_for_triton_gives_the_served_answer(
    repository: Path, server: ServerProcess, model: str, prompt_set: str
) -> None:
    """The set's features are inside it, several prompts are averaged, an image alone is an image among others."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    graph = repository / f"{model}--{prompt_set}" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(5).integers(0, 256, (4, *session.get_inputs()[0].shape[1:]), dtype=np.uint8)
    tensor = http.InferInput("pixels", list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels)
    names = [item.name for item in session.get_outputs()]
    client = http.InferenceServerClient(server.address, network_timeout=120, connection_timeout=120)
    outputs = [http.InferRequestedOutput(name) for name in names]
    served = client.infer(model, [tensor], outputs=outputs, parameters={"prompt_set": prompt_set})
    client.close()
    assert names == ["logits", "saliency", *(["logits_negative"] if prompt_set == "coco" else [])]
    for part in (slice(None), slice(0, 1), slice(1, 4)):
        for name, found in zip(names, session.run(names, {"pixels": pixels[part]}), strict=True):
            wanted = served.as_numpy(name)[part]
            assert found.shape == wanted.shape and np.array_equal(found, wanted, equal_nan=True), (name, part)
