"""Stand-in weights (docs/parity.md §2) against the goldens' own module and against a loop."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.export.checkpoints.stand_in import fill, image

NAMES = (
    ("model.decoder.layers.0.self_attn.in_proj_weight", (12, 4)),
    ("image_encoder.res_features.0.weight", (4, 3, 7, 7)),
    ("image_encoder.res_features.1.weight", (17,)),
    ("image_encoder.res_features.1.bias", (17,)),
    ("image_encoder.res_features.1.running_mean", (17,)),
    ("image_encoder.res_features.1.running_var", (17,)),
    ("image_encoder.res_features.1.num_batches_tracked", ()),
    ("visual.class_embedding", (9,)),
    ("visual.positional_embedding", (5, 9)),
    ("model.decoder.layers.0.self_attn.in_proj_bias", (12,)),
    ("logit_scale", ()),
    ("blocks.0.gamma", (6,)),
    ("scalar", ()),
    ("one", (1,)),
)


@pytest.fixture(scope="module")
def official(shared: Path) -> ModuleType:
    """The goldens' module, imported from its file."""
    spec = importlib.util.spec_from_file_location("parity_weights", shared / "parity" / "weights.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "shape"), NAMES)
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_equal_to_the_goldens_module(official: ModuleType, name: str, shape: tuple[int, ...], seed: int) -> None:
    ours, theirs = np.asarray(fill(name, shape, seed)), np.asarray(official.fill(name, shape, seed))
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape == shape
    assert ours.tobytes() == theirs.tobytes()
    assert image(name, (2, *shape), seed).tobytes() == official.image(name, (2, *shape), seed).tobytes()


@given(st.text(max_size=12), st.integers(0, 2**40), st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=60)
def test_equal_to_a_loop(name: str, seed: int, rows: int, columns: int) -> None:
    """One value after the other, in exact Python arithmetic up to the two float32 roundings."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "little")
    stream = np.random.PCG64(key)
    expected = []
    for _ in range(rows * columns):
        value = (int(stream.random_raw()) >> 40) / 2**23 - 1.0
        expected.append(np.float32(value * float(np.float32(math.sqrt(3.0)))))
    assert image(name, (rows, columns), seed).ravel().tolist() == [float(value) for value in expected]


def test_values_depend_on_name_and_seed() -> None:
    base = fill("a.weight", (50, 50))
    assert not np.array_equal(base, fill("b.weight", (50, 50)))
    assert not np.array_equal(base, fill("a.weight", (50, 50), seed=1))
    assert abs(float(base.std()) * math.sqrt(50) - 1) < 0.05
    assert abs(float(fill("a.weight", (5000,)).mean()) - 1) < 0.01


def test_empty_shape_holds_nothing() -> None:
    assert fill("a.weight", (0, 4)).shape == (0, 4)


def test_listing_models_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'onnx', 'transformers', 'open_clip')));"
        "from xbench_fast.export import Adapter, load_adapter, stand_in_adapter;"
        "from xbench_fast.export.models.model_registry import MODELS;"
        "from xbench_fast.engines.errors import MissingExtraError\n"
        "try: load_adapter('kad', 'x.pt')\n"
        "except MissingExtraError as error: print(MODELS.names(), error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ["afloc", "biomedclip", "biovil", "biovil_t", "carzero", "chexzero", "clip", "devide", "kad", "mavl"]
    assert str([*names, "medklip", "xrv"]) in done.stdout and "xbench-fast[export]" in done.stdout
