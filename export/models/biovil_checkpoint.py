"""The two published files of BioViL and BioViL-T: where they are, and their tensors (docs/parity.md §3.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ...engines.errors import CheckpointError, ConfigError
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.hugging_face import cached_file
from ..checkpoints.matching import TensorSizes
from ..checkpoints.reading import read_checkpoint

TEMPORAL = "encoder.backbone_to_vit.weight"  # tells BioViL-T's image file from BioViL's
IMAGE_ANCHOR, TEXT_ANCHOR = "encoder.encoder.conv1.weight", "bert.embeddings.word_embeddings.weight"
LAST = "projector.model.3.weight"
TEXT_FILES = ("model.safetensors", "pytorch_model.bin")
CLASSIFIER = "encoder.encoder.fc."  # of ImageNet
POOLER = "encoder.vit_pooler."  # compares with an earlier image of the patient
UNUSED_TEXT = ("cls.predictions.", "bert.embeddings.position_ids")  # the masked-language head; its decoder is tied


@dataclass(frozen=True)
class BioVilConfig:
    """What distinguishes the two models. `temporal`: the image features are half of the image and half of the vector
    that stands for a missing earlier image."""

    key: str
    title: str
    size: int
    repository: str
    image_file: str
    temporal: bool

    @property
    def unused(self) -> tuple[str, ...]:
        """How the names of the image tensors begin that are in the file and not used for one image."""
        return (CLASSIFIER, POOLER) if self.temporal else (CLASSIFIER,)


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
    hint = f"it holds those of {other.title}: use --model {other.key}" if other else "give the folder with it"
    raise CheckpointError(
        f"The folder {checkpoint} has no {config.image_file}, the image weights of {config.title}; {hint}."
    )


def find_text(config: BioVilConfig, image: Path) -> Path:
    """The text weights, or their folder: beside the image file, else in the local Hugging Face cache.

    Raises ConfigError when there are none.
    """
    if any((image.parent / name).is_file() for name in TEXT_FILES):
        return image.parent
    found = cached_file(config.repository, *TEXT_FILES)
    if found is None:
        raise ConfigError(
            f"{image} holds the image weights of {config.title}, and its folder has no {TEXT_FILES[1]} with the text "
            f"weights: fetch them (huggingface-cli download {config.repository}) and put both files into one folder, "
            "or give the text weights with --text-encoder."
        )
    return found


def image_tensors(config: BioVilConfig, source: Checkpoint) -> dict[str, Tensor]:
    """The tensors of the image file that are used. Raises CheckpointError for the other model's."""
    tensors = source.tensors(IMAGE_ANCHOR)
    TensorSizes(tensors, source.path, f"{config.title} (image weights)", source.names())(LAST, dimensions=4)
    if (TEMPORAL in tensors) != config.temporal:
        other = BIOVIL if config.temporal else BIOVIL_T
        raise CheckpointError(
            f"{source.path} holds the image weights of {other.title}, not of {config.title}; use --model {other.key}."
        )
    return _used(tensors, config.unused)


def text_tensors(path: Path) -> tuple[dict[str, Tensor], Checkpoint]:
    """The tensors of the text weights that are used, and their file. Raises CheckpointError."""
    source = read_checkpoint(path)
    return _used(source.tensors(TEXT_ANCHOR), UNUSED_TEXT), source


def _used(tensors: Mapping[str, Tensor], unused: tuple[str, ...]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(unused)}
