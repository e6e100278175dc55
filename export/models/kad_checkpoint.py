"""KAD's sizes and the structure of its checkpoints (docs/parity.md §3.4)."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from torch import Tensor, nn

from ...engines.errors import CheckpointError
from ..adapter import Weights
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.matching import ModelTensors, TensorNames
from .layers.bert import BertConfig
from .layers.query_decoder import DecoderConfig
from .layers.resnet import ResNetConfig

ANCHORS = {
    "image_encoder": "res_l1.weight",
    "text_encoder": "bert_model.embeddings.word_embeddings.weight",
    "model": "mlp_head.0.weight",
}
PARTS = tuple(ANCHORS)
NAMES = TensorNames(
    "KAD",
    unused=r"^(text_encoder|model)\.logit_scale$|^text_encoder\.bert_model\.embeddings\.position_ids$",
    aliases=tuple((f"model.decoder_norm.{part}", f"model.decoder.norm.{part}") for part in ("weight", "bias")),
)
TORCHVISION = re.compile(r"resnet\.(conv1|bn1|layer[1-4]|fc)\.(.+)")
POSITIONS = {"conv1": 0, "bn1": 1, "layer1": 4, "layer2": 5, "layer3": 6, "layer4": 7}
FULL_WIDTH, FULL_TEXT_HEADS, FULL_DECODER_HEADS = 768, 12, 4


@dataclass(frozen=True)
class KadConfig:
    """Sizes; the defaults are for KAD-512. `decoder.width` is the width all three parts share."""

    image_size: int = 512
    resnet: ResNetConfig = field(default_factory=ResNetConfig)
    bert: BertConfig = field(default_factory=BertConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)


CONFIGS = {
    "224": KadConfig(image_size=224, resnet=ResNetConfig(widths=(64, 128, 256), blocks=(3, 4, 6))),
    "512": KadConfig(image_size=512),
    "1024": KadConfig(image_size=1024),
    "demo": KadConfig(
        image_size=224,
        resnet=ResNetConfig(stem=16, widths=(8, 16, 32), blocks=(1, 1, 1)),
        bert=BertConfig(vocabulary=128, width=64, layers=2, heads=2, hidden=128, positions=64),
        decoder=DecoderConfig(width=64, layers=2, heads=2, hidden=128),
    ),
}


@dataclass(frozen=True)
class KadParts:
    """The content of a checkpoint: sizes, variant, kind of weights, word pieces if it has them, canonical tensors."""

    config: KadConfig
    variant: str
    weights: Weights
    vocabulary: tuple[str, ...] | None
    tensors: ModelTensors


def read_parts(source: Checkpoint, resolution: int | None = None) -> KadParts:
    """Sorts a checkpoint's tensors under their canonical names and reads the sizes from their shapes.

    A model of other sizes than the published ones states in `config["xbench"]` what shapes do not show: `weights`,
    `img_res`, `decoder_heads`, `text_heads` and optionally `vocabulary`. Of the published models that share their
    tensors `resolution` says which it is. Raises CheckpointError.
    """
    parts = source.parts(ANCHORS, "KAD")
    joined = joined_parts({**parts, "image_encoder": _one_resnet(parts["image_encoder"])}, source.path)
    tensors = ModelTensors(joined, source.path, NAMES.model, source.names())
    stated = source.settings().get("xbench")
    if stated is None:
        config = _published(source, tensors, resolution)
        return KadParts(config, str(config.image_size), "published", None, tensors)
    settings = stated if isinstance(stated, Mapping) else {}
    weights = settings.get("weights", "demo")
    if weights not in get_args(Weights):
        raise CheckpointError(
            f"{source.path} states weights {reprlib.repr(weights)}; known are {', '.join(get_args(Weights))}."
        )
    stated_size = settings.get("img_res")
    size = _choose(source.path, stated_size, (stated_size, resolution), range(32, 4097))
    config = _config(tensors, settings, size)
    variant = "demo" if weights == "demo" else str(size)
    return KadParts(config, variant, cast(Weights, weights), _vocabulary(source.path, settings, config.bert), tensors)


def joined_parts(parts: Mapping[str, Mapping[str, Tensor]], path: Path) -> dict[str, Tensor]:
    """The tensors of the three parts of the file at `path`, each under one name, without those that no output uses."""
    return NAMES.of({f"{part}.{name}": tensor for part in PARTS for name, tensor in parts[part].items()}, path)


def as_checkpoint(
    module: nn.Module,
    config: KadConfig,
    *,
    weights: Weights = "demo",
    vocabulary: Sequence[str] | None = None,
    epoch: int = 0,
) -> dict[str, Any]:
    """The published structure for `torch.save`, from a `Kad` module of any size; `read_parts` reads it back.

    `vocabulary` lists the word pieces in the order of their ids.
    """
    stated: dict[str, Any] = {"weights": weights, "img_res": config.image_size}
    stated |= {"decoder_heads": config.decoder.heads, "text_heads": config.bert.heads}
    if vocabulary is not None:
        stated["vocabulary"] = list(vocabulary)
    content: dict[str, Any] = {part: module.get_submodule(part).state_dict() for part in PARTS}
    return {**content, "config": {"xbench": stated}, "epoch": epoch}


def _one_resnet(image: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The image encoder under its canonical names.

    `resnet.*` is the same network as `res_features.*` under torchvision's names; the latter win. Its stages after the
    last used one and its classifier are dropped.
    """
    direct = {name: tensor for name, tensor in image.items() if not TORCHVISION.match(name)}
    aliases: dict[str, Tensor] = {}
    for name, tensor in image.items():
        if (match := TORCHVISION.match(name)) and match[1] in POSITIONS:
            aliases[f"res_features.{POSITIONS[match[1]]}.{match[2]}"] = tensor
    used = {name.split(".")[1] for name in direct if name.startswith("res_features.")} or _stages(direct, aliases)
    return {name: tensor for name, tensor in aliases.items() if name.split(".")[1] in used} | direct


def _stages(direct: Mapping[str, Tensor], aliases: Mapping[str, Tensor]) -> set[str]:
    """The used stages. With torchvision's names only, the linear layer after the network shows which is the last."""
    after = direct.get("res_l1.weight")
    ends = [k for k in range(4, 8) if _rows(aliases.get(f"res_features.{k}.0.conv3.weight")) == _rows(after)]
    return {str(k) for k in (0, 1, *range(4, max(ends, default=7) + 1))}


def _rows(tensor: Tensor | None) -> int:
    return 0 if tensor is None or tensor.ndim == 0 else tensor.shape[0]


def _config(tensors: ModelTensors, settings: Mapping[str, Any], image_size: int) -> KadConfig:
    """The sizes of a model that is not a published one: shapes of its tensors, and the heads that it states."""
    root = "text_encoder.bert_model."
    vocabulary, width = tensors.shape(f"{root}embeddings.word_embeddings.weight")
    bert = BertConfig(
        vocabulary=vocabulary,
        width=width,
        layers=tensors.count(f"{root}encoder.layer."),
        heads=_heads(tensors.path, settings, "text_heads", width, FULL_TEXT_HEADS),
        hidden=tensors.shape(f"{root}encoder.layer.0.intermediate.dense.weight")[0],
        positions=tensors.shape(f"{root}embeddings.position_embeddings.weight")[0],
        types=tensors.shape(f"{root}embeddings.token_type_embeddings.weight")[0],
    )
    root = "image_encoder.res_features."
    stages = range(4, 4 + tensors.count(root, start=4))
    widths = tuple(tensors.shape(f"{root}{k}.0.conv2.weight", 4)[0] for k in stages)
    outputs = tensors.shape(f"{root}4.0.conv3.weight", 4)[0]
    blocks = tuple(tensors.count(f"{root}{k}.") for k in stages)
    resnet = ResNetConfig(tensors.shape(f"{root}0.weight", 4)[0], widths, blocks, outputs // widths[0])
    root = "model.decoder.layers."
    hidden, width = tensors.shape(f"{root}0.linear1.weight")
    heads = _heads(tensors.path, settings, "decoder_heads", width, FULL_DECODER_HEADS)
    return KadConfig(image_size, resnet, bert, DecoderConfig(width, tensors.count(root), heads, hidden))


def _heads(path: Path, settings: Mapping[str, Any], key: str, width: int, published: int) -> int:
    heads = settings.get(key, published if width == FULL_WIDTH else None)
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise CheckpointError(
            f"{path} is not of the published size (width {width}) and config['xbench']['{key}'] is "
            f"{reprlib.repr(heads)}; save it with a number of heads that divides the width."
        )
    return heads


def _published(source: Checkpoint, tensors: ModelTensors, resolution: int | None) -> KadConfig:
    """One of the published models: the encoder's depth identifies 224; only the vocabulary may differ."""
    layer3 = tensors.shape("image_encoder.res_l1.weight")[0] == CONFIGS["224"].resnet.channels
    settings = source.settings()
    stated = settings.get("img_res", settings.get("image_res", 224 if layer3 else 512))
    size = _choose(source.path, stated, (resolution, stated), (224,) if layer3 else (512, 1024))
    vocabulary = tensors.shape("text_encoder.bert_model.embeddings.word_embeddings.weight")[0]
    return replace(CONFIGS[str(size)], bert=BertConfig(vocabulary=vocabulary))


def _choose(path: Path, stated: object, sides: Iterable[object], allowed: Sequence[int]) -> int:
    """The side of the pictures that the weights were trained with: the first of `sides` that is allowed."""
    for side in sides:
        if type(side) is int and side in allowed:
            return side
    resolutions = f"{allowed[0]} to {allowed[-1]}" if isinstance(allowed, range) else " or ".join(map(str, allowed))
    raise CheckpointError(
        f"{path} states the image resolution {reprlib.repr(stated)}, but its image encoder takes {resolutions}; "
        "give the resolution yourself (option resolution)."
    )


def _vocabulary(path: Path, settings: Mapping[str, Any], bert: BertConfig) -> tuple[str, ...] | None:
    words = settings.get("vocabulary")
    if words is None:
        return None
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise CheckpointError(f"{path} has a config['xbench']['vocabulary'] that is not a list of words.")
    if len(words) != bert.vocabulary:
        raise CheckpointError(f"{path} lists {len(words)} word pieces for a text encoder of {bert.vocabulary}.")
    return tuple(words)
