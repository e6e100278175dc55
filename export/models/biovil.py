"""BioViL (Boecking et al. 2022, ECCV) and BioViL-T (Bannur et al. 2023, CVPR) as published (docs/parity.md §3.8).

A ResNet-50 and CXR-BERT, compared by cosine. The map is the cosine between each projected cell and the prompt, smoothed
by a Gaussian. BioViL-T can also compare with an earlier image; here, as in the authors' zero-shot code, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import TensorSizes, install
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import fill_module
from .biovil_checkpoint import (
    BIOVIL,
    BIOVIL_T,
    TEXT_ANCHOR,
    BioVilConfig,
    find_image,
    find_text,
    image_tensors,
    text_tensors,
)
from .layers.bert import EPS, Bert, BertConfig
from .layers.contrastive import contrast
from .layers.resnet import ResNetBackbone, ResNetConfig
from .layers.smoothing import SIGMA, SmoothedCells
from .saliency_maps import MAPS, PATCH_TEXT, SMOOTHED
from .two_towers import TwoTowers

RESIZE, WIDTH, CURRENT = 512, 128, 256


class _ImageEncoder(nn.Module):
    """The last map of a ResNet-50; of BioViL-T 256 channels of it, and 256 that are the same in every cell."""

    def __init__(self, config: BioVilConfig, resnet: ResNetConfig) -> None:
        super().__init__()
        self.encoder = ResNetBackbone(resnet)
        self.temporal = config.temporal
        if config.temporal:
            self.backbone_to_vit = nn.Conv2d(resnet.channels, CURRENT, 1, bias=False)
            self.missing_previous_emb = nn.Parameter(torch.zeros(1, CURRENT, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        cells: Tensor = self.encoder(image)
        if not self.temporal:
            return cells
        cells = self.backbone_to_vit(cells)
        return torch.cat([cells, self.missing_previous_emb.expand_as(cells)], dim=1)


class _ImageTower(nn.Module):
    def __init__(self, config: BioVilConfig, resnet: ResNetConfig) -> None:
        super().__init__()
        self.encoder = _ImageEncoder(config, resnet)
        channels = 2 * CURRENT if config.temporal else resnet.channels
        layers = (nn.Conv2d(channels, WIDTH, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU())
        self.projector = nn.ModuleDict({"model": nn.Sequential(*layers, nn.Conv2d(WIDTH, WIDTH, 1))})


class _ProjectionHead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense_to_hidden = nn.Linear(width, WIDTH)
        self.gelu = nn.GELU()
        self.LayerNorm = nn.LayerNorm(WIDTH, EPS)
        self.dense_to_output = nn.Linear(WIDTH, WIDTH)

    def forward(self, first: Tensor) -> Tensor:
        features: Tensor = self.dense_to_output(self.LayerNorm(self.gelu(self.dense_to_hidden(first))))
        return features


class BioVil(nn.Module):
    """Both towers, under `image.` and `text.` and then the names of the published files."""

    def __init__(self, config: BioVilConfig, bert: BertConfig, resnet: ResNetConfig | None = None) -> None:
        super().__init__()
        resnet = resnet or ResNetConfig()
        self.image = _ImageTower(config, resnet)
        self.text = nn.ModuleDict({"bert": Bert(bert), "cls_projection_head": _ProjectionHead(bert.width)})
        self.cells = resnet.grid(config.size)
        self.smooth = SmoothedCells(self.cells)

    def project(self, features: Tensor) -> Tensor:
        """The image encoder's map [B, C, h, w] -> [B, 128, h, w]."""
        projected: Tensor = self.image.projector["model"](features)
        return projected


class BioVilAdapter(TwoTowers):
    """BioViL; a subclass names another configuration."""

    config: ClassVar[BioVilConfig] = BIOVIL
    variants: ClassVar[tuple[str, ...]] = (str(BIOVIL.size),)
    maps: ClassVar[Mapping[str, str]] = MAPS["biovil"]
    module: BioVil

    @classmethod
    def load(cls, checkpoint: Path, *, text_encoder: Path | str | None = None) -> Self:
        """Reads a folder with the image and the text weights, or the image file.

        `text_encoder` is the text weights' file or folder, by default that of the image file or the local Hugging Face
        cache. Raises CheckpointError, and ConfigError when there are no text weights.
        """
        config = cls.config
        image = read_checkpoint(find_image(config, checkpoint))
        used = image_tensors(config, image)
        words, text = text_tensors(find_text(config, image.path) if text_encoder is None else Path(text_encoder))
        sizes = TensorSizes(words, path=text.path, model=f"{config.title}'s text encoder", names=text.names())
        bert = BertConfig(
            vocabulary=sizes(TEXT_ANCHOR)[0],
            positions=sizes("bert.embeddings.position_embeddings.weight")[0],
            pooler=False,
        )
        with torch.device("meta"):
            module = BioVil(config, bert)
        for name, tensors, source in (("image", used, image), ("text", words, text)):
            title = f"{config.title} ({name} weights)"
            install(module.get_submodule(name), tensors, path=source.path, model=title, names=source.names())
        module.eval()
        return cls._describe(module, "published", image.record, text.record)

    @classmethod
    def stand_in(cls, variant: str, seed: int = 0) -> Self:
        """`variant` is the side of the input."""
        with torch.device("meta"):
            module = BioVil(cls.config, BertConfig(pooler=False))
        fill_module(module, seed)
        return cls._describe(module, "stand-in", None, None)

    @classmethod
    def _describe(
        cls, module: BioVil, weights: Weights, record: CheckpointRecord | None, text: CheckpointRecord | None
    ) -> Self:
        config = cls.config
        embeddings: Any = module.text["bert"].embeddings
        return cls(
            module=module,
            name=config.key,
            variant=str(config.size),
            weights=weights,
            geometry=Geometry("crop", config.size, RESIZE, "bilinear", "stretched"),
            mean=(0.0, 0.0, 0.0),
            std=(1.0, 1.0, 1.0),
            grid=(module.cells, module.cells),
            saliency=Saliency("similarity", cls.maps[SMOOTHED], SIGMA),
            text_shape=(WIDTH,),
            text_inputs=("input_ids", "attention_mask"),
            context=embeddings.position_embeddings.num_embeddings,
            vocabulary_size=embeddings.word_embeddings.num_embeddings,
            tokenizer=TokenizerSpec("tokenizer.json", (config.repository,), cleaning="biovil", refuses_long=True),
            checkpoint=record,
            text_checkpoint=text,
            prompt_style="biovil",
            averages_prompts=True,
        )

    def scale(self) -> Tensor:
        """Scores are plain cosines."""
        return torch.ones(())

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N] -> float32 [T, 128], not normalised; without a mask every position counts as a token."""
        states: list[Tensor] = self.module.text["bert"](ids, torch.ones_like(ids) if mask is None else mask)
        features: Tensor = self.module.text["cls_projection_head"](states[-1][:, 0])
        return features

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of the projected cells [B, 128], and the cells [B, N, 128]."""
        cells = self.module.project(self.module.image.encoder(image)).flatten(2)
        return cells.mean(dim=-1), cells.transpose(1, 2)

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logits are the cosine of image and prompt."""
        logits, cells = super().forward(image, text)
        return logits, cells if self.map_name == PATCH_TEXT else self.module.smooth(cells)

    def outputs(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        """The authors' features, scores and maps; `score_all_prompts` [B] takes all prompts as one question."""
        features = self.module.image.encoder(image)
        projected = self.module.project(features)
        pooled, cells = projected.mean(dim=(2, 3)), projected.flatten(2).transpose(1, 2)
        score, similarity = contrast(pooled, cells, text, self.scale())
        raw = torch.unflatten(similarity, -1, self.grid)
        found: dict[str, Any] = {"image_embedding": features.mean(dim=(2, 3)), "projected_patches": projected}
        found |= {"patch_embeddings": features, "image_global": pooled, "text_features": text, "score": score}
        found |= {"similarity_raw": raw, "similarity_map": self.module.smooth(raw)}
        return {
            **found,
            "score_all_prompts": contrast(pooled, cells, text.mean(0, keepdim=True), self.scale())[0][:, 0],
        }


class BioVilTAdapter(BioVilAdapter):
    """BioViL-T."""

    config: ClassVar[BioVilConfig] = BIOVIL_T
    variants: ClassVar[tuple[str, ...]] = (str(BIOVIL_T.size),)
