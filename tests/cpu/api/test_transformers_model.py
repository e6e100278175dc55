"""What `xb.transformers_model` refuses; its numbers are compared in tests/cpu/export/test_model_families.py."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("onnx")
from xbench_fast.engines.errors import ConfigError  # noqa: E402

TOWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT = {**TOWER, "vocab_size": 9, "max_position_embeddings": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
VISION = {**TOWER, "image_size": 32, "patch_size": 16}


class Words:
    """A tokenizer whose ids end at `last`."""

    model_max_length, padding_side, pad_token_id, model_input_names = 8, "right", 0, ("input_ids",)

    def __init__(self, last: int = 2) -> None:
        self.last = last

    def __call__(self, texts: list[str], **_: Any) -> dict[str, Any]:
        rows = [[1, 4, self.last, 0, 0, 0, 0, 0] for _ in texts]
        return {"input_ids": rows, "attention_mask": [[1, 1, 1, 0, 0, 0, 0, 0] for _ in texts]}


def clip() -> Any:
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=8))


def processor(**more: Any) -> Any:
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return SimpleNamespace(**{"tokenizer": Words(), "image_processor": images, **more})


def test_what_cannot_be_asked_is_refused_in_a_sentence() -> None:
    model, pixels = clip(), np.zeros((1, 1, 32, 32), np.uint8)
    logits, maps = xb.transformers_model(model, processor())(pixels, ["Mass"])
    assert logits.shape == (1, 1) and maps.shape == (1, 1, 2, 2) and model.training
    with pytest.raises(ConfigError, match=r"^this Linear is no CLIPModel or SiglipModel of transformers; give the"):
        xb.transformers_model(torch.nn.Linear(2, 2), processor())
    with pytest.raises(ConfigError, match=r"is no CLIPModel .*which is `module` of a DistributedDataParallel\.$"):
        xb.transformers_model(torch.nn.DataParallel(model), processor())
    with pytest.raises(ConfigError, match=r"^The processor of this CLIPModel is a Words without 'tokenizer'; give the"):
        xb.transformers_model(model, Words())
    with pytest.raises(ConfigError, match=r"^this CLIPModel has weights of torch.float16; give it in float32"):
        xb.transformers_model(clip().half(), processor())
    odd = transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 40, "width": 40})
    with pytest.raises(ConfigError, match=r"^The image processor of this CLIPModel: .* do not become the 32 x 32 pix"):
        xb.transformers_model(model, processor(image_processor=odd))
    with pytest.raises(ConfigError, match=r"ids \[1, 8\] up to 9, .* \[1, 8\] below 9; .* example transformers\.Auto"):
        xb.transformers_model(model, processor(tokenizer=Words(9)))(pixels, ["Mass"])
    with pytest.raises(
        ConfigError, match=r"no built-in prompt for 'Masss': .*with transformers_model\(\.\.\., prompts"
    ):
        xb.transformers_model(model, processor())(pixels, ["Masss"])
    with pytest.raises(ConfigError, match=r"^The prompts of 'Mass' are no texts; give a text or several\.$"):
        xb.transformers_model(model, processor(), prompts={"Mass": ""})


def test_without_the_extra_export_the_sentence_names_it() -> None:
    program = (
        "import sys\nfor name in ('torch', 'transformers', 'onnx'): sys.modules[name] = None\n"
        "import xbench_fast as xb\n"
        "try: xb.transformers_model(object(), object())\nexcept xb.XBenchError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("A model of transformers needs torch, which is not installed; install")
