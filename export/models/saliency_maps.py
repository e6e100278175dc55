"""The saliency maps each model can be exported with, by name, the official one first; without torch, for listings.

The variants of an attention map differ in the layers (the last, or the mean of all), the heads (mean, or maximum) and
the values (softmax, or the raw scores before it). A similarity map compares the patches with the prompt directly, by a
softmax over the patches, or after value-value attention in the last block. Many models have maps of two mechanisms: the
models with attention a similarity map, the models with a similarity map attention weighted by its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LAST_LAYER, LAYER_MEAN = "last-layer", "layer-mean"
PATCH_TEXT, PATCH_SOFTMAX, VALUE_VALUE = "patch-text", "patch-text-softmax", "value-value"
ACTIVATION, GRADIENT_ATTENTION = "class-activation", "gradient-attention"

Mechanism = Literal["attention", "similarity", "activation", "gradient"]


@dataclass(frozen=True)
class Reading:
    """How a decoder's attention [B, heads, Q, N] of each layer becomes one map [B, Q, N].

    all_layers: the mean over the layers instead of the last; head_maximum: the maximum over the heads instead of the
    mean; raw: the scaled products of queries and keys instead of their softmax. similarity: not the attention, but the
    cosine of patch and prompt.
    """

    all_layers: bool = False
    head_maximum: bool = False
    raw: bool = False
    similarity: bool = False

    def __str__(self) -> str:
        what = "scores before the softmax (scaled query-key products)" if self.raw else "attention to the image"
        layers = "mean over all decoder layers" if self.all_layers else "the last decoder layer"
        return f"{what}, {layers}, {'maximum' if self.head_maximum else 'mean'} over heads"


PLAIN = Reading()
ATTENTION_MAPS = {
    name + suffix: Reading(all_layers, head_maximum, raw)
    for name, all_layers in ((LAST_LAYER, False), (LAYER_MEAN, True))
    for suffix, head_maximum, raw in (("", False, False), ("-head-max", True, False), ("-raw", False, True))
}

PATCH_MAPS = {
    PATCH_TEXT: "cosine between each projected patch and the prompt",
    PATCH_SOFTMAX: "softmax over the patches of the cosine between each projected patch and the prompt times the "
    "model's logit scale",
    VALUE_VALUE: "cosine between each projected patch and the prompt, where the last block's attention weights are the "
    "softmax of value-value products instead of query-key ones; scores are the unchanged model's",
    GRADIENT_ATTENTION: "attention of the class token to each patch in the last block, times the gradient of the "
    "prompt's score to it, mean over heads of the positive part",
}
"""Value-value attention is from training-free open-vocabulary segmentation (Li et al. 2023, arXiv 2304.05653; Wang
et al. 2024, arXiv 2312.01597), here in the last block only, with its residual and MLP. Attention weighted by its
gradient is from Chefer et al. 2021 (arXiv 2103.15679), here of the last block only."""


SMOOTHED = "patch-text-smoothed"
_PRODUCT = "dot product of each projected cell and the prompt, neither normalised, so without bounds"
_COSINE = "cosine between each projected cell and the prompt"
SMOOTHED_MAPS = {
    SMOOTHED: f"{_COSINE}, smoothed by a Gaussian with a standard deviation of 1.5 cells",
    PATCH_TEXT: f"{_COSINE}, not smoothed",
}
"""Of BioViL; the smoothing is part of the authors' map."""

FAMILY_MAPS = {
    PATCH_TEXT: "cosine between the prompt and each patch, whose vector is what the model's own pooling and projection "
    "return for that patch alone",
    PATCH_SOFTMAX: "softmax over the patches of that cosine times the model's logit scale",
}
"""Of a model that is described by its own configuration (models.families)."""

CLASS_MAPS = {
    ACTIVATION: "class activation map: the weights of the finding's output, applied to each patch as the model's own "
    "pooling returns it alone",
}
"""Of a classifier that is described by its configuration; behind a mean the map of `MAPS["xrv"]`."""


def reading_of(name: str, maps: Mapping[str, str]) -> Reading:
    """The reading called `name`; for an empty name, of the official map."""
    return ATTENTION_MAPS.get(name or next(iter(maps)), Reading(similarity=True))


def mechanism_of(name: str, official: Mechanism) -> Mechanism:
    """What the map `name` of a model shows whose authors' map shows `official`."""
    named: dict[str, Mechanism] = {PATCH_TEXT: "similarity", GRADIENT_ATTENTION: "gradient"}
    return named.get(name, official)


_ENCODED, _ENTERING = "as they leave the encoders", "as they enter the decoder"


def _attention(official: str, note: str = "", vectors: str = _ENTERING) -> dict[str, str]:
    maps = {name: f"{ATTENTION_MAPS[name]}{note}" for name in (official, *ATTENTION_MAPS)}
    return {**maps, PATCH_TEXT: f"cosine between each patch and the prompt, {vectors}{note}"}


_ASPECTS = ", mean over four of a class's nine queries (description, patterns, shape, texture)"
MAPS: Mapping[str, Mapping[str, str]] = {
    "afloc": {
        SMOOTHED: f"{_PRODUCT}; smoothed by a Gaussian with a standard deviation of 1.5 cells",
        PATCH_TEXT: f"{_PRODUCT}; not smoothed",
    },
    "biomedclip": PATCH_MAPS,
    "biovil": SMOOTHED_MAPS,
    "biovil_t": SMOOTHED_MAPS,
    "carzero": _attention(LAYER_MEAN),
    "chexzero": {name: PATCH_MAPS[name] for name in (PATCH_TEXT, VALUE_VALUE, GRADIENT_ATTENTION)},
    "clip": PATCH_MAPS,
    "devide": _attention(LAST_LAYER, " (assumed architecture, not the authors')", _ENCODED),
    "kad": _attention(LAST_LAYER, vectors=_ENCODED),
    "mavl": _attention(LAYER_MEAN, _ASPECTS),
    "medklip": _attention(LAYER_MEAN),
    "xrv": {
        ACTIVATION: "class activation map: the weights of the finding's output, applied to each cell of the features"
    },
}
"""Model -> name -> description of the map."""
