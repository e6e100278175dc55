"""Checkpoints written from the parity manifests, and comparison with the goldens, for the tests of the adapters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from authors_outputs import authors_outputs
from numpy.typing import NDArray
from xbench_fast.export import Adapter
from xbench_fast.export.checkpoints.stand_in import fill, image
from xbench_fast.export.models.layers.bert import BertConfig
from xbench_fast.export.onnx_graph import ImageGraph, export_image, export_text

TOLERANCE = 2e-5  # of the golden's largest value
EXPORT_TOLERANCE = 1e-4
TINY_BERT = BertConfig(vocabulary=30, width=768, layers=1, heads=12, hidden=8, positions=64, pooler=False)


@dataclass(repr=False)
class Golden:
    """One golden file, the adapter loaded from a file written for it, and what it computes for the golden's inputs.

    `blocks` and `layers` are the outputs of each ViT block and of BERT's embeddings and layers, where watched.
    """

    name: str
    arrays: dict[str, NDArray[Any]]
    adapter: Any
    image: torch.Tensor
    text: torch.Tensor
    outputs: dict[str, torch.Tensor]
    blocks: list[torch.Tensor] = field(default_factory=list)
    layers: list[torch.Tensor] = field(default_factory=list)

    def check(
        self, name: str, value: torch.Tensor | NDArray[Any], tolerance: float = TOLERANCE, part: Any = ...
    ) -> None:
        """The largest error, shown with `pytest -rP`, is below the tolerance; `part` is an index of the golden."""
        golden, found = self.arrays[name][part], np.asarray(value)
        assert found.shape == golden.shape
        error = float(np.abs(found - golden).max() / np.abs(golden).max())
        print(f"{self.name} {name}: {error:.1e} of the largest value")
        assert error <= tolerance

    def check_layers(self) -> None:
        """First 8 channels of every block's output, at the tokens of the golden."""
        self.check("probe_image_blocks", torch.stack([out[:, [0, 1, 196], :8] for out in self.blocks]))
        self.check("probe_text_layers", torch.stack([out[:, [0, 1, 4], :8] for out in self.layers]))

    def tensor(self, name: str) -> torch.Tensor:
        """A golden array, such as the token ids."""
        return torch.from_numpy(self.arrays[name])


@contextmanager
def computed(
    shared: Path,
    adapter: Any,
    encode: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    watch: Sequence[Any] = (),
    size: int = 224,
) -> Iterator[Golden]:
    """The adapter's outputs for its golden's inputs, in inference mode; `encode` makes the text features of its arrays.

    `watch` is the ViT, or the parts of an image tower, and the BERT whose layers are wanted; `size` that of the image.
    """
    _, arrays = read_golden(shared, adapter.name)
    layers: list[torch.Tensor] = []
    blocks: list[torch.Tensor] = []
    pixels = torch.from_numpy(image("image", (2, 3, size, size)))
    hooks = []
    if watch:
        tower, bert = watch
        parts = tower if isinstance(tower, list) else tower.blocks
        hooks = [block.register_forward_hook(lambda _, __, out: blocks.append(out)) for block in parts]
        hooks.append(bert.register_forward_hook(lambda _, __, out: layers.extend(out)))
    with torch.inference_mode():
        text = encode({name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "biu"})
        outputs = authors_outputs(adapter, pixels, text)
        for hook in hooks:
            hook.remove()
        yield Golden(adapter.name, arrays, adapter, pixels, text, outputs, blocks, layers)


def read_golden(shared: Path, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Manifest and arrays."""
    with np.load(shared / "parity" / f"{name}.npz") as file:
        arrays = dict(file)
    return json.loads((shared / "parity" / f"{name}.json").read_text()), arrays


def filled(shapes: dict[str, Any], prefix: str, aliases: dict[str, str] | None = None) -> dict[str, torch.Tensor]:
    """A state dict with the stand-in values of `prefix` + name; an alias has the value of what it is a name of."""
    names = {name: (aliases or {}).get(name, name) for name in shapes}
    return {
        name: torch.from_numpy(np.asarray(fill(f"{prefix}{names[name]}", tuple(shape))))
        for name, (shape, _) in shapes.items()
    }


def write_authors_file(manifest: dict[str, Any], path: Path) -> None:
    """`model` with its wrapper's prefix, and what training leaves beside it (MedKLIP and MAVL)."""
    content: dict[str, Any] = {"model": filled(manifest["tensors"]["model"], "model.")}
    content["optimizer"] = {"state": {0: {"step": 3, "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-4}]}
    content["lr_scheduler"] = {"base_values": [np.float64(1e-4)]}
    torch.save(content | {"config": {"text_encoder": "x", "d_model": 256}, "epoch": 40}, path)


def write_text_encoder(manifest: dict[str, Any], folder: Path) -> None:
    """Hugging Face's pytorch_model.bin: `bert.` in front, a pre-training head, the table of positions."""
    external = manifest["external_text_encoder"]
    tensors = filled(external["tensors"], external["fill_prefix"])
    content = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    content |= {"bert.embeddings.position_ids": torch.arange(512)[None], "cls.predictions.bias": torch.zeros(28996)}
    folder.mkdir(exist_ok=True)
    torch.save(content, folder / "pytorch_model.bin")


def normalised(adapter: Adapter, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Model pixels [S, S] -> [3, S, S] as the image graph makes them."""
    mean, std = (np.asarray(x, np.float32)[:, None, None] for x in (adapter.mean, adapter.std))
    result: NDArray[np.float32] = (pixels.astype(np.float32) / np.float32(255) - mean) / std
    return result


def boxes_mask(boxes: NDArray[np.int64], size: int = 224) -> NDArray[np.bool_]:
    """Boxes x, y, width, height -> bool [size, size]."""
    mask = np.zeros((size, size), bool)
    for x, y, width, height in boxes:
        mask[y : y + height, x : x + width] = True
    return mask


def check_image_graph(
    adapter: Adapter, folder: Path, cases: list[tuple[int, int]], tolerance: float = EXPORT_TOLERANCE
) -> None:
    """Exports the image graph; ONNX Runtime agrees with PyTorch for every (batch, findings)."""
    import onnxruntime

    export_image(adapter, folder)
    session = onnxruntime.InferenceSession(str(folder / "image.onnx"), providers=["CPUExecutionProvider"])
    model, size = ImageGraph(adapter).eval(), adapter.geometry.size
    random = np.random.default_rng(5)
    for batch, findings in cases:
        pixels = random.integers(0, 256, (batch, 1, size, size), dtype=np.uint8)
        text = random.standard_normal((findings, *adapter.text_shape), dtype=np.float32)
        got = session.run(["logits", "saliency"], {"pixels": pixels, "text": text})
        with torch.inference_mode():
            wanted = model(torch.from_numpy(pixels), torch.from_numpy(text))
        for name, left, right in zip(("logits", "saliency"), got, wanted, strict=True):
            error = float(np.abs(left - right.numpy()).max() / np.abs(right.numpy()).max())
            print(f"{adapter.name} {name}, batch {batch}, {findings} findings: {error:.1e} of the largest value")
            assert left.shape == right.shape and error <= tolerance


def check_text_graph(adapter: Adapter, folder: Path) -> None:
    """Exports the text graph, one vector a text; ONNX Runtime agrees with PyTorch, padded or not."""
    import onnxruntime

    export_text(adapter, folder)
    session = onnxruntime.InferenceSession(str(folder / "text.onnx"), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(6)
    for texts, tokens in ((1, 1), (3, 5), (2, adapter.context)):
        ids = random.integers(0, adapter.vocabulary_size, (texts, tokens))
        mask = np.ones_like(ids)
        mask[-1, tokens // 2 + 1 :] = 0
        (got,) = session.run(["features"], {"input_ids": ids, "attention_mask": mask})
        with torch.inference_mode():
            wanted = adapter.encode_text(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
        assert got.shape == wanted.shape
        assert np.abs(got - wanted).max() <= EXPORT_TOLERANCE * np.abs(wanted).max()
