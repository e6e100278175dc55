"""Checkpoint files: what is read, and what is refused with a sentence (and never run)."""

from __future__ import annotations

import collections
import hashlib
import io
import math
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.export import Adapter, load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.matching import identify, install, match_tensors
from xbench_fast.export.checkpoints.reading import read_checkpoint
from xbench_fast.export.models.kad import Kad, KadConfig
from xbench_fast.export.models.kad_checkpoint import as_checkpoint
from xbench_fast.export.models.layers.bert import BertConfig
from xbench_fast.export.models.layers.query_decoder import DecoderConfig
from xbench_fast.export.models.layers.resnet import ResNetConfig

torch.set_num_threads(2)

SMALL = KadConfig(
    image_size=64,
    resnet=ResNetConfig(stem=8, widths=(4, 8), blocks=(1, 2), expansion=2),
    bert=BertConfig(vocabulary=11, width=12, layers=1, heads=3, hidden=20, positions=16),
    decoder=DecoderConfig(width=10, layers=2, heads=5, hidden=14),
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefg"]


def small() -> Kad:
    torch.manual_seed(3)
    return Kad(SMALL).eval()


def small_content(**changes: Any) -> dict[str, Any]:
    return as_checkpoint(small(), SMALL, vocabulary=WORDS) | changes


def save(content: Any, path: Path, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def scores(adapter: Adapter) -> tuple[Tensor, Tensor]:
    size = adapter.geometry.size
    ids = torch.tensor([[2, 4, 5, 3], [2, 6, 3, 0]])
    pixels = torch.linspace(-1, 1, 3 * 3 * size * size).reshape(3, 3, size, size)
    with torch.inference_mode():
        return adapter.forward(pixels, adapter.encode_text(ids, (ids != 0).long()))


# What is read


@pytest.mark.parametrize("legacy", [False, True])
def test_a_small_model_comes_back(tmp_path: Path, legacy: bool) -> None:
    """Sizes, heads, resolution and vocabulary of a model that is not KAD-sized, from both containers of torch.save."""
    module = small()
    content = as_checkpoint(module, SMALL, vocabulary=WORDS, epoch=7)
    path = save(content, tmp_path / "demo.pt", _use_new_zipfile_serialization=not legacy)
    adapter = load_adapter("kad", path)
    assert adapter.module.config == SMALL
    assert (adapter.variant, adapter.weights, adapter.geometry.size, adapter.grid) == ("demo", "demo", 64, (8, 8))
    assert adapter.tokenizer.vocabulary == tuple(WORDS) and adapter.vocabulary_size == 11 and adapter.context == 16
    assert adapter.checkpoint is not None
    assert adapter.checkpoint.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    logits, saliency = scores(adapter)
    assert logits.shape == (3, 2) and saliency.shape == (3, 2, 8, 8)
    torch.testing.assert_close(saliency.sum(dim=(2, 3)), torch.ones(3, 2))
    with torch.inference_mode():
        text = module.text_encoder(torch.tensor([[2, 4, 5, 3]]), torch.ones(1, 4))
        expected, _ = module(torch.zeros(1, 3, 64, 64), text)
        got, _ = adapter.forward(torch.zeros(1, 3, 64, 64), adapter.encode_text(torch.tensor([[2, 4, 5, 3]])))
    torch.testing.assert_close(got, expected[..., 1] - expected[..., 0])


def test_the_module_can_be_trained() -> None:
    """Plain modules: gradients reach every tensor, and a few steps lower the loss."""
    module = small().train()
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    images = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    ids, target = torch.tensor([[2, 4, 3], [2, 5, 3]]), torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]])
    losses = []
    for _ in range(25):
        logits, _ = module(images, module.text_encoder(ids, torch.ones_like(ids)))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert [name for name, parameter in module.named_parameters() if parameter.grad is None] == []


def test_module_prefix_and_numpy_numbers(tmp_path: Path) -> None:
    content = small_content(lr_scheduler={"best": np.float64(0.5), "epoch": np.int64(4), "warm": np.bool_(True)})
    for part in ("model", "image_encoder", "text_encoder"):
        content[part] = collections.OrderedDict((f"module.{name}", x) for name, x in content[part].items())
    plain = load_adapter("kad", save(small_content(), tmp_path / "plain.pt"))
    prefixed = load_adapter("kad", save(content, tmp_path / "prefixed.pt"))
    assert torch.equal(scores(plain)[0], scores(prefixed)[0])


def test_the_file_is_not_needed_after_loading(tmp_path: Path) -> None:
    path = save(small_content(), tmp_path / "demo.pt")
    adapter = load_adapter("kad", path)
    before = scores(adapter)[0].clone()
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(before, scores(adapter)[0])


def test_stand_in_demo_needs_no_file() -> None:
    first, second, third = (stand_in_adapter("kad", "demo", seed) for seed in (0, 0, 1))
    assert torch.equal(scores(first)[0], scores(second)[0])
    assert not torch.equal(scores(first)[0], scores(third)[0])


# What is refused


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "code-ran"


class Code:
    """Writes a file when unpickled carelessly."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return os.mkdir, (str(self.marker),)


def refusal(path: Path, model: str = "kad") -> str:
    with pytest.raises(CheckpointError) as caught:
        load_adapter(model, path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600 and message.endswith(".")
    return message


@pytest.mark.parametrize("model", ["kad", "clip"])
def test_missing_folder_empty(tmp_path: Path, model: str) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing.pt", model)
    assert "has no weights that can be read (it is empty)" in refusal(tmp_path, model)
    (tmp_path / "empty.pt").touch()
    assert "is empty" in refusal(tmp_path / "empty.pt", model)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_web_page_is_no_checkpoint(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"page{suffix}"
    path.write_text("<!DOCTYPE html><title>Quota exceeded</title>")
    assert "is a web page (HTML) titled 'Quota exceeded', not a checkpoint; download" in refusal(path)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kept", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated(tmp_path: Path, legacy: bool, kept: float) -> None:
    whole = save(small_content(), tmp_path / "whole.pt", _use_new_zipfile_serialization=not legacy).read_bytes()
    path = tmp_path / "cut.pt"
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert "truncated" in refusal(path)


def test_truncated_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"visual.conv1.weight": torch.zeros(768, 3, 32, 32)}, tmp_path / "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").read_bytes()
    for length in (4, 60, len(whole) // 2):
        (tmp_path / "cut.safetensors").write_bytes(whole[:length])
        assert "truncated" in refusal(tmp_path / "cut.safetensors", "clip")


@pytest.mark.parametrize("legacy", [False, True])
def test_pickled_code_is_not_run(tmp_path: Path, marker: Path, legacy: bool) -> None:
    content = small_content(hook=Code(marker))
    path = save(content, tmp_path / "code.pt", _use_new_zipfile_serialization=not legacy)
    plain = save(small_content(), tmp_path / "plain.pt")
    assert torch.equal(scores(load_adapter("kad", path))[0], scores(load_adapter("kad", plain))[0])
    assert not marker.exists()
    pickle.loads(pickle.dumps(Code(marker)))
    assert marker.exists()  # the trap itself works


def test_a_plain_pickle_is_not_run(tmp_path: Path, marker: Path) -> None:
    for protocol in range(6):
        (tmp_path / "code.pkl").write_bytes(pickle.dumps({"model": Code(marker)}, protocol=protocol))
        assert protocol < 1 or "is a pickle that torch.save did not write" in refusal(tmp_path / "code.pkl")
        assert not marker.exists()


def archive(
    path: Path, data: bytes, storages: dict[str, bytes] | None = None, method: int = zipfile.ZIP_STORED
) -> Path:
    """A TorchScript archive with a data.pkl of one's own."""
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("m/data.pkl", data)
        file.writestr("m/constants.pkl", b"")
        file.writestr("m/code/__torch__.py", "")
        for key, value in (storages or {}).items():
            file.writestr(f"m/data/{key}", value)
    return path


def test_code_in_a_torchscript_archive_is_not_run(tmp_path: Path, marker: Path) -> None:
    path = archive(tmp_path / "clip.pt", pickle.dumps(Code(marker), protocol=2))
    assert "the tensor visual.conv1.weight is missing" in refusal(path, "clip")
    assert not marker.exists()


class _Pickler(pickle.Pickler):
    """Writes one tensor of a chosen shape, stride and storage key, as TorchScript does."""

    def persistent_id(self, obj: Any) -> Any:
        return obj.value if isinstance(obj, _Pid) else None


class _Pid:
    def __init__(self, value: Any) -> None:
        self.value = value


class _Tensor:
    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return torch._utils._rebuild_tensor_v2, self.arguments


def tensor_pickle(key: str, count: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    pid = _Pid(("storage", torch.FloatStorage, key, "cuda:0", count))
    _Pickler(stream, 2).dump(_Tensor(pid, 0, shape, stride, False, collections.OrderedDict()))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("key", "count", "shape", "stride"),
    [
        ("0", 4, (2**40,), (0,)),  # one stored value that claims to be a trillion
        ("0", 4, (2, 4), (4, 1)),  # reaches past its storage
        ("0", 4, (4,), (-1,)),
        ("0", 2**40, (4,), (1,)),
        ("../../etc/passwd", 4, (4,), (1,)),
        ("1", 4, (4,), (1,)),
    ],
)
def test_lying_tensors_in_a_torchscript_archive(
    tmp_path: Path, key: str, count: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    path = archive(tmp_path / "clip.pt", tensor_pickle(key, count, shape, stride), {"0": bytes(16)})
    expected = "truncated, damaged" if any(stride) else "far more than the file holds"
    assert expected in refusal(path, "clip")


def test_a_compressed_or_cut_torchscript_archive(tmp_path: Path) -> None:
    data = tensor_pickle("0", 4, (4,), (1,))
    path = archive(tmp_path / "zip.pt", data, {"0": bytes(16)}, zipfile.ZIP_DEFLATED)
    assert "compressed" in refusal(path, "clip")
    assert "damaged" in refusal(archive(tmp_path / "cut.pt", data[:-20], {"0": bytes(16)}), "clip")


def test_a_tensor_that_does_not_own_its_values(tmp_path: Path) -> None:
    """A stride of 0 lets a small file ask for all the memory there is; sparse tensors and NaN are refused too."""
    content = small_content()
    weight = content["model"]["decoder.layers.0.linear1.weight"]
    for value, expected in (
        (torch.zeros(()).expand(weight.shape), "not stored as plain values"),
        (weight.to_sparse(), "not stored as plain values"),
        (torch.full_like(weight, torch.nan), "not finite"),
    ):
        content["model"]["decoder.layers.0.linear1.weight"] = value
        message = refusal(save(content, tmp_path / "odd.pt"))
        assert expected in message and "linear1.weight" in message


@pytest.mark.parametrize(
    ("part", "name", "dtype"),
    [
        ("model", "mlp_head.0.weight", torch.int8),
        ("model", "mlp_head.0.weight", torch.complex64),
        ("model", "mlp_head.0.weight", torch.bool),
        ("image_encoder", "res_features.1.running_mean", torch.int64),
    ],
)
def test_numbers_of_another_kind(tmp_path: Path, part: str, name: str, dtype: torch.dtype) -> None:
    content = small_content()
    own = str(content[part][name].dtype).removeprefix("torch.")
    content[part][name] = content[part][name].to(dtype)
    message = refusal(save(content, tmp_path / "odd.pt"))
    assert f"{part}.{name} of {tmp_path / 'odd.pt'} is {str(dtype).removeprefix('torch.')}" in message
    assert f"the model's own is {own}; save the checkpoint again" in message


@pytest.mark.parametrize("value", [7.0, 7.5, math.inf, math.nan])
def test_counters_that_were_cast_with_the_weights(tmp_path: Path, value: float) -> None:
    """As by `{name: tensor.float() for ...}`; nothing is lost where the number is whole."""
    with torch.device("meta"):
        module = torch.nn.BatchNorm1d(2)
    given = {name: torch.ones(2) for name in ("weight", "bias", "running_mean", "running_var")}
    given["num_batches_tracked"] = torch.tensor(value)
    if value == 7.0:
        install(module, given, path=tmp_path / "x.pt", model="toy")
        counter = module.num_batches_tracked
        assert counter is not None and counter.dtype == torch.int64 and int(counter) == 7
    else:
        with pytest.raises(CheckpointError, match=r"num_batches_tracked of .* is float32, the model's own is int64"):
            install(module, given, path=tmp_path / "x.pt", model="toy")


@pytest.mark.parametrize("same", [True, False])
def test_two_names_of_one_tensor(tmp_path: Path, same: bool) -> None:
    content = small_content()
    weight = content["model"]["mlp_head.0.weight"]
    content["model"]["module.mlp_head.0.weight"] = weight.clone() if same else torch.zeros_like(weight)
    message = refusal(save(content, tmp_path / "odd.pt"))
    assert "holds the tensors mlp_head.0.weight and module.mlp_head.0.weight, which are both mlp_head" in message


def two(*names: str) -> dict[str, Tensor]:
    return {name: torch.full((2,), float(number)) for number, name in enumerate(names)}


@pytest.mark.parametrize(
    ("model", "content", "pair"),
    [
        ("clip", {"state_dict": two("a.weight", "module.a.weight")}, ("a.weight", "module.a.weight")),
        ("clip", two("visual.ln_pre.bias", "vision_model.pre_layrnorm.bias"), ("visual.ln_", "vision_model.pre_lay")),
        ("medklip", {"model": two("a.b", "a.module.b")}, ("a.b", "a.module.b")),
        ("carzero", {"state_dict": two("a.b", "CARZero.a.b")}, ("a.b", "CARZero.a.b")),
    ],
)
def test_names_that_meet_are_both_told(tmp_path: Path, model: str, content: Any, pair: tuple[str, str]) -> None:
    message = refusal(save(content, tmp_path / "odd.pt"), model)
    assert all(name in message for name in pair) and "save the checkpoint again with one of them" in message


def test_differences_are_listed(tmp_path: Path) -> None:
    content = small_content()
    for index in range(4):
        content["model"][f"surplus.{index}"] = torch.zeros(2)
    del content["model"]["mlp_head.0.bias"]
    content["model"]["decoder.norm.weight"] = torch.zeros(3)
    message = refusal(save(content, tmp_path / "odd.pt"))
    assert "1 missing (model.mlp_head.0.bias)" in message
    assert "4 unexpected (model.surplus.0, model.surplus.1, model.surplus.2, ...)" in message
    assert "1 of another shape (model.decoder.norm.weight [3] instead of [10])" in message


VALUE = torch.zeros(2)
OTHERS = {
    "CLIP": {"visual.transformer.resblocks.0.ln_1.weight": torch.zeros(2), "logit_scale": torch.zeros(())},
    "CLIP (transformers names)": {"vision_model.encoder.layers.0.x": torch.zeros(2), "text_model.y": torch.zeros(2)},
    "BiomedCLIP": {"visual.trunk.blocks.0.x": torch.zeros(2), "text.transformer.y": torch.zeros(2)},
    "MedKLIP": {"model": dict.fromkeys(("module.res_features.0.x", "module.disease_embedding_layer.x"), VALUE)},
    "MAVL": {"model": dict.fromkeys(("module.backbone.0.x", "module.disease_embedding_layer.x"), VALUE)},
    "CARZero": {"state_dict": {"CARZero.fusion_module.logit_scale": torch.zeros(())}},
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_models_checkpoint_is_named(tmp_path: Path, other: str) -> None:
    assert f"looks like a checkpoint of {other}" in refusal(save(OTHERS[other], tmp_path / "other.pt"))


def test_clip_is_told_a_kad_checkpoint(tmp_path: Path) -> None:
    assert "looks like a checkpoint of KAD" in refusal(save(small_content(), tmp_path / "kad.pt"), "clip")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([torch.zeros(2)], "holds a list"),
        (torch.zeros(2), "holds a Tensor"),
        ({}, "has no 'image_encoder'"),
        ({"image_encoder": torch.zeros(2)}, "has no 'image_encoder'"),
        ({"image_encoder": {}, "text_encoder": {}, "model": {}}, "is missing"),
        ({"image_encoder": {"resnet.conv1": torch.zeros(2)}, "text_encoder": {}, "model": {}}, "is missing"),
        ({"image_encoder": {"res_l1.weight": torch.zeros(())}, "text_encoder": {}, "model": {}}, "has the shape []"),
        ({"image_encoder": {"res_features.": torch.zeros(2)}, "text_encoder": {}, "model": {}}, "is missing"),
        (
            {"image_encoder": {"res_l1.weight": torch.zeros(2, 2, 2)}, "text_encoder": {}, "model": {}},
            "[2, 2, 2]",
        ),
        ({"image_encoder": {"resnet.layerx.0.weight": torch.zeros(2)}, "text_encoder": {}, "model": {}}, "is missing"),
    ],
)
def test_strange_contents(tmp_path: Path, content: Any, expected: str) -> None:
    assert expected in refusal(save(content, tmp_path / "odd.pt"))


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("weights", "genuine", "states weights 'genuine'"),
        ("weights", ["demo"], "states weights"),
        ("decoder_heads", 3, "number of heads that divides the width"),
        ("text_heads", None, "number of heads that divides the width"),
        ("text_heads", 0, "number of heads that divides the width"),
        ("img_res", 10**9, "states the image resolution"),
        ("img_res", "64", "states the image resolution"),
        ("vocabulary", ["a"], "lists 1 word pieces for a text encoder of 11"),
        ("vocabulary", {"a": 1}, "not a list of words"),
    ],
)
def test_strange_settings(tmp_path: Path, setting: str, value: Any, expected: str) -> None:
    content = small_content()
    content["config"]["xbench"][setting] = value
    assert expected in refusal(save(content, tmp_path / "odd.pt"))


def test_options_and_names() -> None:
    with pytest.raises(ConfigError, match="no option 'text_encoder': known are none"):
        load_adapter("clip", Path("x.pt"), text_encoder="y")
    with pytest.raises(ConfigError, match="did you mean 'kad'"):
        load_adapter("kda", Path("x.pt"))
    with pytest.raises(ConfigError, match="no variant '448': known are 224, 512, 1024, demo"):
        stand_in_adapter("kad", "448")
    with pytest.raises(ConfigError, match="is not a model"):
        load_adapter("collections:OrderedDict", Path("x.pt"))
    with pytest.raises(CheckpointError, match="does not exist"):
        load_adapter("clip", Path("x.pt"), resolution=None)


def test_match_and_identify(tmp_path: Path) -> None:
    match_tensors({"a": (2,)}, {"a": torch.zeros(2)}, path=Path("x"), model="KAD")
    with pytest.raises(CheckpointError, match=r"2 missing \(b, c\)"):
        match_tensors({"b": (2,), "c": ()}, {}, path=Path("x"), model="KAD")
    assert identify(["conv1.weight"]) is None
    assert identify(read_checkpoint(save(small_content(), tmp_path / "demo.pt")).names()) == "KAD"
