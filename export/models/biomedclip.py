"""BiomedCLIP (Zhang et al. 2023, arXiv 2303.00915) as open_clip computes it (docs/parity.md §3.2).

A ViT-B/16 and a PubMedBERT, compared by cosine. Its authors publish no maps: saliency here is the cosine between each
projected patch and the prompt, the project's own definition, as for CLIP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import TensorNames
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..tokenizing.reference import PUBMED_BERT, open_clip_bert_reference
from .layers.bert import Bert, BertConfig
from .layers.vit import VisionTransformer, ViTConfig
from .normalisation import CLIP_MEAN, CLIP_STD
from .saliency_maps import MAPS, PATCH_TEXT
from .two_towers import TwoTowers

TOKENIZERS = (
    "microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224",
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract",
)
VARIANT, CONTEXT, WIDTH = "vit-b-16", 256, 512
WORD_TABLE = "text.transformer.embeddings.word_embeddings.weight"
# Some versions of the libraries write an index buffer and a pooling layer, which none reads.
UNUSED = r"^text\.transformer\.(embeddings\.position_ids|pooler\.)"
NAMES = TensorNames("BiomedCLIP", anchors=(WORD_TABLE,), unused=UNUSED)


class _ImageTower(nn.Module):
    def __init__(self, vit: ViTConfig) -> None:
        super().__init__()
        self.trunk = VisionTransformer(vit)
        self.head = nn.ModuleDict({"proj": nn.Linear(vit.width, WIDTH, bias=False)})


class BiomedClip(nn.Module):
    """Both towers with their projections to `WIDTH` values, named as in open_clip's file."""

    def __init__(self, vit: ViTConfig, bert: BertConfig) -> None:
        super().__init__()
        self.vit = vit
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.visual = _ImageTower(vit)
        hidden = (bert.width + WIDTH) // 2
        layers = (nn.Linear(bert.width, hidden, bias=False), nn.GELU(), nn.Linear(hidden, WIDTH, bias=False))
        self.text = nn.ModuleDict({"transformer": Bert(bert), "proj": nn.Sequential(*layers)})

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """[B, 3, S, S] -> the image [B, D] (class token) and its patches [B, N, D], projected, not normalised."""
        tokens = self.visual.head["proj"](self.visual.trunk(image))
        return tokens[:, 0], tokens[:, 1:]

    def encode_values(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The same image vector, and the patches with value-value attention in the last block."""
        tokens, values = (self.visual.head["proj"](x) for x in self.visual.trunk.value_value(image))
        return tokens[:, 0], values[:, 1:]

    def encode_text(self, ids: Tensor) -> Tensor:
        """int64 [T, N] -> [T, D], the projected first token, not normalised. Id 0 is padding and is masked."""
        states = self.text["transformer"](ids, (ids != 0).to(ids.dtype))
        features: Tensor = self.text["proj"](states[-1][:, 0])
        return features


class BiomedClipAdapter(TwoTowers):
    """BiomedCLIP-PubMedBERT_256-vit_base_patch16_224."""

    variants: ClassVar[tuple[str, ...]] = (VARIANT,)
    maps: ClassVar[Mapping[str, str]] = MAPS["biomedclip"]
    module: BiomedClip

    @classmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads `open_clip_pytorch_model.bin`, the same tensors as safetensors, or open_clip's training file.
        Raises CheckpointError."""
        source = read_checkpoint(checkpoint)
        tensors = source.model_tensors(NAMES)
        with torch.device("meta"):
            module = BiomedClip(ViTConfig(), BertConfig(vocabulary=tensors.shape(WORD_TABLE)[0], pooler=False))
        tensors.install(module)
        return cls._describe(module, "published", source.record)

    @classmethod
    def stand_in(cls, variant: str = VARIANT, seed: int = 0) -> Self:
        """`variant` is "vit-b-16"."""
        module = stand_in_module(lambda: BiomedClip(ViTConfig(), BertConfig(pooler=False)), seed)
        return cls._describe(module, "stand-in", None)

    @classmethod
    def _describe(cls, module: BiomedClip, weights: Weights, record: CheckpointRecord | None) -> Self:
        size, cells = module.vit.image_size, module.vit.grid
        return cls(
            module=module,
            name="biomedclip",
            variant=VARIANT,
            weights=weights,
            geometry=Geometry("crop", size, size, "bicubic"),
            mean=CLIP_MEAN,
            std=CLIP_STD,
            grid=(cells, cells),
            saliency=Saliency("similarity", cls.maps[PATCH_TEXT]),
            logit_scale=float(module.logit_scale.exp()),
            text_shape=(WIDTH,),
            text_inputs=("input_ids",),
            context=CONTEXT,
            vocabulary_size=module.get_parameter(WORD_TABLE).shape[0],
            tokenizer=TokenizerSpec(
                "wordpiece",
                TOKENIZERS,
                special_words=True,
                cleaning="open_clip",
                ends=(2, 3),
                sample=PUBMED_BERT,
                reference=open_clip_bert_reference,
            ),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """By timm's resampling of the positions."""
        self.grid = self.module.visual.trunk.resize(side, self.name)

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N <= 256], padded with 0 -> float32 [T, 512]. The mask follows from the ids; `mask` is not read."""
        return self.module.encode_text(ids)

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Class token and patches, projected."""
        return self.module.encode_image(image)

    def encode_values(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The same class token, and the patches with value-value attention in the last block."""
        return self.module.encode_values(image)

    def weigh_attention(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The same class token, and the last attention weighted by the gradient of the score."""
        projection = self.module.get_parameter("visual.head.proj.weight").T
        return self.module.visual.trunk.weigh_attention(image, projection, text, self.scale())
