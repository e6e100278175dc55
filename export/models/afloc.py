"""AFLoc (Yang et al. 2024) as its authors published it (docs/parity.md §3.11).

A ResNet-50 and CARZero's text tower. The map is the dot product of the sentence with each cell of the third stage,
smoothed by a Gaussian; the score is the cosine of the sentence and the mean of the fourth stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...engines.geometry import Geometry
from ..adapter import Adapter, CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import TensorNames
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..tokenizing.reference import BERT_CASED, bert_reference
from .carzero import WORD_TABLE, check_settings
from .layers.bert import Bert, BertConfig
from .layers.resampling import SIGMA, Resampled, corner_matrix, gaussian_matrix
from .layers.resnet import ResNetBackbone, ResNetConfig
from .saliency_maps import MAPS, SMOOTHED

PREFIX = "afloc."
VARIANT = "resnet-50"
TOKENIZERS = ("emilyalsentzer/Bio_ClinicalBERT",)
ENDS = (101, 102)  # [CLS] and [SEP]
SIZE, ENLARGED = 224, 299
WORDS = 97  # places of a prompt: tokens at most, and the divisor of its mean
LAST_LAYERS = 4  # of BERT, summed
VOCABULARY = 28996  # the published size

# Settings of the training configuration that this adapter supports; tensors do not show them.
STATED: dict[str, object] = {
    "model.norm": False,
    "model.vision.model_name": "resnet_50",
    "model.text.last_n_layers": LAST_LAYERS,
    "model.text.aggregate_method": "sum",
    "model.text.agg_tokens": True,
    "model.text.norm": False,
    "data.text.word_num": WORDS,
}
NAMES = TensorNames(
    "AFLoc",
    anchors=(WORD_TABLE,),
    unused=r"^img_encoder\.local2_embedder\.|^img_encoder\.local_f_embedder\.|^text_encoder\.model\.pooler\."
    r"|^text_encoder\.model\.embeddings\.position_ids",
)


class _ImageEncoder(nn.Module):
    def __init__(self, resnet: ResNetConfig, width: int) -> None:
        super().__init__()
        self.model = ResNetBackbone(resnet)
        self.local_embedder = nn.Conv2d(resnet.widths[-2] * resnet.expansion, width, 1, bias=False)
        self.global_embedder = nn.Linear(resnet.channels, width)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """[B, 3, S, S] -> the image [B, C] from the last stage, and the cells [B, C, h, w] of the one before."""
        *layers, last = self.model.children()
        for layer in layers:
            image = layer(image)
        return self.global_embedder(last(image).mean(dim=(2, 3))), self.local_embedder(image)


class Afloc(nn.Module):
    """The two towers, named as in a published checkpoint after its prefix, without tensors that no output uses."""

    def __init__(self, bert: BertConfig, resnet: ResNetConfig | None = None) -> None:
        super().__init__()
        resnet = resnet or ResNetConfig()
        self.text_encoder = nn.ModuleDict({"model": Bert(bert)})
        self.img_encoder = _ImageEncoder(resnet, bert.width)
        self.third = replace(resnet, widths=resnet.widths[:-1])
        self.resize(SIZE)

    def resize(self, side: int) -> None:
        """Makes the resize before the tower, of 299 / 224, and the smoothing those of a picture of `side` pixels."""
        enlarged = round(side * ENLARGED / SIZE)
        self.enlarge = Resampled(corner_matrix(enlarged, side))
        self.cells = self.third.grid(enlarged)
        self.smooth = Resampled(gaussian_matrix(self.cells))

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """[B, 3, 224, 224] -> the image [B, C] and its cells [B, C, h, w], not normalised."""
        encoded: tuple[Tensor, Tensor] = self.img_encoder(self.enlarge(image))
        return encoded

    def encode_text(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask int64 [T, N] -> [T, C]: the sum over the tokens, as CARZero's sum of merged words has the same."""
        states: list[Tensor] = self.text_encoder["model"](ids, mask)
        last = torch.stack(states[-LAST_LAYERS:]).sum(dim=0)
        return (last * mask[..., None].to(last.dtype)).sum(dim=1) / WORDS


class AflocAdapter(Adapter):
    """AFLoc with ResNet-50 and Bio_ClinicalBERT."""

    variants: ClassVar[tuple[str, ...]] = (VARIANT,)
    maps: ClassVar[Mapping[str, str]] = MAPS["afloc"]
    module: Afloc

    @classmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads the authors' Lightning file; its other classes are never imported. Raises CheckpointError."""
        source = read_checkpoint(checkpoint)
        check_settings(source, STATED, "AFLoc")
        tensors = source.model_tensors(NAMES)
        with torch.device("meta"):
            module = Afloc(BertConfig(vocabulary=tensors.shape(WORD_TABLE)[0], pooler=False))
        tensors.install(module)
        return cls._describe(module, "published", source.record)

    @classmethod
    def stand_in(cls, variant: str = VARIANT, seed: int = 0) -> Self:
        """`variant` is "resnet-50"."""
        config = BertConfig(vocabulary=VOCABULARY, pooler=False)
        module = stand_in_module(lambda: Afloc(config), seed, f"state_dict.{PREFIX}")
        return cls._describe(module, "stand-in", None)

    @classmethod
    def _describe(cls, module: Afloc, weights: Weights, record: CheckpointRecord | None) -> Self:
        vocabulary, width = module.get_parameter(WORD_TABLE).shape
        return cls(
            module=module,
            name="afloc",
            variant=VARIANT,
            weights=weights,
            geometry=Geometry("pad_crop", SIZE, SIZE, "area"),
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            grid=(module.cells,) * 2,
            saliency=Saliency("similarity", cls.maps[SMOOTHED], SIGMA),
            text_shape=(width,),
            text_inputs=("input_ids", "attention_mask"),
            context=WORDS,
            vocabulary_size=vocabulary,
            tokenizer=TokenizerSpec(
                "wordpiece",
                TOKENIZERS,
                cleaning="carzero",
                reference=partial(bert_reference, "carzero"),
                ends=ENDS,
                sample=BERT_CASED if vocabulary == VOCABULARY else None,
            ),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """Convolutions take any size; the Gaussian keeps its width in cells."""
        self.module.resize(side)
        self.grid = (self.module.cells,) * 2

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N <= 97] -> float32 [T, 768], not normalised; without a mask every position counts."""
        return self.module.encode_text(ids, torch.ones_like(ids) if mask is None else mask)

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The logit is the cosine, without a scale; the map is a dot product without bounds."""
        pooled, cells = self.module.encode_image(image)
        maps = torch.unflatten(text @ cells.flatten(2), -1, cells.shape[2:])
        cosine = F.normalize(pooled, dim=-1) @ F.normalize(text, dim=-1).T
        return cosine, maps if self.map_name else self.module.smooth(maps)
