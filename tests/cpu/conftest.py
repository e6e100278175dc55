"""What many files here need: real exports, made once, and the sweep's CUDA source on this machine's CPU."""

from __future__ import annotations

import ctypes
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import cupy_on_cpu
import device_on_cpu
import fake_tensorrt
import pytest
from made_once import made_once
from report_world import chromium
from serving_pages import Visit, visiting
from serving_process import ServerProcess
from xbench_fast.engines.bundle import Bundle
from xbench_fast.export import Adapter, stand_in_adapter
from xbench_fast.export.pipeline import BundleOptions, ExportResult, export_adapter


@dataclass(frozen=True)
class Exported:
    """A model with stand-in weights and the bundle it became."""

    name: str
    variant: str
    result: ExportResult
    lines: list[str]

    @cached_property
    def adapter(self) -> Adapter:
        return stand_in_adapter(self.name, self.variant)

    @property
    def folder(self) -> Path:
        return self.result.bundle.path


@pytest.fixture(scope="session")
def copy_product(root: Path) -> Callable[[Path], Any]:
    """Copies what an installation needs of the repository to a folder, as a user would get it."""
    kept = (".git", ".venv*", ".*_cache", ".hypothesis", ".typecheck", "__pycache__", "*.egg-info", "build", "work",
            "out", "tests")  # fmt: skip
    return lambda folder: shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*kept))


@pytest.fixture(scope="session")
def pubmedbert() -> Path | None:
    """The folder of PubMedBERT's vocabulary, where the shared fixtures are on this machine."""
    default = Path(__file__).resolve().parents[2].parent / "shared"
    folder = Path(os.environ.get("XBENCH_SHARED", default)) / "data" / "tokenizers" / "pubmedbert"
    return folder if folder.is_dir() else None


def _export(factory: pytest.TempPathFactory, name: str, variant: str, tokenizer: Path | None = None) -> Exported:
    for package in ("torch", "onnx", "onnxscript", "onnxruntime", "tokenizers"):
        pytest.importorskip(package)
    with made_once(factory, f"export-{name}-{variant}") as folder:
        if not folder.is_dir():
            draft, lines = factory.mktemp("export"), list[str]()
            options = BundleOptions(tokenizer=tokenizer, progress=lines.append)
            made = export_adapter(stand_in_adapter(name, variant), draft / "out", options)
            told = {field.name: getattr(made, field.name) for field in fields(made) if field.name != "bundle"}
            (draft / "told").write_bytes(pickle.dumps((told, lines)))
            draft.rename(folder)
    told, lines = pickle.loads((folder / "told").read_bytes())
    return Exported(name, variant, ExportResult(Bundle.load(folder / "out" / f"{name}-{variant}"), **told), lines)


@pytest.fixture(scope="session")
def kad_demo(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """KAD with a few hundred thousand weights, through the code of the real one."""
    return _export(tmp_path_factory, "kad", "demo")


@pytest.fixture(scope="session")
def kad_224(tmp_path_factory: pytest.TempPathFactory, pubmedbert: Path | None) -> Exported:
    """KAD-224, full size."""
    return _export(tmp_path_factory, "kad", "224", pubmedbert)


@pytest.fixture(scope="session")
def clip_b32(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """CLIP ViT-B/32, full size."""
    pytest.importorskip("open_clip")
    return _export(tmp_path_factory, "clip", "vit-b-32")


@pytest.fixture(params=["kad_demo", "kad_224", "clip_b32"])
def exported(request: pytest.FixtureRequest) -> Exported:
    """Each of the exports in turn."""
    found: Exported = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; skips where there is none."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def visit(browser: Any, server: ServerProcess) -> Iterator[Visit]:
    """The page of the test file's server, just loaded."""
    with visiting(browser, server.url) as made:
        yield made


@pytest.fixture(scope="session")
def small_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """All models, small, as bundles with the prompt sets `coco` (six queries) and `single` in one folder.

    One process of a test run makes them, the others wait for it.
    """
    for package in ("torch", "onnx", "onnxscript", "open_clip"):
        pytest.importorskip(package)
    from small_models import MODELS, QUERIES, image_bundle, made_up_set, small_adapter

    with made_once(tmp_path_factory, "small-bundles") as folder:
        if not folder.is_dir():
            draft = tmp_path_factory.mktemp("small")
            (draft / "models").mkdir()
            for seed, name in enumerate(MODELS):
                with pytest.MonkeyPatch.context() as patch:
                    adapter = small_adapter(name, patch)
                    sets = {"coco": made_up_set(adapter, "coco", QUERIES, seed)}
                    sets["single"] = made_up_set(adapter, "single", [("Mass", 1)], seed + 50)
                    image_bundle(adapter, draft / "models" / name, sets)
            draft.rename(folder)
    return {name: Bundle.load(folder / "models" / name) for name in MODELS}


@pytest.fixture(scope="session")
def sweep_library(root: Path, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The sweep's CUDA source as a library of this machine's CPU."""
    if cupy_on_cpu.compiler() is None:
        pytest.skip("no g++ here to run the CUDA source on the CPU")
    target = tmp_path_factory.mktemp("shim") / "sweep.so"
    return ctypes.CDLL(str(cupy_on_cpu.build(target, root / "metrics_gpu/sweep/sweep.cu", "-O2", "-fPIC", "-shared")))


@pytest.fixture
def device(sweep_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CuPy with streams, and TensorRT, over a device made of arrays."""
    fake = device_on_cpu.fake_device(library=sweep_library, count=2)
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt.make("11.4.0.106", fake.streams))
    with cupy_on_cpu.installed(fake):
        yield fake
