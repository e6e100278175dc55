"""A model repository in a real Triton, on the CPU: its answers against those of `xbench-fast serve`.

Slow job: XBENCH_TRITON=1 installs nvidia-pytriton 0.7.0, whose wheel holds a Triton server, into a virtual environment
of its own (1 GB, minutes); XBENCH_TRITON=DIR takes one that has it. That Triton brings its Python backend and no other.
ONNX Runtime and DALI run inside it (tests/triton_backends), so that what is tried of the repository is everything that
Triton's core reads and does: configurations, batching, warm-up, labels, ensembles. Its own ONNX Runtime, TensorRT and
DALI backends are not.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving_process import ServerProcess
from synthetic import SIZE, make_bundle, prompt_set, save_graph
from xbench_fast.engines.geometry import Geometry

pytestmark = pytest.mark.skipif(
    "XBENCH_TRITON" not in os.environ, reason="set XBENCH_TRITON=1 to start a Triton server"
)

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
http = pytest.importorskip("tritonclient.http")
grpc = pytest.importorskip("tritonclient.grpc")

PIXELS = np.random.default_rng(3).integers(0, 256, (16, 1, SIZE, SIZE), dtype=np.uint8)
MODELS = (("blocks-32", "coco"), ("several-32", "coco"), ("several-32", "other"))


@dataclass(frozen=True)
class Triton:
    http: str
    grpc: str
    repository: Path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the server: numpy<2 is its own condition, and so it cannot be this one."""
    given = os.environ["XBENCH_TRITON"]
    if given != "1":
        return Path(given)
    folder = tmp_path_factory.mktemp("pytriton") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    wanted = ["nvidia-pytriton==0.7.0", "numpy<2", f"onnxruntime=={version('onnxruntime')}", "nvidia-dali-cuda120"]
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton")
    graph = save_graph(folder / "blocks.onnx")
    (folder / "models").mkdir()
    make_bundle(folder / "models" / "blocks-32", graph=graph)
    several: Any = {"several": True, "weights": "demo", "sets": ("coco", "other")}
    make_bundle(folder / "models" / "several-32", graph=graph, geometry=Geometry("crop", 32, 40, "bicubic"), **several)
    return folder / "models"


@pytest.fixture(scope="module")
def triton(environment: Path, bundles: Path) -> Iterator[Triton]:
    from xbench_fast.export.cli import main

    repository = bundles.parent / "repository"
    line = ["triton", "--model", "all", "--bundles", str(bundles), "--out", str(repository), "--device", "cpu"]
    assert main([*line, "--jpeg", "--text-input", "--max-delay-ms", "50"]) == 0
    packages = next((environment / "lib").glob("python3*/site-packages"))
    backends = _backends(packages / "pytriton" / "tritonserver", bundles.parent / "backends")
    ports = [_free_port() for _ in range(2)]
    # Triton's Python backend needs the libpython this environment was made with; another one kills it at its start.
    libraries = [sysconfig.get_config_var("LIBDIR"), str(packages / "nvidia_pytriton.libs")]
    variables = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(packages),
    }
    server = [str(packages / "pytriton" / "tritonserver" / "bin" / "tritonserver")]
    server += [f"--model-repository={repository}", f"--backend-directory={backends}", "--allow-metrics=false"]
    server += [f"--http-port={ports[0]}", f"--grpc-port={ports[1]}", "--http-address=127.0.0.1"]
    log = bundles.parent / "triton.txt"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*server, "--grpc-address=127.0.0.1"], stdout=stream, stderr=subprocess.STDOUT, env=variables
        )
    try:
        with http.InferenceServerClient(f"127.0.0.1:{ports[0]}") as asked:
            for _ in range(1800):
                if process.poll() is not None or _ready(asked):
                    break
                time.sleep(0.1)
            assert process.poll() is None and _ready(asked), log.read_text()
        yield Triton(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", repository)
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(bundles: Path) -> Iterator[ServerProcess]:
    with ServerProcess(bundles, bundles.parent, "--prompt-set", "coco") as process:
        yield process


def _backends(root: Path, folder: Path) -> Path:
    """Triton's own Python backend with the stub for this Python, and the two written in Python.

    Triton starts the stub that lies beside the backend, and no option names another. The wheel keeps those of each
    version of Python apart, and its folder is not to be changed: it can be somebody's environment.
    """
    stub = root / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}" / "triton_python_backend_stub"
    shutil.copytree(root / "backends" / "python", folder / "python")
    shutil.copy(stub, folder / "python")
    for source in (Path(__file__).parents[2] / "triton_backends").glob("*.py"):
        (folder / source.stem).mkdir()
        shutil.copy(source, folder / source.stem / "model.py")
    return folder


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _ready(asked: Any) -> bool:
    try:
        return bool(asked.is_server_ready())
    except OSError:
        return False


def tensor(module: Any, name: str, array: Any, datatype: str) -> Any:
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def served(server: ServerProcess, model: str, chosen: str, pixels: Any, names: list[str]) -> dict[str, Any]:
    outputs = [http.InferRequestedOutput(name) for name in names]
    with http.InferenceServerClient(server.address) as asked:
        answer = asked.infer(
            model, [tensor(http, "pixels", pixels, "UINT8")], outputs=outputs, parameters={"prompt_set": chosen}
        )
        return {name: answer.as_numpy(name) for name in names}


def test_every_model_is_ready(triton: Triton) -> None:
    names = {path.name for path in triton.repository.iterdir()}
    with grpc.InferenceServerClient(triton.grpc) as asked:
        index = {item.name: item.state for item in asked.get_model_repository_index().models}
        assert index == dict.fromkeys(names, "READY") and len(names) == 10
        assert asked.get_server_metadata().version == "2.51.0"
        told = asked.get_model_config("several-32--coco").config
        assert told.parameters["xbench.weights"].string_value == "demo"
    assert (triton.repository / "several-32--coco" / "batches.txt").read_text().startswith("1\n"), "no warm-up"


@pytest.mark.parametrize(("model", "chosen"), MODELS)
@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_answers_equal_serves(triton: Triton, server: ServerProcess, model: str, chosen: str, module: Any) -> None:
    names = ["logits", "saliency", *(["logits_negative"] if model == "several-32" else [])]
    wanted = served(server, model, chosen, PIXELS, names)
    with module.InferenceServerClient(triton.http if module is http else triton.grpc) as asked:
        for part in (slice(0, 1), slice(3, 7), slice(None)):
            given = [tensor(module, "pixels", PIXELS[part], "UINT8")]
            answer = asked.infer(f"{model}--{chosen}", given)
            for name in names:
                found = answer.as_numpy(name)
                assert found.dtype == np.float32 and np.array_equal(found, wanted[name][part], equal_nan=True)


def test_requests_are_joined(triton: Triton, server: ServerProcess) -> None:
    """One image each, and still some of Triton's batches hold several; every answer is that of its own image."""
    wanted = served(server, "blocks-32", "coco", PIXELS, ["logits"])["logits"]
    log = triton.repository / "blocks-32--coco" / "batches.txt"
    before = len(log.read_text().split())
    with http.InferenceServerClient(triton.http, concurrency=16) as asked:
        pending = [asked.async_infer("blocks-32--coco", [tensor(http, "pixels", one[None], "UINT8")]) for one in PIXELS]
        for number, answer in enumerate(pending):
            assert np.array_equal(answer.get_result().as_numpy("logits")[0], wanted[number])
    sizes = [int(size) for size in log.read_text().split()][before:]
    assert sum(sizes) == 16 and max(sizes) > 1


def test_labels_are_the_findings(triton: Triton, server: ServerProcess) -> None:
    wanted = served(server, "blocks-32", "coco", PIXELS[:1], ["logits"])["logits"][0]
    best = int(np.argmax(wanted))
    with http.InferenceServerClient(triton.http) as asked:
        output = http.InferRequestedOutput("logits", class_count=1)
        given = [tensor(http, "pixels", PIXELS[:1], "UINT8")]
        found = asked.infer("blocks-32--coco", given, outputs=[output]).as_numpy("logits")
    value, index, label = found.reshape(-1)[0].decode().split(":")
    assert (int(index), label) == (best, prompt_set().findings[best]) and abs(float(value) - wanted[best]) < 1e-4


def test_text_features_may_be_sent(triton: Triton, server: ServerProcess) -> None:
    wanted = served(server, "blocks-32", "coco", PIXELS, ["logits"])["logits"]
    features = prompt_set().features
    with http.InferenceServerClient(triton.http) as asked:
        given = [tensor(http, "pixels", PIXELS, "UINT8"), tensor(http, "text", features, "FP32")]
        assert np.array_equal(asked.infer("blocks-32", given).as_numpy("logits"), wanted)


@pytest.mark.parametrize(
    ("model", "step"), [("blocks-32", "squash-32-32-bilinear"), ("several-32", "crop-32-40-bicubic")]
)
def test_an_ensemble_takes_a_jpeg(triton: Triton, server: ServerProcess, model: str, step: str) -> None:
    """The pixels are close to those of an evaluation; for these pixels the answer is the served one to the bit."""
    from xbench_fast.runtime.data.images.resizing import to_model

    y, x = np.mgrid[0:300, 0:411] / 300.0
    film = np.clip(120 + 80 * np.cos(6 * x) * np.sin(5 * y), 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(film).save(stream, "JPEG", quality=95)
    given = [tensor(http, "image", np.frombuffer(stream.getvalue(), np.uint8)[None], "UINT8")]
    with http.InferenceServerClient(triton.http) as asked:
        pixels = asked.infer(f"jpeg-{step}", given).as_numpy("pixels")
        answer = asked.infer(f"{model}--coco--jpeg", given)
    mode, size, resize, kernel = step.split("-")
    geometry = Geometry(mode, int(size), int(resize), kernel)  # type: ignore[arg-type]
    error = np.abs(pixels[0, 0].astype(int) - to_model(np.asarray(Image.open(io.BytesIO(stream.getvalue()))), geometry))
    assert pixels.shape == (1, 1, SIZE, SIZE) and error[3:-3, 3:-3].max() <= 3
    wanted = served(server, model, "coco", pixels, ["logits", "saliency"])
    for name, array in wanted.items():
        assert np.array_equal(answer.as_numpy(name), array)
