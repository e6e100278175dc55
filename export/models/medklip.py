"""MedKLIP (Wu et al. 2023, ICCV) as its authors published it (docs/parity.md §3.3).

A book of observations, each described in a sentence, queries the image together; the official score of one needs all
of the book's queries in the set, because they attend to one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from .clinical_bert import CELLS, DECODER, RESNET, ClinicalBertAdapter
from .layers.query_decoder import QueryDecoder, join_layers
from .layers.resnet import ResNetGrid
from .saliency_maps import MAPS, PLAIN, Reading

UNUSED = ("cl_fc.",)  # training's location loss


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
    """`checkpoint_final.pth` and Bio_ClinicalBERT; the features of a prompt are those of its description."""

    title: ClassVar[str] = "MedKLIP"
    key: ClassVar[str] = "medklip"
    maps: ClassVar[Mapping[str, str]] = MAPS["medklip"]

    @classmethod
    def network(cls) -> nn.Module:
        """MedKLIP, untrained."""
        return MedKlip()

    @classmethod
    def select(cls, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors except the head that only training used."""
        return {name: tensor for name, tensor in tensors.items() if not name.startswith(UNUSED)}

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logit = present - absent, so that its sigmoid is the authors' softmax probability of "present"."""
        logits, layers = self.net.ask(self.net(image), self.net.disease_embedding_layer(text), self.reading)
        return logits[..., 1] - logits[..., 0], torch.unflatten(join_layers(layers, self.reading), -1, (CELLS, CELLS))

    def outputs(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        """`text_features` [Q, 768], `queries` [Q, 256], `patches` [B, 196, 256], `logits` [B, Q, 2], `probs` [B, Q],
        `attention_layers` [4, B, Q, 196] and `attention` [B, Q, 196], the mean over the layers."""
        patches, queries = self.net(image), self.net.disease_embedding_layer(text)
        logits, layers = self.net.ask(patches, queries)
        return {
            "text_features": text,
            "queries": queries,
            "patches": patches,
            "logits": logits,
            "probs": logits.softmax(dim=-1)[..., 1],
            "attention_layers": layers,
            "attention": layers.mean(dim=0),
        }
