"""Options of open_clip's training that change names or shapes of tensors: read, or told with their line of the
configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from ....engines.errors import CheckpointError
from ...adapter import CheckpointRecord
from ...checkpoints.matching import patches_per_side
from ...checkpoints.stated_activation import EXACT, QUICK, scripted_activation
from ..published_checkpoints import PUBLISHED

_POSITIONS: Final = ("visual.positional_embedding", "visual.trunk.pos_embed", "visual.attnpool.positional_embedding")
_BLOCKS: Final = {
    "visual.transformer.resblocks.": "vision_cfg.layers",
    "transformer.resblocks.": "text_cfg.layers",
    "text.transformer.resblocks.": "text_cfg.layers",
}
_LINES: Final = (
    ("positional_embedding", 0, "text_cfg.context_length"),
    ("text.positional_embedding", 0, "text_cfg.context_length"),
    ("token_embedding.weight", 0, "text_cfg.vocab_size"),
    ("text.token_embedding.weight", 0, "text_cfg.vocab_size"),
    ("token_embedding.weight", 1, "text_cfg.width"),
    ("text.token_embedding.weight", 1, "text_cfg.width"),
    ("visual.conv1.weight", 0, "vision_cfg.width"),
    ("visual.conv1.weight", 3, "vision_cfg.patch_size"),
    ("visual.proj", 1, "embed_dim"),
)
"""Tensor, its dimension, and the line of open_clip_config.json that states its size."""
_POOLING: Final = "text.transformer.pooler."


def follow_options(model: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Changes the configuration `model` as the options `--siglip` and `--force-custom-text` of the training do, where
    the names of the tensors show them.

    Without a bias in the file there is none in the model; open_clip adds 0 there.
    """
    if "logit_scale" in tensors:
        model["init_logit_bias"] = 0.0 if "logit_bias" in tensors else None
    if "text.token_embedding.weight" in tensors and "hf_model_name" not in model["text_cfg"]:
        model["custom_text"] = True


def as_named(tensors: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The tensors under the model's names: text towers moved below `text.`, and scale and bias in the model's shape.

    BERT's pooling layer is left out where the model has none; `pooling_caution` says so.
    """
    from open_clip.model import convert_to_custom_text_state_dict

    needed = model.state_dict()
    if "positional_embedding" in tensors and "positional_embedding" not in needed:
        tensors = convert_to_custom_text_state_dict(tensors)
    if not any(name.startswith("text.") for name in tensors):
        # UniMed-CLIP's own copy of open_clip has the same BERT tower and projection, and calls them `text_encoder`.
        tensors = {re.sub(r"^text_encoder\.", "text.", name): tensor for name, tensor in tensors.items()}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_POOLING) or name in needed}
    for name in ("logit_scale", "logit_bias"):
        if name in tensors and name in needed and tensors[name].numel() == 1:
            tensors[name] = tensors[name].reshape(needed[name].shape)
    return tensors


def pooling_caution(tensors: Mapping[str, Tensor], model: nn.Module, text: Mapping[str, Any]) -> tuple[str, ...]:
    """The remark on a file with BERT's pooling layer for a model without one. Training writes this layer whatever the
    loss reads (BiomedCLIP-CXR), so the configuration `text` decides."""
    if any(name.startswith(_POOLING) for name in model.state_dict()):
        return ()
    if not any(re.match(r"text(_encoder)?\.transformer\.pooler\.", name) for name in tensors):
        return ()
    return (
        f"the file has the pooling layer of BERT, which hf_pooler_type = '{text.get('hf_pooler_type')}' does not use; "
        "check that the model was trained with this value",
    )


def check_sizes(model: nn.Module, size: Any, tensors: Mapping[str, Tensor], path: Path, title: str) -> None:
    """Raises CheckpointError where the tensors have another size than the architecture, with the line that states it.

    `size` is the architecture's image size.
    """
    needed = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for start, line in _BLOCKS.items():
        expected, trained = _count(start, needed), _count(start, shapes)
        if expected and trained and expected != trained:
            raise _other(path, title, line, trained, expected)
    for name, dimension, line in _LINES:
        wanted, stored = needed.get(name, ()), shapes.get(name, ())
        if len(wanted) == len(stored) > dimension and wanted[dimension] != stored[dimension]:
            raise _other(path, title, line, stored[dimension], wanted[dimension])
    for name in _POSITIONS:
        if sides := patches_per_side(shapes.get(name, ()), needed.get(name, ())):
            trained, expected = sides
            divides = isinstance(size, int) and size * trained % expected == 0
            raise CheckpointError(
                f"{path} is of another image size than {title}: it has the positions of {trained} x {trained} patches, "
                f"the architecture has {expected} x {expected}, and positions are not interpolated here as "
                "open_clip does it"
                + (f"; export it with preprocess = {{size = {size * trained // expected}}}." if divides else ".")
            )


def with_activation(record: CheckpointRecord, path: Path, model: Mapping[str, Any], title: str) -> CheckpointRecord:
    """The record with the activation of open_clip's own transformers, which weights do not state, and where it is known
    from; as it is for towers of other libraries alone.

    Raises CheckpointError where the TorchScript archive at `path` computes another one than the architecture `model`.
    """
    towers = (model["vision_cfg"], "timm_model_name"), (model["text_cfg"], "hf_model_name")
    open_clip_towers = [tower for tower, other in towers if other not in tower]
    if not open_clip_towers or any("act_kwargs" in tower for tower in open_clip_towers):
        return record
    openai = record.sha256 in PUBLISHED["clip"].sha256.values()
    activation = QUICK if openai else scripted_activation(path)
    stated = QUICK if model.get("quick_gelu") else EXACT
    source = "read from OpenAI's sha256" if openai else "read from TorchScript code"
    if activation not in ("", stated):
        raise CheckpointError(
            f"{path} was trained with {activation} ({source}), and the architecture {title} computes {stated}; give "
            "--arch the name with -quickgelu, or without it, or an open_clip_config.json whose quick_gelu fits."
        )
    assumed = f"as the architecture {title} states, because the weights do not state it"
    return replace(record, activation=f"{stated}, {source if activation else assumed}")


def _other(path: Path, title: str, line: str, trained: int, expected: int) -> CheckpointError:
    return CheckpointError(
        f"{path} was trained with {line} = {trained}, and {title} has {expected}; give --arch the "
        "open_clip_config.json of the training, with that line."
    )


def _count(start: str, names: Mapping[str, Any]) -> int:
    return len({name.removeprefix(start).partition(".")[0] for name in names if name.startswith(start)})
