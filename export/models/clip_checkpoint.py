"""CLIP's tensor names: OpenAI's are canonical, those of transformers are translated (docs/parity.md §3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ...engines.errors import CheckpointError
from ..adapter import CheckpointRecord
from ..checkpoints.matching import renamed
from ..checkpoints.stated_activation import QUICK, configured_activation, scripted_activation
from .published import PUBLISHED

# Scalars and masks of the TorchScript archives, and index buffers of old transformers releases; they are not weights.
NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask", "position_ids")
# In order; each is replaced where it occurs.
RENAMES = (
    ("vision_model.embeddings.patch_embedding.", "visual.conv1."),
    ("vision_model.embeddings.class_embedding", "visual.class_embedding"),
    ("vision_model.embeddings.position_embedding.weight", "visual.positional_embedding"),
    ("vision_model.pre_layrnorm.", "visual.ln_pre."),
    ("vision_model.post_layernorm.", "visual.ln_post."),
    ("vision_model.encoder.layers.", "visual.transformer.resblocks."),
    ("text_model.embeddings.token_embedding.", "token_embedding."),
    ("text_model.embeddings.position_embedding.weight", "positional_embedding"),
    ("text_model.final_layer_norm.", "ln_final."),
    ("text_model.encoder.layers.", "transformer.resblocks."),
    (".layer_norm1.", ".ln_1."),
    (".layer_norm2.", ".ln_2."),
    (".self_attn.", ".attn."),
    (".mlp.fc1.", ".mlp.c_fc."),
    (".mlp.fc2.", ".mlp.c_proj."),
)
TRANSPOSED = {"visual_projection.weight": "visual.proj", "text_projection.weight": "text_projection"}


def canonical_tensors(found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors of any published CLIP file under OpenAI's names; unknown names pass unchanged.

    Raises CheckpointError when the file at `path` has one tensor under two names.
    """
    weights = {name: tensor for name, tensor in found.items() if name.rpartition(".")[2] not in NO_WEIGHTS}
    if any(name.startswith(("vision_model.", "text_model.")) for name in weights):
        return _from_transformers(weights, path)
    return weights


def quick_activation(path: Path, record: CheckpointRecord, names: Iterable[str]) -> CheckpointRecord:
    """The record of the CLIP file at `path`, with where QuickGELU is known from; that of OpenAI's own files as it is.

    `names` are those of its tensors. Raises CheckpointError where the file, or the config.json beside one of
    transformers, states another activation.
    """
    if record.sha256 in PUBLISHED["clip"].sha256.values():
        return record
    activation, source = scripted_activation(path), "read from TorchScript code"
    if not activation and any("vision_model." in name for name in names):
        activation, source = configured_activation(path), "read from config.json"
    if activation not in ("", QUICK):
        raise CheckpointError(
            f"{path} was trained with {activation} ({source}), and this model computes {QUICK}; export it with "
            "--family open_clip and its architecture, or the folder with --family transformers."
        )
    assumed = "assumed, because no CLIP file states it"
    return replace(record, activation=f"{QUICK}, {source if activation else assumed}")


def _from_transformers(found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    import torch

    turned = {name: tensor.T if name in TRANSPOSED else tensor for name, tensor in found.items()}
    tensors = renamed(turned, _rename, path=path)
    for name in [name for name in tensors if ".attn.q_proj." in name]:
        trio = [name.replace("q_proj", f"{part}_proj") for part in "qkv"]
        packed = name.replace("q_proj.", "in_proj_")
        if all(part in tensors for part in trio) and packed not in tensors:
            tensors[packed] = torch.cat([tensors.pop(part) for part in trio])
    return tensors


def _rename(name: str) -> str:
    if name in TRANSPOSED:
        return TRANSPOSED[name]
    for old, new in RENAMES:
        name = name.replace(old, new)
    return name
