"""KAD, loaded from checkpoints as published, against the authors' own outputs (docs/parity.md §3.4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from authors_outputs import authors_outputs
from numpy.typing import NDArray
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.reading import Checkpoint
from xbench_fast.export.checkpoints.stand_in import fill, image
from xbench_fast.export.models.kad import CONFIGS, Kad, KadAdapter
from xbench_fast.export.models.kad_checkpoint import read_parts

torch.set_num_threads(2)

TOLERANCE = 2e-5  # of the golden's largest value


@dataclass
class Golden:
    """One golden file, its adapter, and the adapter's outputs for the golden's inputs."""

    name: str
    arrays: dict[str, NDArray[Any]]
    path: Path
    adapter: KadAdapter
    text: torch.Tensor
    outputs: dict[str, torch.Tensor]

    def check(self, name: str, value: torch.Tensor) -> None:
        """The largest error, shown with `pytest -rP`, is below the tolerance."""
        golden = self.arrays[name]
        assert value.shape == golden.shape
        error = float(np.abs(value.numpy() - golden).max() / np.abs(golden).max())
        print(f"{self.name} {name}: {error:.1e} of the largest value")
        assert error <= TOLERANCE


def write_checkpoint(shared: Path, name: str, path: Path) -> None:
    """`best_valid.pt` as published: three state dicts, extra buffers, training state.

    For "kad_224" an alias shares the value of its tensor as in a real file; for "kad" each name has a value of its own,
    so only an adapter that reads the names the official loading order lets win can agree.
    """
    manifest = json.loads((shared / "parity" / f"{name}.json").read_text())
    content: dict[str, Any] = {}
    for part, shapes in manifest["tensors"].items():
        aliases = manifest["alias_of"][part] if name == "kad_224" else {}
        state: dict[str, torch.Tensor] = {}
        for tensor, (shape, _) in sorted(shapes.items(), key=lambda item: item[0] in aliases):
            if tensor in aliases:
                state[tensor] = state[aliases[tensor]]
            else:
                state[tensor] = torch.from_numpy(np.asarray(fill(f"{part}.{tensor}", tuple(shape))))
        content[part] = {tensor: state[tensor] for tensor in shapes}
    content["text_encoder"]["bert_model.embeddings.position_ids"] = torch.arange(512)[None]
    content["optimizer"] = {"state": {0: {"step": 3, "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-4}]}
    content["lr_scheduler"] = {"base_values": [np.float64(1e-4)], "t_in_epochs": True}
    content["config"] = {"img_res": 224, "bert": "x"} if name == "kad_224" else {"bert": "x"}
    torch.save(content | {"epoch": 27}, path)


@pytest.fixture(scope="module", params=["kad_224", "kad"])
def golden(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    name = request.param
    path = tmp_path_factory.mktemp("kad") / "best_valid.pt"
    write_checkpoint(shared, name, path)
    adapter = load_adapter("kad", path)
    assert isinstance(adapter, KadAdapter)
    with np.load(shared / "parity" / f"{name}.npz") as file:
        arrays = dict(file)
    size = adapter.geometry.size
    with torch.inference_mode():
        text = adapter.encode_text(torch.from_numpy(arrays["input_ids"]), torch.from_numpy(arrays["attention_mask"]))
        outputs = authors_outputs(adapter, torch.from_numpy(image("image", (2, 3, size, size))), text)
        yield Golden(name, arrays, path, adapter, text, outputs)
    path.unlink()


def test_facts(golden: Golden) -> None:
    size, cells = (224, 14) if golden.name == "kad_224" else (512, 16)
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("kad", str(size), "published")
    assert adapter.geometry == Geometry("squash", size, size, "bicubic")
    assert adapter.grid == (cells, cells) and adapter.text_shape == (768,) and adapter.logit_scale == 1.0
    assert adapter.context == 256 and adapter.vocabulary_size == 30522
    assert adapter.checkpoint is not None and adapter.checkpoint.name == "best_valid.pt"
    assert not any(parameter.requires_grad for parameter in adapter.module.parameters())


def test_features(golden: Golden) -> None:
    golden.check("text_features", golden.text)
    golden.check("image_pool", golden.outputs["image_pool"])
    golden.check("patches_sub", golden.outputs["patches"][:, ::5, ::16])


@pytest.mark.parametrize("name", ["logits", "probs", "attention"])
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_ten_queries_and_one(golden: Golden) -> None:
    text = torch.from_numpy(image("text_features", (10, 768)))
    logits, maps = golden.adapter.module.model(golden.outputs["patches"], text)
    golden.check("wide_logits", logits)
    golden.check("wide_probs", logits.softmax(dim=-1)[..., 1])
    golden.check("wide_attention", maps[-1])
    alone, _ = golden.adapter.module.model(golden.outputs["patches"], golden.text[:1])
    golden.check("alone_logits", alone)


def test_exported_outputs(golden: Golden) -> None:
    """sigmoid(logit) is the official probability; the map is the official attention, row by row."""
    size, (rows, columns) = golden.adapter.geometry.size, golden.adapter.grid
    pixels = torch.from_numpy(image("image", (2, 3, size, size)))
    logits, saliency = golden.adapter.forward(pixels, golden.text)
    golden.check("probs", logits.sigmoid())
    assert saliency.shape == (2, 4, rows, columns)
    golden.check("attention", saliency.reshape(2, 4, rows * columns))


def test_overlay_of_the_official_picture(golden: Golden) -> None:
    """The authors' uint8 map of image 0, prompt 1 on a 320 x 240 picture: allow one grey level (resize of OpenCV)."""
    attention = golden.outputs["attention"][0, 1].reshape(1, 1, *golden.adapter.grid)
    resized = F.interpolate(attention * (255 / attention.max()), size=(240, 320), mode="bilinear", align_corners=False)
    difference = resized[0, 0].numpy().astype(np.uint8).astype(int) - golden.arrays["overlay"].astype(int)
    assert np.abs(difference).max() <= 1


def test_padding_does_not_matter(golden: Golden) -> None:
    ids, mask = (torch.from_numpy(golden.arrays[key])[:2] for key in ("input_ids", "attention_mask"))
    wide = golden.adapter.encode_text(F.pad(ids, (0, 40), value=7), F.pad(mask, (0, 40)))
    torch.testing.assert_close(wide, golden.text[:2], rtol=0, atol=1e-5)


def test_resolution_1024(golden: Golden) -> None:
    """The same file at its other resolution; the layer-3 layout has none, and is run on more cells."""
    adapter = load_adapter("kad", golden.path, resolution=1024)
    if golden.name == "kad_224":
        assert (adapter.variant, adapter.grid) == ("224-at-1024", (64, 64))
        assert adapter.resized == "by size, trained at 224"
        return
    assert not adapter.resized
    assert (adapter.variant, adapter.grid, adapter.geometry.size) == ("1024", (32, 32), 1024)
    outputs = authors_outputs(adapter, torch.from_numpy(image("image_1024", (1, 3, 1024, 1024))), golden.text)
    golden.check("logits_1024", outputs["logits"])
    golden.check("attention_1024", outputs["attention"])


def test_stand_in_equals_the_filled_checkpoint(golden: Golden) -> None:
    adapter = stand_in_adapter("kad", golden.adapter.variant)
    assert adapter.weights == "stand-in" and adapter.checkpoint is None
    loaded = golden.adapter.module.state_dict()
    state = adapter.module.state_dict()
    assert list(state) == list(loaded)
    assert all(torch.equal(state[name], loaded[name]) for name in state)


# The structure of a file, without the weight of one: tensors of one stored value.


def hollow(config: dict[str, Any], variant: str = "512", vocabulary: int = 30522) -> Checkpoint:
    with torch.device("meta"):
        module = Kad(CONFIGS[variant])
    content: dict[str, Any] = {"config": config}
    for part in ("image_encoder", "text_encoder", "model"):
        state = module.get_submodule(part).state_dict()
        content[part] = {f"module.{name}": torch.zeros(()).expand(tensor.shape) for name, tensor in state.items()}
    words = "module.bert_model.embeddings.word_embeddings.weight"
    content["text_encoder"][words] = torch.zeros(()).expand(vocabulary, content["text_encoder"][words].shape[1])
    return Checkpoint(Path("best_valid.pt"), content)


def test_resolution_from_the_file() -> None:
    assert read_parts(hollow({})).variant == "512"
    assert read_parts(hollow({"img_res": 1024})).variant == "1024"
    assert read_parts(hollow({"image_res": 1024})).variant == "1024"
    assert read_parts(hollow({"img_res": 1024}), resolution=512).variant == "512"
    assert read_parts(hollow({}, "224")).variant == "224"
    for stated in (224, "512", None, True):
        with pytest.raises(CheckpointError, match="states the image resolution"):
            read_parts(hollow({"img_res": stated}))


def test_the_vocabulary_is_the_tensors() -> None:
    assert read_parts(hollow({}, vocabulary=31090)).config.bert.vocabulary == 31090


def test_only_torchvisions_names() -> None:
    """A file whose encoder has the names `resnet.*` alone, with the stage and the classifier the model does not use."""
    source = hollow({}, "224")
    encoder = source.content["image_encoder"]
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in encoder.items():
        plain = name.removeprefix("module.")
        head, index, *rest = plain.split(".")
        if head == "res_features":
            stem = {"0": "conv1", "1": "bn1"}.get(index) or f"layer{int(index) - 3}"
            plain = ".".join(["resnet", stem, *rest])
        renamed[plain] = tensor
    renamed["resnet.layer4.0.conv3.weight"] = torch.zeros(()).expand(2048, 512, 1, 1)
    renamed["resnet.fc.weight"] = torch.zeros(()).expand(1000, 2048)
    source.content["image_encoder"].clear()
    source.content["image_encoder"].update(renamed)
    assert set(read_parts(source).tensors.by_name) == set(read_parts(hollow({}, "224")).tensors.by_name)
