"""What the authors' code of each model returns, under the names of the goldens (docs/parity.md §2)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from xbench_fast.export import Adapter
from xbench_fast.export.models.layers.vit import VisionTransformer
from xbench_fast.export.models.mavl import ASPECTS, GROUNDING_ASPECTS
from xbench_fast.export.models.two_towers import contrast


def authors_outputs(adapter: Adapter, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    """The outputs for an image [B, 3, S, S], normalised, and the text features [Q, ...] of the adapter."""
    return _OUTPUTS[adapter.name](adapter, image, text)


def _afloc(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    pooled, cells = adapter.module.encode_image(image)
    maps = torch.unflatten(text @ cells.flatten(2), -1, cells.shape[2:])
    return {
        "image_global": pooled,
        "image_local": cells,
        "text_global": text,
        "score": F.normalize(pooled, dim=-1) @ F.normalize(text, dim=-1).T,
        "similarity_raw": maps,
        "similarity_map": adapter.module.smooth(maps),
    }


def _biovil(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    """`score_all_prompts` [B] takes all prompts as one question."""
    features = adapter.module.image.encoder(image)
    projected = adapter.module.project(features)
    pooled, cells = projected.mean(dim=(2, 3)), projected.flatten(2).transpose(1, 2)
    score, similarity = contrast(pooled, cells, text, adapter.scale())
    raw = torch.unflatten(similarity, -1, adapter.grid)
    return {
        "image_embedding": features.mean(dim=(2, 3)),
        "projected_patches": projected,
        "patch_embeddings": features,
        "image_global": pooled,
        "text_features": text,
        "score": score,
        "similarity_raw": raw,
        "similarity_map": adapter.module.smooth(raw),
        "score_all_prompts": contrast(pooled, cells, text.mean(0, keepdim=True), adapter.scale())[0][:, 0],
    }


def _carzero(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    encoded = adapter.module.encode_image(image)
    (i2t, image_maps), (t2i, text_maps) = adapter.module(encoded, text)
    attention = torch.stack(image_maps)
    return {
        "image_global": encoded[:, 0],
        "image_local": torch.unflatten(encoded[:, 1:].transpose(1, 2), -1, adapter.grid),
        "text_global": text[:, 0],
        "text_local": text[:, 1:].transpose(1, 2),
        "i2t_logits": i2t,
        "t2i_logits": t2i.T,
        "score": (i2t + t2i.T) / 2,
        "i2t_attention": attention,
        "t2i_attention": torch.stack(text_maps),
        "grounding_map": torch.unflatten(attention.mean(dim=0)[..., 1:], -1, adapter.grid),
    }


def _contrastive(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    """`probabilities` [B, Q] are the softmax over the prompts."""
    pooled, patches = adapter.encode_image(image)
    logits, similarity = contrast(pooled, patches, text, adapter.scale())
    return {
        "image_features": pooled,
        "patch_features": patches,
        "text_features": text,
        "logits_per_image": logits,
        "logits_per_text": logits.T,
        "probabilities": logits.softmax(dim=-1),
        "similarity_map": torch.unflatten(similarity, -1, adapter.grid),
    }


def _chexzero(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    """`probabilities` [B, Q / 2] are the mean over checkpoints; the first half of the prompts is positive."""
    outputs, count = _contrastive(adapter, image, text), len(adapter.module.members)
    pairs = (outputs["image_features"], text)
    images, texts = (F.normalize(torch.unflatten(x, -1, (count, -1)), dim=-1).transpose(0, 1) for x in pairs)
    positive, negative = (images @ texts.mT).chunk(2, dim=-1)
    names = ("image_features", "patch_features", "text_features", "similarity_map")
    return {
        **{name: outputs[name] for name in names},
        "cosine": outputs["logits_per_image"],
        "probabilities": (positive - negative).sigmoid().mean(0),
    }


def _devide(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    tokens = VisionTransformer.forward(adapter.module.image_encoder, image)
    logits, maps = adapter.module.model(tokens[:, 1:], text)
    return {
        "image_cls": tokens[:, 0],
        "image_patches": tokens[:, 1:],
        "text_features": text,
        "logits": logits,
        "probability": logits.softmax(dim=-1)[..., 1],
        "attention": maps[-1],
        "attention_map": torch.unflatten(maps[-1], -1, adapter.grid),
    }


def _kad(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    patches = adapter.module.image_encoder(image)
    logits, maps = adapter.module.model(patches, text)
    return {
        "patches": patches,
        "image_pool": patches.mean(dim=1),
        "logits": logits,
        "probs": logits.softmax(dim=-1)[..., 1],
        "attention": maps[-1],
    }


def _mavl(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    """text: [Q, 9, 768] or [9 Q, 768], class by class. `heat_first_class` [B, 224, 224] is the first class's map as the
    grounding script enlarges it."""
    net = adapter.net
    cells = net.backbone(image)
    patches, queries, pooled = net.patches(cells), net.disease_embedding_layer(text).flatten(0, -2), net.pool(cells)
    states, layers = net.ask(patches, queries)
    logits = net.classify(states)
    cosine = F.normalize(pooled, dim=-1) @ F.normalize(queries, dim=-1).T
    cosine = torch.unflatten(cosine, -1, (-1, ASPECTS)).transpose(1, 2)
    aspects = torch.unflatten(layers.mean(dim=0), 1, (-1, ASPECTS))
    attention = aspects[:, :, list(GROUNDING_ASPECTS)].mean(dim=2)
    first = torch.unflatten(attention[:, :1], -1, adapter.grid)
    heat = F.interpolate(first, image.shape[-2:], mode="bilinear", align_corners=True)
    return {
        "text_features": text.reshape(-1, text.shape[-1]),
        "queries": queries,
        "patches": patches,
        "image_global": pooled,
        "logits": logits,
        "probs": logits.softmax(dim=-1)[..., 1],
        "cosine": cosine,
        "similarity": cosine.mean(dim=1),
        "attention_layers": layers,
        "attention_aspects": aspects,
        "attention": attention,
        "heat_first_class": heat[:, 0],
    }


def _medklip(adapter: Any, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    patches, queries = adapter.net(image), adapter.net.disease_embedding_layer(text)
    logits, layers = adapter.net.ask(patches, queries)
    return {
        "text_features": text,
        "queries": queries,
        "patches": patches,
        "logits": logits,
        "probs": logits.softmax(dim=-1)[..., 1],
        "attention_layers": layers,
        "attention": layers.mean(dim=0),
    }


_OUTPUTS = {
    "afloc": _afloc,
    "biomedclip": _contrastive,
    "biovil": _biovil,
    "biovil_t": _biovil,
    "carzero": _carzero,
    "chexzero": _chexzero,
    "clip": _contrastive,
    "devide": _devide,
    "kad": _kad,
    "mavl": _mavl,
    "medklip": _medklip,
}
