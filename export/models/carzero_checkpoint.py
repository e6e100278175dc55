"""CARZero's sizes and the structure of its checkpoint (docs/parity.md §3.6), which AFLoc's is like."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...engines.errors import CheckpointError
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.inert_pickle import Record
from ..checkpoints.matching import TensorSizes, renamed
from .layers.bert import BertConfig
from .layers.query_decoder import DecoderConfig
from .layers.vit import ViTConfig

PREFIX = "CARZero."
VARIANT = "vit-b-16"
WORD_TABLE = "text_encoder.model.embeddings.word_embeddings.weight"

# Settings of the training configuration that this adapter supports; tensors do not show them.
STATED: dict[str, object] = {
    "model.norm": False,
    "model.text.last_n_layers": 4,
    "model.text.aggregate_method": "sum",
    "model.text.agg_tokens": True,
    "model.text.norm": False,
    "model.fusion.H": 4,
    "model.fusion.decoder_number_layer": 4,
    "data.text.word_num": 97,
    "data.image.imsize": 256,
    "transforms.norm": "CXR_MAE",
    "transforms.random_crop.crop_size": 224,
}


@dataclass(frozen=True)
class CarzeroConfig:
    """Sizes; the defaults are the published model's. `words` is the number of word places of a prompt."""

    words: int = 97
    vit: ViTConfig = field(default_factory=ViTConfig)
    bert: BertConfig = field(default_factory=lambda: BertConfig(vocabulary=28996, pooler=False))
    decoder: DecoderConfig = field(default_factory=lambda: DecoderConfig(self_attention=False))
    head: tuple[int, ...] = (1024, 512, 256)


def read_config(source: Checkpoint) -> CarzeroConfig:
    """The published sizes with the vocabulary of the file. Raises CheckpointError for a training configuration with
    other settings, and for a file without a vocabulary."""
    check_settings(source, STATED, "CARZero")
    sizes = TensorSizes(_short_names(source), path=source.path, model="CARZero", names=source.names())
    return CarzeroConfig(bert=BertConfig(vocabulary=sizes(WORD_TABLE)[0], pooler=False))


def check_settings(source: Checkpoint, expected: Mapping[str, object], model: str) -> None:
    """Raises CheckpointError where the training configuration of a Lightning file states other settings."""
    stated = source.content.get("hyper_parameters")
    for name, wanted in expected.items():
        value = _look_up(stated, name.split("."))
        if value is not None and not (isinstance(value, int | float | str) and value == wanted):
            raise CheckpointError(
                f"{source.path} was trained with {name} = {reprlib.repr(value)}; only {model} with {wanted!r} can be "
                "exported."
            )


def read_tensors(source: Checkpoint, needed: Iterable[str]) -> dict[str, Tensor]:
    """The tensors `needed` under the names after the prefix; as in the official loader, others are ignored."""
    found = _short_names(source)
    for kind in ("weight", "bias"):  # one norm under two names; in the official loading order the second wins
        alias = found.get(f"fusion_module.decoder_norm.{kind}")
        if alias is not None:
            found.setdefault(f"fusion_module.decoder.norm.{kind}", alias)
    wanted = set(needed)
    return {name: tensor for name, tensor in found.items() if name in wanted}


def _short_names(source: Checkpoint) -> dict[str, Tensor]:
    return renamed(source.tensors(), lambda name: name.rpartition(PREFIX)[2], path=source.path)


def _look_up(value: Any, path: Iterable[str]) -> Any:
    """The value under the keys of `path`; containers and leaves of OmegaConf are the attributes of inert records."""
    value = _opened(value)
    for key in path:
        value = _opened(value.get(key)) if isinstance(value, Mapping) else None
    return value


def _opened(value: Any) -> Any:
    if not isinstance(value, Record):
        return value
    return value.attributes.get("_val", value.attributes.get("_content", value.attributes))
