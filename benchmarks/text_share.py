"""Counts how much of each model's work is behind its text: what a further prompt set costs of the work of the first.

    python benchmarks/text_share.py [--models kad,clip] [--json FILE]

Every model in its full size with stand-in weights, its image graph exported as in a bundle, and of both families one
model of the usual size, ViT-B/16. Multiply-accumulates of convolutions and matrix products, for one more image of a
batch with ten texts; and the bytes of an image's features, which are kept between the parts (engines/README.md).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xbench_fast.engines.backends.graph_parts import GraphParts
from xbench_fast.engines.backends.ort_session import CPU_PROVIDER, open_session
from xbench_fast.engines.manifest import MODEL_ORDER
from xbench_fast.runtime.benching.cost_estimate import graph_macs, text_macs

if TYPE_CHECKING:
    from xbench_fast.export import Adapter

TEXTS = 10


def open_clip_model(folder: Path) -> Adapter:
    """ViT-B/16 of open_clip, with its initial weights."""
    import open_clip
    from xbench_fast.export.models.families.open_clip import OpenClipAdapter

    return OpenClipAdapter.of_model(open_clip.create_model("ViT-B-16", load_weights=False).eval(), 77)


def transformers_model(folder: Path) -> Adapter:
    """SigLIP ViT-B/16 of transformers, with its initial weights and a tokenizer of one word."""
    import transformers
    from tokenizers import Tokenizer, models
    from xbench_fast.export.models.families.transformers import TransformersAdapter

    words = Tokenizer(models.WordLevel({"<pad>": 0, "mass": 1, "</s>": 2}, unk_token="<pad>"))
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<pad>"}
    texts = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **special)
    model = transformers.SiglipModel(transformers.SiglipConfig())
    for part in (model, transformers.SiglipImageProcessor(size={"height": 224, "width": 224}), texts):
        part.save_pretrained(folder / "siglip")
    return TransformersAdapter.load(folder / "siglip")


FAMILIES: dict[str, Callable[[Path], Adapter]] = {
    "family open_clip": open_clip_model,
    "family transformers": transformers_model,
}


def share(adapter: Adapter, folder: Path) -> dict[str, Any]:
    """The figures of one model."""
    from xbench_fast.export.onnx_graph import export_image

    graph, side = folder / export_image(adapter, folder).file, adapter.geometry.size
    if adapter.findings:
        text = np.eye(len(adapter.findings), dtype=np.float32)[:TEXTS]
    else:
        text = np.random.default_rng(0).standard_normal((TEXTS, *adapter.text_shape), dtype=np.float32)
    parts = GraphParts.of(graph)
    behind, whole = text_macs(graph, side, text), graph_macs(graph, side, text)
    if parts is None or behind is None or whole is None:
        raise SystemExit(f"{adapter.name} does not fall apart")
    features = open_session(parts.image(), [CPU_PROVIDER], None).run(
        None, {"pixels": np.zeros((2, 1, side, side), np.uint8)}
    )
    return {
        "variant": adapter.variant,
        "texts": len(text),
        "image_macs": whole,
        "text_macs": behind,
        "share": float(f"{behind / whole:.3g}"),
        "feature_bytes": math.ceil(sum(value.nbytes for value in features) / 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The share of the work behind the text.")
    parser.add_argument("--models", default=",".join((*MODEL_ORDER, *FAMILIES)))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    from xbench_fast.export import stand_in_adapter

    models = json.loads(arguments.json.read_text())["models"] if arguments.json and arguments.json.is_file() else {}
    for name in arguments.models.split(","):
        with tempfile.TemporaryDirectory(prefix="xbench-share-") as folder:
            adapter = FAMILIES[name](Path(folder)) if name in FAMILIES else stand_in_adapter(name)
            models[name] = share(adapter, Path(folder))
        print(f"{name}: {100 * models[name]['share']:.3g} % behind the text", flush=True)
    if arguments.json is not None:
        from xbench_fast.runtime.benching.benchmark_record import write_record

        what = "multiply-accumulates behind the text, full sizes with stand-in weights"
        write_record(arguments.json, {"what": what, "models": models})


if __name__ == "__main__":
    main()
