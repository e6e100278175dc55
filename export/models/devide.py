"""DeViDe (Luo et al. 2024, arXiv 2404.03618) as far as it is known: an assumed architecture.

The authors published neither code nor weights, so nothing here can claim parity with them. The parts are those the
paper names: a ViT-B/16, KAD's text encoder (Med-KEBERT) and a query decoder like KAD's (DeViDe specification). The
sizes and choices stand in a config; a file is only read with a mapping of its tensor names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.errors import ConfigError
from ..adapter import Adapter, CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import install
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import fill_module
from .devide_checkpoint import map_tensors
from .devide_config import DevideConfig, read_config
from .layers.bert import Bert, BertConfig
from .layers.query_decoder import DecoderConfig, QueryDecoder, join_layers
from .layers.resnet import ResNetConfig, ResNetGrid
from .layers.vit import VisionTransformer, ViTConfig
from .saliency_maps import ATTENTION_MAPS, MAPS, PLAIN, Reading

__all__ = ["ASSUMED", "Devide", "DevideAdapter", "DevideConfig", "read_config"]

_ENDS = {"xmcmic/Med-KEBERT": (2, 3)}  # [CLS] and [SEP]; another tokenizer of the config's choice is not known
ASSUMED = "assumed-architecture"  # the only variant: it names the bundle, and so every result
RESNET = {3: ResNetConfig(widths=(64, 128, 256), blocks=(3, 4, 6)), 4: ResNetConfig()}


class TextEncoder(nn.Module):
    """Med-KEBERT: BERT, a pooled state, KAD's two linear layers."""

    def __init__(self, config: DevideConfig) -> None:
        super().__init__()
        text, width = config.text, config.decoder.width
        self.pool = text.pool
        sizes = (text.vocabulary, text.width, text.layers, text.heads, text.hidden, text.positions)
        self.bert_model = Bert(BertConfig(*sizes, pooler=text.pool == "pooler"))
        self.mlp_embed: nn.Module = nn.Identity()
        if text.head == "mlp_embed":
            self.mlp_embed = nn.Sequential(nn.Linear(text.width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """int64 [T, N] -> text features [T, D], not normalised."""
        last = self.bert_model(ids, mask)[-1]
        if self.pool == "pooler":
            pooled = self.bert_model.pool(last)
        elif self.pool == "cls":
            pooled = last[:, 0]
        else:
            weights = mask.to(last.dtype)[..., None]
            pooled = (last * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)
        return self.mlp_embed(pooled)


class QueryNetwork(nn.Module):
    """The prompts query the image."""

    def __init__(self, config: DevideConfig) -> None:
        super().__init__()
        decoder, head, text = config.decoder, config.head, config.text
        self.input_norm, self.descriptions = decoder.input_norm, text.descriptions
        self.separate = text.descriptions > 1 and text.combine == "queries"
        sizes = DecoderConfig(decoder.width, decoder.layers, decoder.heads, decoder.ffn, decoder.self_attention)
        self.decoder = QueryDecoder(sizes)
        if config.image.projection == "linear":
            self.memory_projection = nn.Linear(config.image.width, decoder.width)
        if decoder.input_norm == "separate":
            self.decoder_norm = nn.LayerNorm(decoder.width)
        if self.separate:
            self.projection = nn.Linear(text.descriptions * decoder.width, decoder.width)
        hidden = [nn.Linear(decoder.width, decoder.width), nn.ReLU()] if head.kind == "mlp" else []
        self.mlp_head = nn.Sequential(*hidden, nn.Linear(decoder.width, head.outputs))
        last, every = (decoder.layers - 1,), tuple(range(decoder.layers))
        self.layers = decoder.map if isinstance(decoder.map, tuple) else {"last": last, "mean": every}[decoder.map]

    def forward(self, memory: Tensor, text: Tensor, reading: Reading | None = None) -> tuple[Tensor, Tensor]:
        """memory [B, N, C], text [Q, D] or [Q, descriptions, D] -> logits [B, Q, outputs], map [B, Q, N]: by default
        the attention in the layers of the config."""
        if hasattr(self, "memory_projection"):
            memory = self.memory_projection(memory)
        if self.descriptions > 1:
            text = text.flatten(0, 1) if self.separate else text.mean(dim=1)
        states, maps = self.decoder(self._normed(text)[None], self._normed(memory), reading or PLAIN)
        if reading is None:
            attention = torch.stack([maps[number] for number in self.layers]).mean(dim=0)
        else:
            attention = join_layers(maps, reading)
        if self.separate:
            states = self.projection(states.unflatten(1, (-1, self.descriptions)).flatten(2))
            attention = attention.unflatten(1, (-1, self.descriptions)).mean(dim=2)
        return self.mlp_head(states), attention

    def _normed(self, x: Tensor) -> Tensor:
        if self.input_norm == "none":
            return x
        return self.decoder.norm(x) if self.input_norm == "shared" else self.decoder_norm(x)


class Devide(nn.Module):
    """The three parts, named as in the DeViDe specification's manifest."""

    def __init__(self, config: DevideConfig) -> None:
        super().__init__()
        image = config.image
        self.class_token = image.arch == "vit_b16"
        self.keep_class = image.memory == "class_and_patches"
        if self.class_token:
            sizes = (image.size, image.patch, image.width, image.layers, image.heads, image.hidden)
            vit = ViTConfig(*sizes, eps=image.eps, final_norm=image.final_norm)
            self.image_encoder: nn.Module = VisionTransformer(vit)
            self.grid = image.size // image.patch
        else:
            self.image_encoder = ResNetGrid(RESNET[image.stages], image.width)
            self.grid = RESNET[image.stages].grid(image.size)
        self.text_encoder = TextEncoder(config)
        self.model = QueryNetwork(config)

    def ask(self, tokens: Tensor, text: Tensor, reading: Reading | None = None) -> tuple[Tensor, Tensor]:
        """tokens [B, N, C] of the image encoder, a ViT's class token first -> logits, attention to the N patches.

        A class token the decoder sees takes its share of the attention, which then does not sum to 1 over the patches.
        """
        memory = tokens if self.keep_class or not self.class_token else tokens[:, 1:]
        logits, attention = self.model(memory, text, reading)
        return logits, attention[..., 1:] if self.keep_class else attention


@dataclass(kw_only=True, eq=False)
class DevideAdapter(Adapter):
    """A file with its mapping, or stand-in weights; both marked "assumed architecture".

    `config` holds every assumption; `prompts` maps classes to texts where the config gives some.
    """

    variants: ClassVar[tuple[str, ...]] = (ASSUMED,)
    maps: ClassVar[Mapping[str, str]] = MAPS["devide"]

    config: DevideConfig = field(default_factory=DevideConfig)

    @classmethod
    def load(cls, checkpoint: Path, *, config: Path | str | Mapping[str, Any] | None = None) -> Self:
        """Reads a file by the mapping in `config` (a YAML or JSON file, or its content; DeViDe specification).

        Raises ConfigError without a config or without its section `checkpoint`, and CheckpointError that lists every
        unmapped and every missing tensor.
        """
        chosen = DevideConfig() if config is None else read_config(config)
        if chosen.checkpoint is None:
            raise ConfigError(
                "DeViDe's code and weights are not public, so the architecture is assumed and the names in "
                f"{checkpoint} are not known: give a config with a section checkpoint (parts, rename) that says which "
                "tensor is which (option config)."
            )
        source = read_checkpoint(checkpoint)
        with torch.device("meta"):
            module = Devide(chosen)
        needed = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        tensors = map_tensors(source, chosen, chosen.checkpoint, needed)
        install(module, tensors, path=checkpoint, model="DeViDe (assumed architecture)")
        return cls._describe(module, chosen, "published", source.record)

    @classmethod
    def stand_in(
        cls, variant: str, seed: int = 0, config: DevideConfig | Path | str | Mapping[str, Any] | None = None
    ) -> Self:
        """`variant` is "assumed-architecture"; the default `config` is the one the goldens were made with."""
        if variant not in cls.variants:
            raise ConfigError(f"DeViDe has no variant '{variant}'; it has {', '.join(cls.variants)}.")
        chosen = (
            config if isinstance(config, DevideConfig) else DevideConfig() if config is None else read_config(config)
        )
        with torch.device("meta"):
            module = Devide(chosen)
        fill_module(module, seed)
        return cls._describe(module, chosen, "stand-in", None)

    @classmethod
    def _describe(cls, module: Devide, config: DevideConfig, weights: Weights, record: CheckpointRecord | None) -> Self:
        text, preprocess, layers = config.text, config.preprocess, ", ".join(str(n + 1) for n in module.model.layers)
        several = (text.descriptions,) if text.descriptions > 1 else ()
        return cls(
            module=module,
            name="devide",
            variant=ASSUMED,
            weights=weights,
            geometry=preprocess.geometry,
            mean=(preprocess.mean[0], preprocess.mean[1], preprocess.mean[2]),
            std=(preprocess.std[0], preprocess.std[1], preprocess.std[2]),
            grid=(module.grid, module.grid),
            saliency=Saliency(
                "attention",
                f"assumed architecture, not the authors': attention to the image, decoder layer {layers} of "
                f"{config.decoder.layers}, mean over heads",
            ),
            logit_scale=1.0,
            text_shape=(*several, config.decoder.width),
            text_inputs=("input_ids", "attention_mask"),
            context=text.max_length,
            vocabulary_size=text.vocabulary,
            tokenizer=TokenizerSpec(
                "wordpiece", (text.hf_tokenizer,), lower_case=text.lower_case, ends=_ENDS.get(text.hf_tokenizer)
            ),
            checkpoint=record,
            texts_per_query=text.descriptions,
            config=config,
        )

    def wording(self) -> Mapping[str, tuple[str, ...]]:
        """The config's prompts, class by class."""
        return self.config.prompts

    @property
    def net(self) -> Devide:
        """The network."""
        assert isinstance(self.module, Devide)
        return self.module

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N] -> float32 [T, D], one vector a text; without a mask every position counts as a token."""
        features: Tensor = self.net.text_encoder(ids, torch.ones_like(ids) if mask is None else mask)
        return features

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The logit's sigmoid is the probability: of two outputs present - absent, of one output itself."""
        reading = ATTENTION_MAPS.get(self.map_name)
        logits, attention = self.net.ask(self.net.image_encoder(image), text, reading)
        return _present(logits), attention.unflatten(-1, self.grid)

    def outputs(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        """`image_patches` [B, N, C], `image_cls` [B, C] (ViT), `text_features`, `logits` [B, Q, outputs], `probability`
        [B, Q], `attention` [B, Q, N], `attention_map` [B, Q, h, w]."""
        tokens = self.net.image_encoder(image)
        logits, attention = self.net.ask(tokens, text)
        patches = {"image_patches": tokens}
        if self.net.class_token:
            patches = {"image_cls": tokens[:, 0], "image_patches": tokens[:, 1:]}
        return {
            **patches,
            "text_features": text,
            "logits": logits,
            "probability": _present(logits).sigmoid(),
            "attention": attention,
            "attention_map": attention.unflatten(-1, self.grid),
        }


def _present(logits: Tensor) -> Tensor:
    """[B, Q, 2] (absent, present) or [B, Q, 1] -> [B, Q]."""
    return logits[..., 1] - logits[..., 0] if logits.shape[-1] == 2 else logits[..., 0]
