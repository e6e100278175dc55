"""`ask` against a server that nobody here wrote: `transformers serve` with a small random Qwen2.5-VL.

It needs the extra `serving` of transformers. Beside the environment of the tests PYTHONPATH=FOLDER is enough, with `pip
install --no-deps --target FOLDER openai jiter distro httpx httpcore h11 sniffio anyio accelerate psutil certifi idna`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ask_world import OPTIONS, PAIRS, cut, run
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.host.config import DatasetConfig

utils = pytest.importorskip("transformers.utils.import_utils")
if not getattr(utils, "is_serve_available", lambda: False)():
    pytest.skip("the extra serving of transformers is not installed", allow_module_level=True)

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if 'text' in part %}{{ part['text'] }}"
    "{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_model(folder: Path, most_pixels: int) -> None:
    """A random model whose tokens are bytes, and a processor that resizes images above `most_pixels`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
    )
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    ids = {token: number for number, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), *SPECIAL])}
    tokens = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token=SPECIAL[2], pad_token=SPECIAL[0], additional_special_tokens=SPECIAL[3:]
    )
    small = {"hidden_size": 32, "intermediate_size": 64}
    rope = {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}
    ends = {"bos_token_id": ids[SPECIAL[1]], "eos_token_id": ids[SPECIAL[2]], "pad_token_id": ids[SPECIAL[0]]}
    text = {
        **small, **ends, "vocab_size": len(ids), "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rope_scaling": rope, "max_position_embeddings": 4096,
    }  # fmt: skip
    vision = {
        **small, "depth": 2, "num_heads": 4, "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2,
        "temporal_patch_size": 2, "window_size": 112, "fullatt_block_indexes": [1],
    }  # fmt: skip
    names = ("vision_start", "vision_end", "image", "video")
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config=text, vision_config=vision,
        **{f"{name}_token_id": ids[token] for name, token in zip(names, SPECIAL[3:], strict=True)},
    )  # fmt: skip
    Qwen2_5_VLForConditionalGeneration(config).eval().save_pretrained(folder)
    images = Qwen2VLImageProcessor(
        patch_size=14, merge_size=2, temporal_patch_size=2, min_pixels=3136, max_pixels=most_pixels
    )
    processor = Qwen2_5_VLProcessor(
        image_processor=images, tokenizer=fast, video_processor=Qwen2VLVideoProcessor(), chat_template=TEMPLATE
    )
    processor.save_pretrained(folder)


@contextmanager
def serving(model: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = "from transformers.cli.transformers import main; main()"
    line = [
        sys.executable,
        "-c",
        code,
        "serve",
        str(model),
        "--device",
        "cpu",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with subprocess.Popen(line, env=os.environ | {"HF_HUB_OFFLINE": "1"}, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert server.poll() is None, "the server ended"
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def asked(url: str, model: Path, out: Path, **more: Any) -> tuple[dict[str, Any], list[str]]:
    """Two images; the server adds its revision to the model's name."""
    data = out.parent / "data"
    config = (
        DatasetConfig("fixture", data, "coco", options=OPTIONS) if data.exists() else cut(data, PAIRS[:2], own=True)
    )
    return run(config, url, "qwen25vl", out, model=str(model), model_alias=(f"{model}@main",), max_tokens=8, **more)


def test_the_view_is_proved_and_answers_are_kept(tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "o.jsonl"
    save_model(model, 12_845_056)
    with serving(model) as url:
        counts, lines = asked(url, model, out)
        assert "view proved" in lines and counts["answers"] == 2 and counts["note"].endswith("view proved")
        assert counts["tokens"]["prompt_tokens"] > 1500
        content = out.read_bytes()
        again, _ = asked(url, model, out)
    assert again["answered_before"] == 2 and again["requests"] == 0 and out.read_bytes() == content
    assert {json.loads(line)["finish"] for line in content.splitlines()[1:]} <= {"length", "stop"}


def test_a_processor_that_shrinks_images_is_found(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_model(model, 256 * 784)
    with serving(model) as url, pytest.raises(RunError, match=r"The server resizes: \d+ image tokens instead of \d+"):
        asked(url, model, tmp_path / "o.jsonl")
