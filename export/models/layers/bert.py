"""BERT encoder (Devlin et al. 2019) with the tensor names of Hugging Face's `BertModel`.

It is written out, because the mask of transformers' `BertModel` (5.23) is exported as a search through GatherND, And
and Where nodes, which is here one subtraction and one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import attend, split_heads

EPS = 1e-12


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the defaults are BERT-base. `pooler` says whether the tensors `pooler.dense.*` exist."""

    vocabulary: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    positions: int = 512
    types: int = 2
    pooler: bool = True


class _Embeddings(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocabulary, config.width)
        self.position_embeddings = nn.Embedding(config.positions, config.width)
        self.token_type_embeddings = nn.Embedding(config.types, config.width)
        self.LayerNorm = nn.LayerNorm(config.width, EPS)
        for table in (self.word_embeddings, self.position_embeddings, self.token_type_embeddings):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        words = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        embedded: Tensor = self.LayerNorm(words + self.position_embeddings(places))
        return embedded


class _SelfAttention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (split_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        return attend(q, k, v, bias).out


class _Output(nn.Module):
    """Projection, residual, norm: the end of both halves of a layer."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, EPS)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        out: Tensor = self.LayerNorm(self.dense(x) + residual)
        return out


class _Layer(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        attention = {"self": _SelfAttention(config), "output": _Output(config.width, config.width)}
        self.attention = nn.ModuleDict(attention)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.width, config.hidden)})
        self.output = _Output(config.hidden, config.width)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, bias), x)
        out: Tensor = self.output(self.gelu(self.intermediate["dense"](x)), x)
        return out


class Bert(nn.Module):
    """The encoder; token types are all 0."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_Layer(config) for _ in range(config.layers))})
        if config.pooler:
            self.pooler = nn.ModuleDict({"dense": nn.Linear(config.width, config.width)})

    def forward(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """ids, mask int64 [T, N] (mask 1 = token, 0 = padding) -> the embeddings and each layer's states [T, N, C]."""
        states: list[Tensor] = [self.embeddings(ids)]
        lowest = torch.finfo(states[0].dtype).min
        bias = (1.0 - mask[:, None, None, :].to(states[0].dtype)) * lowest
        for layer in self.encoder["layer"].children():
            states.append(layer(states[-1], bias))
        return states

    def pool(self, last: Tensor) -> Tensor:
        """BERT's pooler: the first token of the last layer [T, N, C], projected, tanh -> [T, C]."""
        return torch.tanh(self.pooler["dense"](last[:, 0]))
