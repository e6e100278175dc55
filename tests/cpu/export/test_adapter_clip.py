"""CLIP, loaded from every published form, against open_clip's outputs (docs/parity.md §3.1)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from authors_outputs import authors_outputs
from numpy.typing import NDArray
from torch import Tensor, nn
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.adapter import CheckpointRecord
from xbench_fast.export.checkpoints.stand_in import fill, image
from xbench_fast.export.models.clip import ClipAdapter, canonical_tensors

torch.set_num_threads(2)

TOLERANCE = 2e-5  # of the golden's largest value
FORMS = ("vit_b_32-torchscript", "vit_b_32-transformers", "vit_b_16-safetensors", "vit_b_16-training")


def manifest_tensors(shared: Path, name: str) -> dict[str, Tensor]:
    manifest = json.loads((shared / "parity" / f"clip_{name}.json").read_text())
    return {
        key: torch.from_numpy(np.asarray(fill(key, tuple(shape)))) for key, (shape, _) in manifest["tensors"].items()
    }


class Holder(nn.Module):
    """A scripted module that has nothing but named tensors."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def write_torchscript(tensors: dict[str, Tensor], path: Path) -> None:
    """A real TorchScript archive with OpenAI's three extra scalars."""
    root = Holder()
    extra = {
        name: torch.tensor(value)
        for name, value in (("input_resolution", 224), ("context_length", 77), ("vocab_size", 49408))
    }
    for name, tensor in {**tensors, **extra}.items():
        *parents, leaf = name.split(".")
        node: nn.Module = root
        for parent in parents:
            if parent not in dict(node.named_children()):
                node.add_module(parent, Holder())
            node = node.get_submodule(parent)
        if tensor.is_floating_point():
            node.register_parameter(leaf, nn.Parameter(tensor, requires_grad=False))
        else:
            node.register_buffer(leaf, tensor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is being retired; the published files stay
        torch.jit.save(torch.jit.script(root), path)


def transformers_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """OpenAI's names -> those of transformers, written out (docs/parity.md §3.1)."""
    single = {
        "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
        "visual.class_embedding": "vision_model.embeddings.class_embedding",
        "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
        "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
        "positional_embedding": "text_model.embeddings.position_embedding.weight",
        "logit_scale": "logit_scale",
    }
    norms = {"visual.ln_pre": "vision_model.pre_layrnorm", "visual.ln_post": "vision_model.post_layernorm"}
    norms["ln_final"] = "text_model.final_layer_norm"
    inside = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "attn.out_proj": "self_attn.out_proj"}
    inside |= {"mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        module, _, leaf = name.rpartition(".")
        if name in single:
            result[single[name]] = tensor
        elif name in ("visual.proj", "text_projection"):
            key = "visual_projection" if name == "visual.proj" else "text_projection"
            result[f"{key}.weight"] = tensor.T.contiguous()
        elif module in norms:
            result[f"{norms[module]}.{leaf}"] = tensor
        else:
            tower, _, tail = name.partition("transformer.resblocks.")
            index, _, rest = tail.partition(".")
            root = f"{'vision_model' if tower else 'text_model'}.encoder.layers.{index}"
            if rest.startswith("attn.in_proj_"):
                for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                    result[f"{root}.self_attn.{part}_proj.{rest.removeprefix('attn.in_proj_')}"] = rows.clone()
            else:
                result[f"{root}.{inside[rest.rpartition('.')[0]]}.{leaf}"] = tensor
    return result


def write(form: str, tensors: dict[str, Tensor], folder: Path) -> Path:
    from safetensors.torch import save_file

    if form == "torchscript":
        write_torchscript(tensors, path := folder / "ViT.pt")
    elif form == "transformers":
        state = transformers_names(tensors)
        state |= {f"{tower}_model.embeddings.position_ids": torch.arange(9)[None] for tower in ("text", "vision")}
        torch.save(state, path := folder / "pytorch_model.bin")
    elif form == "safetensors":
        save_file(tensors, path := folder / "open_clip_model.safetensors")
    else:
        state = {f"module.{name}": tensor for name, tensor in tensors.items()}
        torch.save({"epoch": 3, "name": "run", "state_dict": state}, path := folder / "epoch_3.pt")
    return path


@dataclass
class Golden:
    """One golden file, the adapter loaded from one form of the checkpoint, and its outputs."""

    name: str
    arrays: dict[str, NDArray[Any]]
    adapter: ClipAdapter
    outputs: dict[str, Tensor]

    def check(self, name: str, value: Tensor) -> None:
        golden = self.arrays[name]
        assert value.shape == golden.shape
        error = float(np.abs(value.numpy() - golden).max() / np.abs(golden).max())
        print(f"{self.name} {name}: {error:.1e} of the largest value")
        assert error <= TOLERANCE


@pytest.fixture(scope="module", params=FORMS)
def golden(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    name, form = request.param.split("-")
    path = write(form, manifest_tensors(shared, name), tmp_path_factory.mktemp("clip"))
    adapter = load_adapter("clip", path)
    path.unlink()  # the adapter must not depend on the file any more
    assert isinstance(adapter, ClipAdapter)
    with np.load(shared / "parity" / f"clip_{name}.npz") as file:
        arrays = dict(file)
    with torch.inference_mode():
        text = adapter.encode_text(torch.from_numpy(arrays["tokens"]))
        outputs = authors_outputs(adapter, torch.from_numpy(image("image", (2, 3, 224, 224))), text)
        yield Golden(request.param, arrays, adapter, outputs)


def test_facts(golden: Golden) -> None:
    adapter, cells = golden.adapter, 7 if "32" in golden.name else 14
    assert (adapter.name, adapter.weights) == ("clip", "published")
    assert adapter.variant == ("vit-b-32" if "32" in golden.name else "vit-b-16")
    assert adapter.geometry == Geometry("crop", 224, 224, "bicubic")
    assert adapter.grid == (cells, cells) and adapter.text_shape == (512,)
    assert adapter.logit_scale == pytest.approx(1 / 0.07) and adapter.context == 77
    assert all(parameter.dtype == torch.float32 for parameter in adapter.module.parameters())


FEATURES = ("image_features", "patch_features", "text_features")
SCORES = ("logits_per_image", "logits_per_text", "probabilities", "similarity_map")


@pytest.mark.parametrize("name", [*FEATURES, *SCORES])
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_exported_outputs(golden: Golden) -> None:
    logits, saliency = golden.adapter.forward(
        torch.from_numpy(image("image", (2, 3, 224, 224))), golden.outputs["text_features"]
    )
    golden.check("logits_per_image", logits)
    golden.check("similarity_map", saliency)


def test_a_shorter_row_of_ids_is_the_same(golden: Golden) -> None:
    tokens = torch.from_numpy(golden.arrays["tokens"])
    longest = int(tokens.argmax(dim=1).max()) + 1
    assert longest < tokens.shape[1]
    golden.check("text_features", golden.adapter.encode_text(tokens[:, :longest]))


def test_blocks(golden: Golden) -> None:
    """Every block's output, first 8 channels, at the tokens of the golden."""
    module, seen = golden.adapter.module, {"image": [], "text": []}
    hooks = [
        block.register_forward_hook(lambda _, __, out, key=key: seen[key].append(out))
        for key, tower in (("image", module.visual.transformer), ("text", module.transformer))
        for block in tower.resblocks
    ]
    golden.adapter.encode_text(torch.from_numpy(golden.arrays["tokens"]))
    golden.adapter.forward(torch.from_numpy(image("image", (2, 3, 224, 224))), golden.outputs["text_features"])
    for hook in hooks:
        hook.remove()
    golden.check("probe_image_blocks", torch.stack([out[:, [0, 1, -1], :8] for out in seen["image"]]))
    golden.check("probe_text_blocks", torch.stack([out[:, [0, 1, 4], :8] for out in seen["text"]]))


def test_ensemble_of_prompts(golden: Golden, shared: Path) -> None:
    """Normalise, average over the templates, normalise: what a prompt set of several texts per class is made of."""
    from open_clip import get_tokenizer

    manifest = json.loads((shared / "parity" / f"clip_{golden.name.split('-')[0]}.json").read_text())["ensemble"]
    texts = [template.format(name) for name in manifest["classes"] for template in manifest["templates"]]
    features = golden.adapter.encode_text(get_tokenizer("ViT-B-32")(texts))
    unit = features / features.norm(dim=-1, keepdim=True)
    mean = unit.reshape(len(manifest["classes"]), -1, unit.shape[-1]).mean(dim=1)
    golden.check("ensemble_text_features", mean / mean.norm(dim=-1, keepdim=True))


def test_stand_in_equals_the_filled_checkpoint(golden: Golden) -> None:
    adapter = stand_in_adapter("clip", golden.adapter.variant)
    assert adapter.weights == "stand-in" and adapter.checkpoint is None
    state, loaded = adapter.module.state_dict(), golden.adapter.module.state_dict()
    assert list(state) == list(loaded)
    assert all(torch.equal(state[name], loaded[name]) for name in state)


def test_half_precision_archive_becomes_float32(shared: Path, tmp_path: Path) -> None:
    """OpenAI's archives keep most tensors in float16; the values stay those of the file."""
    tensors = manifest_tensors(shared, "vit_b_32")
    halved = {name: x.half() if x.ndim > 1 and "embedding" not in name else x for name, x in tensors.items()}
    write_torchscript(halved, tmp_path / "ViT-B-32.pt")
    state = load_adapter("clip", tmp_path / "ViT-B-32.pt").module.state_dict()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert all(torch.equal(state[name], tensor.float()) for name, tensor in halved.items())


def test_names_are_those_of_transformers() -> None:
    """The table used above against the installed library's own CLIP."""
    from transformers import CLIPConfig, CLIPModel

    with torch.device("meta"):
        library = {name: tuple(x.shape) for name, x in CLIPModel(CLIPConfig()).state_dict().items()}
    ours = stand_in_shapes()
    table = {name: tuple(tensor.shape) for name, tensor in transformers_names(ours).items()}
    assert table == {name: shape for name, shape in library.items() if not name.endswith("position_ids")}
    back = canonical_tensors(transformers_names(ours), Path("clip.safetensors"))
    assert {name: x.shape for name, x in back.items()} == {name: x.shape for name, x in ours.items()}


def test_weights_of_unknown_training_come_with_a_caution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and shapes are LAION's too; only the sha256 of OpenAI's own files tells."""
    from xbench_fast.export.pipeline import BundleOptions, ModelSource, export_bundle

    adapter = stand_in_adapter("clip")
    assert adapter.cautions() == ()
    adapter.checkpoint = CheckpointRecord("open_clip_model.safetensors", "0" * 64)
    (line,) = adapter.cautions()
    assert all(word in line for word in ("open_clip_model.safetensors", "QuickGELU", "LAION", "DataComp"))
    monkeypatch.setattr(ClipAdapter, "stand_in", lambda variant, seed: adapter)
    said: list[str] = []
    with pytest.raises(ConfigError, match="leave out --tokenizer"):  # after the line, before the work
        export_bundle(ModelSource("clip"), tmp_path / "out", BundleOptions(tokenizer=tmp_path, progress=said.append))
    assert f"caution: {line}" in said
    for digest in (
        "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af",
        "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f",
    ):
        adapter.checkpoint = CheckpointRecord("ViT.pt", digest)
        assert adapter.cautions() == ()


def stand_in_shapes() -> dict[str, Tensor]:
    from xbench_fast.export.models.clip import build_clip

    with torch.device("meta"):
        return dict(build_clip(32).state_dict())


@pytest.mark.parametrize("patch", [14, 32])
def test_another_size_is_refused(tmp_path: Path, patch: int) -> None:
    """ViT-L/14 is not known; a ViT-B/32 with a layer missing says what is missing."""
    tensors = {name: torch.zeros(()).expand(x.shape) for name, x in stand_in_shapes().items()}
    tensors["visual.conv1.weight"] = torch.zeros(768, 3, patch, patch)
    kept = {name: tensor for name, tensor in tensors.items() if "visual.transformer.resblocks.11." not in name}
    torch.save(kept, tmp_path / "clip.pt")
    expected = "patches of 14 pixels" if patch == 14 else r"12 missing \(visual.transformer.resblocks.11"
    with pytest.raises(CheckpointError, match=expected):
        load_adapter("clip", tmp_path / "clip.pt")
