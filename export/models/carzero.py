"""CARZero (Lai et al. 2024, CVPR) as its authors published it (docs/parity.md §3.6).

A prompt's sentence vector attends to the image and the image's vector attends to the prompt's words, both through the
same decoder; the score is the mean of the two logits. The map is the first direction's attention to the patches.
"""

from __future__ import annotations

import reprlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.errors import CheckpointError
from ...engines.geometry import Geometry
from ..adapter import Adapter, CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.inert_pickle import Record
from ..checkpoints.matching import ModelTensors, TensorNames
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..tokenizing.reference import BERT_CASED, bert_reference
from .layers.bert import Bert, BertConfig
from .layers.query_decoder import DecoderConfig, QueryDecoder, cosines, join_layers
from .layers.vit import VisionTransformer, ViTConfig
from .saliency_maps import LAYER_MEAN, MAPS, PLAIN, Reading, reading_of

PREFIX = "CARZero."
VARIANT = "vit-b-16"
WORD_TABLE = "text_encoder.model.embeddings.word_embeddings.weight"
NAMES = TensorNames(
    "CARZero",
    rename=lambda name: name.rpartition(PREFIX)[2],
    # One norm has two names; in the official loading order the second wins.
    aliases=tuple(
        (f"fusion_module.decoder_norm.{part}", f"fusion_module.decoder.norm.{part}") for part in ("weight", "bias")
    ),
)

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
MEAN, STD = (0.4978,) * 3, (0.2449,) * 3
RESIZE = 256  # `imsize` of the authors' configuration
TOKENIZERS = ("Laihaoran/BioClinicalMPBERT",)
ENDS = (101, 102)  # [CLS] and [SEP]
LAST_LAYERS = 4  # of BERT, summed
Answer = tuple[Tensor, list[Tensor]]  # logits [B, Q] and per layer the weights [B, Q, N] of one direction


@dataclass(frozen=True)
class CarzeroConfig:
    """Sizes; the defaults are the published model's. `words` is the number of word places of a prompt."""

    words: int = 97
    vit: ViTConfig = field(default_factory=ViTConfig)
    bert: BertConfig = field(default_factory=lambda: BertConfig(vocabulary=28996, pooler=False))
    decoder: DecoderConfig = field(default_factory=lambda: DecoderConfig(self_attention=False))
    head: tuple[int, ...] = (1024, 512, 256)


def merge_words(states: Tensor, mask: Tensor, words: int) -> Tensor:
    """Sums the vectors of each word's pieces: states [T, N, C] -> [T, words, C], the rest filled with zeros.

    `mask` int64 [T, N]: 1 begins a word ([CLS] and [SEP] are words), 2 continues it, 0 is padding.
    """
    word = torch.where(mask > 0, (mask == 1).cumsum(dim=1) - 1, -1)
    places = torch.arange(words, device=mask.device)
    return (word[:, None, :] == places[:, None]).to(states.dtype) @ states


class Fusion(nn.Module):
    """Decoder in which each query attends to a memory separately. One LayerNorm is used three times, as in KAD."""

    def __init__(self, config: DecoderConfig, head: tuple[int, ...]) -> None:
        super().__init__()
        self.decoder = QueryDecoder(config)
        layers: list[nn.Module] = []
        for inputs, outputs in zip((config.width, *head), head, strict=False):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Identity()]  # dropout in training
        self.mlp_head = nn.Sequential(*layers, nn.Linear(head[-1], 1))

    def forward(self, queries: Tensor, memory: Tensor, reading: Reading = PLAIN) -> Answer:
        """queries [Q, C], memory [B, N, C] -> logits [B, Q] and each layer's map [B, Q, N], by default the attention,
        mean over heads."""
        norm = self.decoder.norm
        states, maps = self.decoder(norm(queries)[None], norm(memory), reading)
        return self.mlp_head(states).squeeze(-1), maps


class Carzero(nn.Module):
    """The three parts, named as in a published checkpoint after its prefix, without tensors that no output uses."""

    def __init__(self, config: CarzeroConfig) -> None:
        super().__init__()
        self.config = config
        self.text_encoder = nn.ModuleDict({"model": Bert(config.bert)})
        self.img_encoder = nn.ModuleDict({"model": VisionTransformer(config.vit)})
        self.fusion_module = Fusion(config.decoder, config.head)

    def encode_image(self, image: Tensor) -> Tensor:
        """[B, 3, S, S] -> [B, 1 + N, C]: the vector of the whole image, then its patches."""
        tokens: Tensor = self.img_encoder["model"](image)
        return tokens

    def encode_text(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask int64 [T, N], mask as in `merge_words` -> [T, 1 + words, C]: the sentence, then its words.

        The sentence is the mean over all word places, the empty ones included. Words end with the first [SEP].
        """
        states = self.text_encoder["model"](ids, mask.clamp(max=1))
        ends = (ids == ENDS[1]).to(ids.dtype)
        mask = torch.where(ends.cumsum(dim=1) - ends > 0, 0, mask)
        words = merge_words(torch.stack(states[-LAST_LAYERS:]).sum(dim=0), mask, self.config.words)
        return torch.cat([words.mean(dim=1, keepdim=True), words], dim=1)

    def forward(self, image: Tensor, text: Tensor, reading: Reading = PLAIN) -> tuple[Answer, Answer]:
        """Encoded image [B, 1 + N, C] and text [Q, 1 + words, C] -> the sentences' answers from the image (logits
        [B, Q]) and the images' answers from the words, empty places included (logits [Q, B])."""
        return self.fusion_module(text[:, 0], image, reading), self.fusion_module(image[:, 0], text)


class CarzeroAdapter(Adapter):
    """CARZero with ViT-B/16 and BioClinicalMPBERT."""

    variants: ClassVar[tuple[str, ...]] = (VARIANT,)
    maps: ClassVar[Mapping[str, str]] = MAPS["carzero"]
    module: Carzero

    @classmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads the authors' Lightning file; its other classes are never imported. Raises CheckpointError."""
        source = read_checkpoint(checkpoint)
        with torch.device("meta"):
            module = Carzero(read_config(source))
        read_tensors(source, module.state_dict()).install(module)
        return cls._describe(module, "published", source.record)

    @classmethod
    def stand_in(cls, variant: str = VARIANT, seed: int = 0) -> Self:
        """`variant` is "vit-b-16"."""
        module = stand_in_module(lambda: Carzero(CarzeroConfig()), seed, f"state_dict.{PREFIX}")
        return cls._describe(module, "stand-in", None)

    @classmethod
    def _describe(cls, module: Carzero, weights: Weights, record: CheckpointRecord | None) -> Self:
        config = module.config
        return cls(
            module=module,
            name="carzero",
            variant=VARIANT,
            weights=weights,
            geometry=Geometry("pad_crop", config.vit.image_size, RESIZE, "area"),
            mean=MEAN,
            std=STD,
            grid=(config.vit.grid,) * 2,
            saliency=Saliency("attention", cls.maps[LAYER_MEAN]),
            text_shape=(1 + config.words, config.bert.width),
            text_inputs=("input_ids", "attention_mask"),
            context=config.words,
            vocabulary_size=config.bert.vocabulary,
            tokenizer=TokenizerSpec(
                "wordpiece",
                TOKENIZERS,
                cleaning="carzero",
                reference=partial(bert_reference, "carzero"),
                marks_continuations=True,
                ends=ENDS,
                sample=BERT_CASED if config.bert.vocabulary == 28996 else None,  # the published size
            ),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """By timm's resampling of the positions."""
        tower: Any = self.module.img_encoder["model"]
        self.grid = tower.resize(side, self.name)

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N <= 97] -> float32 [T, 98, 768]: row 0 is the sentence, row 1 + i the i-th word.

        The ids do not say which tokens are `##` pieces: `mask` is 1 where a word begins, 2 where it continues and 0 on
        the padding. Without a mask every token is a word.
        """
        return self.module.encode_text(ids, torch.ones_like(ids) if mask is None else mask)

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The logit is the authors' score (they apply no sigmoid); the map leaves out the share of the whole image."""
        reading = reading_of(self.map_name, self.maps)
        tokens = self.module.encode_image(image)
        (i2t, maps), (t2i, _) = self.module(tokens, text, reading)
        if reading.similarity:
            norm = self.module.fusion_module.decoder.norm
            maps = [cosines(norm(tokens), norm(text[:, 0]))]
        patches = join_layers(maps, reading)[..., 1:]  # without key 0, the whole image, and not normalised again
        return (i2t + t2i.T) / 2, torch.unflatten(patches, -1, self.grid)


def read_config(source: Checkpoint) -> CarzeroConfig:
    """The published sizes with the vocabulary of the file. Raises CheckpointError for a training configuration with
    other settings, and for a file without a vocabulary."""
    check_settings(source, STATED, "CARZero")
    vocabulary, _ = source.model_tensors(NAMES).shape(WORD_TABLE)
    return CarzeroConfig(bert=BertConfig(vocabulary=vocabulary, pooler=False))


def read_tensors(source: Checkpoint, needed: Container[str]) -> ModelTensors:
    """The tensors `needed`; as in the official loader, others are ignored."""
    tensors = source.model_tensors(NAMES)
    return replace(tensors, by_name={name: x for name, x in tensors.by_name.items() if name in needed})


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
