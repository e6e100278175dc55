"""The demo's bundle in the package: what an export of its checkpoint gives today, within the parity bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.demo.phantoms import phantoms
from xbench_fast.engines.base import Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.prompts.prompt_encoding import prompt_encoder
from xbench_fast.engines.prompts.prompt_files import read_prompt_file
from xbench_fast.export.cli import main as export
from xbench_fast.export.parity.checks import TOLERANCE

for package in ("torch", "onnx", "onnxscript", "onnxruntime", "tokenizers"):
    pytest.importorskip(package)

PER_EXPORT = ("checksum", "exporter", "files", "parity")
"""Keys of bundle.json that name versions and bytes."""


@pytest.fixture(scope="module")
def both(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    """The packaged bundle, and the one that `make demo` exports."""
    demo, out = root / "demo", tmp_path_factory.mktemp("anew")
    options = {"checkpoint": "kad-demo.pt", "tokenizer": "tokenizer", "prompts": "prompts.yaml"}
    line = [word for name, file in options.items() for word in (f"--{name}", str(demo / file))]
    assert export(["--model", "kad", *line, "--out", str(out)]) == 0
    return Bundle.load(demo / "bundles" / "kad-demo"), Bundle.load(out / "kad-demo")


def close(packaged: NDArray[Any], anew: NDArray[Any]) -> bool:
    """Whether two tensors differ by at most the bound, as a fraction of the largest value."""
    assert packaged.shape == anew.shape and np.isfinite(packaged).all()
    return float(np.abs(packaged - anew).max()) <= TOLERANCE * float(np.abs(anew).max())


def test_it_describes_the_same_model(both: tuple[Bundle, Bundle]) -> None:
    packaged, anew = (json.loads((bundle.path / "bundle.json").read_text()) for bundle in both)
    for name in PER_EXPORT:
        assert packaged.pop(name) and anew.pop(name)
    assert packaged == anew and packaged["checkpoint"]["name"] == "kad-demo.pt"
    tokenizers = [(bundle.path / "tokenizer" / "tokenizer.json").read_bytes() for bundle in both]
    assert tokenizers[0] == tokenizers[1]


@pytest.mark.parametrize("prompt_set", ["phantoms", "chestxdet10"])
def test_its_answers_are_those_of_the_checkpoint(both: tuple[Bundle, Bundle], root: Path, prompt_set: str) -> None:
    if prompt_set == "phantoms":
        images = np.stack([item.image for item in phantoms("test", 8)])[:, None]
    else:
        films = sorted((root / "demo" / "chestxdet10" / "test_data").iterdir())[:4]
        images = np.stack([np.asarray(Image.open(film).resize((224, 224))) for film in films])[:, None]
    answers: list[Scores] = []
    for bundle in both:
        with xb.open_engine(bundle.path, "onnxruntime-cpu", threads=1) as engine:
            answers.append(engine.run(images, bundle.prompt_set(prompt_set).features))
    for name in ("logits", "saliency"):
        assert close(*(np.asarray(getattr(scores, name)) for scores in answers)), name
    assert float(np.ptp(np.asarray(answers[0].saliency), axis=(2, 3)).min()) > 0, "a map is flat"


def test_its_text_tower_encodes_the_same(both: tuple[Bundle, Bundle], root: Path) -> None:
    sets = read_prompt_file(root / "demo" / "prompts.yaml")
    encoded = [prompt_encoder(bundle, threads=1)(sets) for bundle in both]
    for packaged, anew in zip(*encoded, strict=True):
        stored = both[0].prompt_set(packaged.name)
        assert packaged.findings == anew.findings == stored.findings
        assert close(packaged.features, anew.features) and close(stored.features, anew.features)
