"""Towers of timm by name. Nothing is downloaded: the weights are the user's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ....engines.errors import ConfigError
from ...libraries import required, short_reason
from ..layers.positions import resize_timm
from .backbones import Backbone, TowerChoice
from .family import near
from .preprocessing import from_open_clip, with_given

_POOLS = {"cls": "token", "mean": "avg"}


def timm_backbone(choice: TowerChoice) -> Backbone:
    """The untrained tower `choice.name` for pictures of the size of `preprocess`, by default of the architecture.

    `choice.pooling` is timm's `global_pool`: "token" or "avg"; which norms are before and behind it follows.
    Raises ConfigError and MissingExtraError.
    """
    title = f"timm:{choice.name}"
    timm = required("timm", "This family")
    if not timm.is_model(choice.name):
        hint = near(choice.name, timm.list_models(), "timm.list_models() has its names.")
        raise ConfigError(f"timm has no model '{choice.name}': {hint}")
    more = dict(choice.more)
    if choice.pooling in _POOLS:
        more["global_pool"] = _POOLS[choice.pooling]
    model = _build(choice, more, title)
    prefix = int(getattr(model, "num_prefix_tokens", 0))

    def pool(x: Tensor) -> Tensor:
        pooled: Tensor = model.forward_head(x)
        if choice.whole_pooling:
            pooled = torch.cat([x[:, 0], x[:, prefix:].mean(dim=1)], dim=1)
        return pooled

    data = timm.data.resolve_model_data_config(model)
    size = data["input_size"][-1]
    ways = {
        **{key: data[key] for key in ("mean", "std", "interpolation")},
        "size": size,
        "resize": math.floor(size / data["crop_pct"]),
        "resize_mode": {"center": "shortest"}.get(data["crop_mode"], data["crop_mode"]),
    }
    return Backbone(
        title=title,
        module=model,
        features=model.forward_features,
        pool=pool,
        vector=(lambda image: pool(model.forward_features(image))) if choice.whole_pooling else model,
        entry=from_open_clip(with_given(ways, choice.preprocess), title),
        head=str(model.pretrained_cfg.get("classifier") or "head"),
        resize=lambda side: resize_timm(model, side, title),
        prefix=prefix,
        last=getattr(model, "output_fmt", "NCHW") == "NHWC",
    )


def _build(choice: TowerChoice, more: dict[str, Any], title: str) -> Any:
    """The model without classifier. Convolutions take no size, which their classes refuse as an unknown argument."""
    import timm

    size = choice.preprocess.get("size")
    sized = [{**more, "img_size": size}] if size is not None and "img_size" not in more else []
    for options in (*sized, more):
        try:
            return timm.create_model(choice.name, pretrained=False, num_classes=0, **options).eval()
        except Exception as error:  # of timm, about a value of the configuration
            if "img_size" in options and "img_size" in str(error) and options is not more:
                continue
            raise ConfigError(f"timm cannot build {title}: {short_reason(error)}.") from error
    raise AssertionError
