"""MedKLIP (Wu et al. 2023, ICCV) as its authors published it (docs/parity.md §3.3).

A book of observations, each described in a sentence, queries the image together; the official score of one needs all
of the book's queries in the set, because they attend to one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..checkpoints.matching import TensorNames
from ..checkpoints.names import without_wrappers
from .clinical_bert import ANCHOR, DECODER, RESNET, ClinicalBertAdapter
from .layers.query_decoder import QueryDecoder, read_map
from .layers.resnet import ResNetGrid
from .saliency_maps import MAPS, PLAIN, Reading


class MedKlip(ResNetGrid):
    """Patches are not normalised before the decoder; no position is added anywhere."""

    def __init__(self) -> None:
        super().__init__(RESNET, DECODER.width)
        self.disease_embedding_layer = nn.Linear(768, DECODER.width)
        self.decoder = QueryDecoder(DECODER)
        self.classifier = nn.Linear(DECODER.width, 2)

    def ask(self, patches: Tensor, queries: Tensor, reading: Reading = PLAIN) -> tuple[Tensor, Tensor]:
        """patches [B, N, D], queries [Q, D] -> logits [B, Q, 2] (absent, present), attention [layers, B, Q, N]."""
        states, maps = self.decoder(queries[None], patches, reading)
        return self.classifier(states), torch.stack(maps)


class MedKlipAdapter(ClinicalBertAdapter):
    """`checkpoint_final.pth` and Bio_ClinicalBERT; the features of a prompt are the features of its description."""

    names: ClassVar[TensorNames] = TensorNames(
        "MedKLIP",
        anchors=(ANCHOR,),
        unused=r"^cl_fc\.",  # training's location loss
        rename=without_wrappers,
    )
    key: ClassVar[str] = "medklip"
    maps: ClassVar[Mapping[str, str]] = MAPS["medklip"]

    @classmethod
    def network(cls) -> nn.Module:
        """MedKLIP, untrained."""
        return MedKlip()

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logit = present - absent, so that its sigmoid is the authors' softmax probability of "present"."""
        patches, queries = self.net(image), self.net.disease_embedding_layer(text)
        logits, layers = self.net.ask(patches, queries, self.reading)
        score = logits[..., 1] - logits[..., 0]
        return score, torch.unflatten(read_map(layers, self.reading, queries, patches), -1, self.grid)
