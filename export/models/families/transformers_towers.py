"""Towers of transformers from the config.json of a folder, and what that library knows of a folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ...libraries import quiet, required, short_reason
from ..layers.positions import patches_across, resample
from .backbones import Backbone, TowerChoice
from .preprocessing import Preprocessing, from_open_clip, from_processor

_TOKENS = ("cls_token", "class_embedding", "distillation_token")


def transformers_backbone(choice: TowerChoice) -> Backbone:
    """The untrained image tower of the folder `choice.name`, of a model with two towers the one of images.

    Raises ConfigError and MissingExtraError.
    """
    folder = Path(choice.name)
    model = untrained(folder, part="vision_config", **choice.more)
    without_pooler(model, kept=choice.pooling == "own")
    names = [name.rpartition(".")[2] for name, _ in model.named_parameters()]
    prefix = sum(name in _TOKENS for name in names) + int(getattr(model.config, "num_register_tokens", 0))
    title, patch = f"the tower of {folder}", getattr(model.config, "patch_size", 1)
    pools: dict[str, Callable[[Tensor], Tensor]] = {
        "own": partial(_own_pool, model),
        "cls": lambda x: x[:, 0],
        "mean": lambda x: x[:, prefix:].mean(dim=1),
        "cls+mean": lambda x: torch.cat([x[:, 0], x[:, prefix:].mean(dim=1)], dim=1),
    }
    pool = pools[choice.pooling]

    def features(image: Tensor) -> Tensor:
        hidden: Tensor = model(pixel_values=image).last_hidden_state
        return hidden

    def own_vector(image: Tensor) -> Tensor:
        pooled: Tensor = model(pixel_values=image).pooler_output
        return pooled.flatten(1)

    def resize(side: int) -> None:
        embeddings: Any = getattr(model, "embeddings", None)
        for name in ("position_embeddings", "position_embedding"):
            table = getattr(embeddings, name, None)
            if table is None:
                continue
            holder, own = (table, "weight") if isinstance(table, nn.Embedding) else (embeddings, name)
            cells = patches_across(side, patch, title)
            resample(holder, own, cells, prefix - int(getattr(model.config, "num_register_tokens", 0)))
            _set_size(embeddings, side, len(getattr(holder, own).reshape(-1, model.config.hidden_size)))

    return Backbone(
        title=title,
        module=model,
        features=features,
        pool=pool,
        vector=own_vector if choice.pooling == "own" else lambda image: pool(features(image)),
        entry=_entry(folder, model, choice),
        head="classifier",
        resize=resize,
        prefix=prefix,
        assumed=False,
        renamed=partial(up_to_date, model),
    )


def untrained(folder: Path, kind: str = "", part: str = "", **more: Any) -> Any:
    """The untrained model of a folder's config.json, or of its `part`, of the class `kind` or of the one it names, with
    attention written out. Downloads nothing, and runs no code of the folder. Raises ConfigError."""
    transformers = required("transformers", "This family")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = transformers.AutoConfig.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, **more
            )
            config = getattr(config, part, config) if part else config
            build = getattr(transformers, kind)._from_config if kind else transformers.AutoModel.from_config
            return build(config, attn_implementation="eager").eval()
    except Exception as error:  # of transformers, about a value of the configuration
        raise ConfigError(f"transformers cannot build the model of {folder}: {short_reason(error)}.") from error


def without_pooler(model: Any, *, kept: bool) -> None:
    """Leaves out a pooling layer that has weights and is not used, so that a file need not have it."""
    if not kept and isinstance(getattr(model, "pooler", None), nn.Module) and [*model.pooler.parameters()]:
        model.pooler = None


def up_to_date(model: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names that the installed transformers has for them, by its own loading: names changed between
    releases. Those that it does not know stay, and those of a pooling layer that is not used go."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with quiet():
            loaded, report = type(model).from_pretrained(
                None,
                config=model.config,
                state_dict=dict(tensors),
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                dtype=torch.float32,
            )
    finally:
        if shown:
            logging.enable_progress_bar()
    state: dict[str, Tensor] = loaded.state_dict()
    for name in report["missing_keys"]:
        state.pop(name, None)
    for name, stored, _ in report["mismatched_keys"]:
        state[name] = torch.empty(tuple(stored), device="meta")
    state |= {name: tensors.get(name, torch.empty(0)) for name in report["unexpected_keys"]}
    unused = ("pooler.",) if hasattr(model, "pooler") and model.pooler is None else ()
    return {name: tensor for name, tensor in state.items() if not name.startswith(unused)}


def image_processor(folder: Path) -> Any:
    """The image processor of a folder. Raises ConfigError."""
    from transformers import AutoImageProcessor

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return AutoImageProcessor.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises many classes
        raise ConfigError(
            f"How pictures enter the model of {folder} cannot be read ({short_reason(error)}); it needs its "
            "preprocessor_config.json."
        ) from error


def _own_pool(model: Any, x: Tensor) -> Tensor:
    """The class's own pooling of its last hidden state; `Backbone.grid` compares it with what the class returns."""
    pooler = getattr(model, "pooler", None)
    pooled: Tensor
    if isinstance(pooler, nn.AdaptiveAvgPool1d):
        pooled = pooler(x.transpose(1, 2)).flatten(1)
    elif pooler is not None:
        pooled = pooler(x).flatten(1)
    elif getattr(model, "head", None) is not None:  # SigLIP's attention
        pooled = model.head(x)
    elif hasattr(model, "post_layernorm"):
        pooled = model.post_layernorm(x[:, 0])
    else:
        pooled = x[:, 0] if x.ndim == 3 else model.layernorm(x.mean(dim=(2, 3)))
    return pooled


def _entry(folder: Path, model: Any, choice: TowerChoice) -> Preprocessing:
    """From preprocessor_config.json and the option `preprocess`, which can say all."""
    where, given = f"The image processor of {folder} (preprocessor_config.json)", choice.preprocess
    ways = {"size", "mean", "std", "interpolation", "resize_mode"}
    if ways <= given.keys():
        return from_open_clip(given, f"The tower of {folder}")
    if given:
        raise ConfigError(
            f"The option 'preprocess' of a tower of transformers replaces {folder / 'preprocessor_config.json'} whole: "
            f"state {', '.join(sorted(ways - given.keys()))} too, or leave it out."
        )
    processor = image_processor(folder)
    return from_processor(processor, None, where)


def _set_size(embeddings: Any, side: int, rows: int) -> None:
    places: tuple[Any, ...] = (embeddings, getattr(embeddings, "patch_embeddings", None))
    for place in places:
        if hasattr(place, "image_size"):
            place.image_size = side if isinstance(place.image_size, int) else (side, side)
    if hasattr(embeddings, "position_ids"):
        embeddings.position_ids = torch.arange(rows)[None]
