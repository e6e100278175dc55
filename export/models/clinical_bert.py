"""Base adapter of MedKLIP and MAVL: Bio_ClinicalBERT from Hugging Face, which neither checkpoint contains, and the
preparation of image and text (docs/parity.md §3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.errors import CheckpointError, ConfigError
from ...engines.geometry import Geometry
from ..adapter import Adapter, CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.hugging_face import cached_file
from ..checkpoints.matching import ModelTensors, TensorNames
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..tokenizing.reference import BERT_CASED_OPEN
from .layers.bert import Bert, BertConfig
from .layers.query_decoder import DecoderConfig
from .layers.resnet import ResNetConfig
from .normalisation import IMAGENET_MEAN, IMAGENET_STD
from .saliency_maps import LAYER_MEAN, Reading, reading_of

REPOSITORY = "emilyalsentzer/Bio_ClinicalBERT"
ANCHOR = "disease_embedding_layer.weight"
SIZE, CELLS, CONTEXT = 224, 14, 64
RESNET = ResNetConfig(widths=(64, 128, 256), blocks=(3, 4, 6))
DECODER = DecoderConfig(width=256, layers=4, heads=4, hidden=1024)
BERT = BertConfig(vocabulary=28996, pooler=False)


# The official tokenizer class puts no [SEP] after a text and lower-cases, although the vocabulary is cased.
TOKENIZER = TokenizerSpec(
    "wordpiece", (REPOSITORY,), separator=False, special_words=True, ends=(101, 102), sample=BERT_CASED_OPEN
)


class _Published(nn.Module):
    """The network under the names of the checkpoint, the text encoder under the names of the stand-in scheme."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"module": network})
        self.text_encoder = Bert(BERT)


class ClinicalBertAdapter(Adapter):
    """The common part; a subclass gives its network, the tensors it reads from its file, and the outputs.

    `queries` is (n,) where one prompt is n texts.
    """

    variants: ClassVar[tuple[str, ...]] = ("224",)
    names: ClassVar[TensorNames]
    key: ClassVar[str]
    queries: ClassVar[tuple[int, ...]] = ()
    module: _Published

    @classmethod
    def network(cls) -> nn.Module:
        """The untrained network, as the checkpoint holds it."""
        raise TypeError(f"{cls.__name__} names no network.")

    @classmethod
    def load(cls, checkpoint: Path, *, text_encoder: Path | str | None = None) -> Self:
        """Reads the authors' file and Bio_ClinicalBERT.

        `text_encoder` is a folder with model.safetensors or pytorch_model.bin, or one of these files. Without it the
        weights are taken from `text_encoder` in the checkpoint, if it has that key, or from the local Hugging Face
        cache. Raises CheckpointError, and ConfigError when there is no text encoder.
        """
        source = read_checkpoint(checkpoint)
        tensors = source.model_tensors(cls.names)
        with torch.device("meta"):
            module = _Published(cls.network())
        tensors.install(module.model["module"])
        text, record = _read_text_encoder(source, None if text_encoder is None else Path(text_encoder), cls.names.model)
        text.install(module.text_encoder)
        module.eval()
        return cls._describe(module, "published", source.record, record)

    @classmethod
    def stand_in(cls, variant: str, seed: int = 0) -> Self:
        """`variant` is "224"."""
        module = stand_in_module(lambda: _Published(cls.network()), seed)
        return cls._describe(module, "stand-in", None, None)

    @classmethod
    def _describe(
        cls, module: _Published, weights: Weights, record: CheckpointRecord | None, text: CheckpointRecord | None
    ) -> Self:
        return cls(
            module=module,
            name=cls.key,
            variant=cls.variants[0],
            weights=weights,
            geometry=Geometry("squash", SIZE, SIZE, "bilinear"),
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            grid=(CELLS, CELLS),
            saliency=Saliency("attention", cls.maps[LAYER_MEAN]),
            text_shape=(*cls.queries, BERT.width),
            text_inputs=("input_ids", "attention_mask"),
            context=CONTEXT,
            vocabulary_size=BERT.vocabulary,
            tokenizer=TOKENIZER,
            checkpoint=record,
            texts_per_query=cls.queries[0] if cls.queries else 1,
            text_checkpoint=text,
        )

    def resize(self, side: int) -> None:
        """Convolutions and a decoder without positions take any size; MAVL's pool, which has some, is not used."""
        self.grid = (RESNET.grid(side),) * 2

    @property
    def net(self) -> Any:
        """The network in `module`."""
        return self.module.model["module"]

    @property
    def reading(self) -> Reading:
        """How the attention becomes the chosen map."""
        return reading_of(self.map_name, self.maps)

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N] -> float32 [T, 768], the last layer's state of [CLS]; without a mask every position counts."""
        states: list[Tensor] = self.module.text_encoder(ids, torch.ones_like(ids) if mask is None else mask)
        return states[-1][:, 0]


def _bert_name(name: str) -> str:
    """BertModel's name; files converted from TensorFlow call LayerNorm's tensors gamma and beta."""
    name = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


# Not used: the heads of pre-training, the pooler and the table of positions.
_BERT_NAMES = TensorNames("Bio_ClinicalBERT", unused=r"^(cls|pooler)\.|embeddings\.position_ids$", rename=_bert_name)


def _read_text_encoder(source: Checkpoint, given: Path | None, model: str) -> tuple[ModelTensors, CheckpointRecord]:
    """Tensors and file record of the text encoder."""
    if given is None and isinstance(source.content.get("text_encoder"), Mapping):
        tensors = _BERT_NAMES.of(source.parts({"text_encoder": ""}, model)["text_encoder"], source.path)
        return ModelTensors(tensors, source.path, _BERT_NAMES.model, ()), source.record
    path = cached_file(REPOSITORY, "model.safetensors", "pytorch_model.bin") if given is None else given
    if path is None:
        raise ConfigError(
            f"{source.path} holds no text encoder, because {model} uses {REPOSITORY} as it is: fetch its weights "
            f"(huggingface-cli download {REPOSITORY} pytorch_model.bin vocab.txt) and give their folder as the text "
            "encoder (option text_encoder)."
        )
    file = read_checkpoint(path)
    tensors = _BERT_NAMES.of(file.tensors(), path)
    if "embeddings.word_embeddings.weight" not in tensors:
        raise CheckpointError(
            f"{path} is not a text encoder: it has no embeddings.word_embeddings.weight; give the weights of "
            f"{REPOSITORY} (model.safetensors or pytorch_model.bin)."
        )
    return ModelTensors(tensors, path, _BERT_NAMES.model, ()), file.record
