"""BioViL (Boecking et al. 2022, ECCV) and BioViL-T (Bannur et al. 2023, CVPR) as published (docs/parity.md §3.8).

A ResNet-50 and CXR-BERT, compared by cosine. The map is the cosine between each projected cell and the prompt, smoothed
by a Gaussian. BioViL-T can also compare with an earlier image; here, as in the authors' zero-shot code, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.errors import CheckpointError, ConfigError
from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.hugging_face import cached_file
from ..checkpoints.matching import ModelTensors, TensorNames
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from .layers.bert import EPS, Bert, BertConfig
from .layers.resampling import SIGMA, Resampled, gaussian_matrix
from .layers.resnet import ResNetBackbone, ResNetConfig
from .saliency_maps import MAPS, PATCH_TEXT, SMOOTHED
from .two_towers import TwoTowers

TEMPORAL = "encoder.backbone_to_vit.weight"  # tells BioViL-T's image file from BioViL's
IMAGE_ANCHOR, TEXT_ANCHOR = "encoder.encoder.conv1.weight", "bert.embeddings.word_embeddings.weight"
LAST = "projector.model.3.weight"
TEXT_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class BioVilConfig:
    """What distinguishes the two models. `temporal`: the image features are half of the image and half of the vector
    used for a missing earlier image."""

    key: str
    title: str
    size: int
    repository: str
    image_file: str
    temporal: bool


BIOVIL = BioVilConfig(
    "biovil",
    "BioViL",
    480,
    "microsoft/BiomedVLP-CXR-BERT-specialized",
    "biovil_image_resnet50_proj_size_128.pt",
    temporal=False,
)
BIOVIL_T = BioVilConfig(
    "biovil_t",
    "BioViL-T",
    448,
    "microsoft/BiomedVLP-BioViL-T",
    "biovil_t_image_model_proj_size_128.pt",
    temporal=True,
)


def find_image(config: BioVilConfig, checkpoint: Path) -> Path:
    """The image file: `checkpoint` itself, or in that folder. Raises CheckpointError for a folder without it."""
    if not checkpoint.is_dir() or (checkpoint / config.image_file).is_file():
        return checkpoint / config.image_file if checkpoint.is_dir() else checkpoint
    other = next((one for one in (BIOVIL, BIOVIL_T) if (checkpoint / one.image_file).is_file()), None)
    hint = f"it holds weights of {other.title}: use --model {other.key}" if other else "give the folder with it"
    raise CheckpointError(
        f"The folder {checkpoint} has no {config.image_file}, the image weights of {config.title}; {hint}."
    )


def find_text(config: BioVilConfig, image: Path) -> Path:
    """The text weights, or their folder: the folder of the image file, else in the local Hugging Face cache.

    Raises ConfigError when there are none.
    """
    if any((image.parent / name).is_file() for name in TEXT_FILES):
        return image.parent
    weights = cached_file(config.repository, *TEXT_FILES)
    if weights is None:
        raise ConfigError(
            f"{image} holds the image weights of {config.title}, and its folder has no {TEXT_FILES[1]} with the text "
            f"weights: fetch them (huggingface-cli download {config.repository}) and put both files into one folder, "
            "or give the text weights with --text-encoder."
        )
    return weights


def image_tensors(config: BioVilConfig, source: Checkpoint) -> ModelTensors:
    """The tensors of the image file that are used. Raises CheckpointError for the other model's."""
    # Not used for one image: the classifier of ImageNet, and what compares with an earlier image of the patient.
    unused = r"^encoder\.(encoder\.fc|vit_pooler)\." if config.temporal else r"^encoder\.encoder\.fc\."
    names = TensorNames(f"{config.title} (image weights)", anchors=(IMAGE_ANCHOR,), unused=unused)
    weights = source.model_tensors(names)
    weights.shape(LAST, dimensions=4)
    if (TEMPORAL in weights.by_name) != config.temporal:
        other = BIOVIL if config.temporal else BIOVIL_T
        raise CheckpointError(
            f"{source.path} holds the image weights of {other.title}, not of {config.title}; use --model {other.key}."
        )
    return weights


def text_names(config: BioVilConfig) -> TensorNames:
    """The names of the text file, without its masked-language head, whose decoder is tied to the table of words."""
    unused = r"^cls\.predictions\.|^bert\.embeddings\.position_ids"
    return TensorNames(f"{config.title} (text weights)", anchors=(TEXT_ANCHOR,), unused=unused)


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
        self.resnet = resnet
        self.resize(config.size)

    def resize(self, side: int) -> None:
        """Makes the smoothing that of the cells of a picture of `side` x `side` pixels."""
        self.cells = self.resnet.grid(side)
        self.smooth = Resampled(gaussian_matrix(self.cells))

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

        `text_encoder` is the text weights' file or folder, by default in the folder of the image file or the local
        Hugging Face cache. Raises CheckpointError, and ConfigError when there are no text weights.
        """
        config = cls.config
        image = read_checkpoint(find_image(config, checkpoint))
        image_weights = image_tensors(config, image)
        text = read_checkpoint(find_text(config, image.path) if text_encoder is None else Path(text_encoder))
        text_weights = text.model_tensors(text_names(config))
        bert = BertConfig(
            vocabulary=text_weights.shape(TEXT_ANCHOR)[0],
            positions=text_weights.shape("bert.embeddings.position_embeddings.weight")[0],
            pooler=False,
        )
        with torch.device("meta"):
            module = BioVil(config, bert)
        image_weights.install(module.image)
        text_weights.install(module.text)
        module.eval()
        return cls._describe(module, "published", image.record, text.record)

    @classmethod
    def stand_in(cls, variant: str, seed: int = 0) -> Self:
        """`variant` is the side of the input."""
        module = stand_in_module(lambda: BioVil(cls.config, BertConfig(pooler=False)), seed)
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

    def resize(self, side: int) -> None:
        """Convolutions take any size; the Gaussian keeps its width in cells."""
        self.module.resize(side)
        self.grid = (self.module.cells,) * 2

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


class BioVilTAdapter(BioVilAdapter):
    """BioViL-T."""

    config: ClassVar[BioVilConfig] = BIOVIL_T
    variants: ClassVar[tuple[str, ...]] = (str(BIOVIL_T.size),)
