"""Towers of torchvision by name. Nothing is downloaded: the weights are the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ...libraries import required, short_reason
from ..layers.positions import patches_across, resample
from .backbones import Backbone, TowerChoice
from .family import near
from .preprocessing import from_open_clip, with_given

_RESNET = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")


def _in_turn(model: Any, x: Tensor, parts: tuple[str, ...]) -> Tensor:
    for part in parts:
        x = getattr(model, part)(x)
    return x


def _tokens(model: Any, image: Tensor) -> Tensor:
    x = model._process_input(image)
    tokens: Tensor = model.encoder(torch.cat([model.class_token.expand(x.shape[0], -1, -1), x], dim=1))
    return tokens


_FEATURES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "ConvNeXt": lambda model, image: model.features(image),
    "DenseNet": lambda model, image: F.relu(model.features(image)),
    "EfficientNet": lambda model, image: model.features(image),
    "MobileNetV2": lambda model, image: model.features(image),
    "MobileNetV3": lambda model, image: model.features(image),
    "RegNet": lambda model, image: _in_turn(model, image, ("stem", "trunk_output")),
    "ResNet": lambda model, image: _in_turn(model, image, _RESNET),
    "SwinTransformer": lambda model, image: _in_turn(model, image, ("features", "norm", "permute")),
    "VisionTransformer": _tokens,
}
"""Class of torchvision -> its last features, which are pooled by a mean, or by the class token of the last one."""


def torchvision_backbone(choice: TowerChoice) -> Backbone:
    """The untrained tower `choice.name`, pooled as its class does it.

    Raises ConfigError (unknown name, another pooling, an architecture whose last map is not known) and
    MissingExtraError.
    """
    title, models = f"torchvision:{choice.name}", required("torchvision.models", "This family")
    names = models.list_models(module=models)
    if choice.name not in names:
        hint = near(choice.name, names, "torchvision.models.list_models() has its names.")
        raise ConfigError(f"torchvision has no model '{choice.name}': {hint}")
    more, tokens = dict(choice.more), choice.name.startswith("vit_")
    if tokens and "size" in choice.preprocess:
        more.setdefault("image_size", choice.preprocess["size"])
    try:
        model = models.get_model(choice.name, weights=None, **more).eval()
    except Exception as error:  # of torchvision, about a value of the configuration
        raise ConfigError(f"torchvision cannot build {title}: {short_reason(error)}.") from error
    kind = type(model).__name__
    if kind not in _FEATURES:
        raise ConfigError(
            f"{title} is a {kind}, which is not known to have a map that is pooled by its mean: known are "
            f"{', '.join(_FEATURES)}; write an adapter."
        )
    if choice.pooling != "own":
        raise ConfigError(f"{title} is pooled as its class does it, not by '{choice.pooling}'; leave out 'pooling'.")
    head = _without_last(model)
    rest = getattr(model, head.partition(".")[0])

    def pool(x: Tensor) -> Tensor:
        if tokens:
            pooled = x[:, 0]
        else:
            pooled = F.adaptive_avg_pool2d(x, 1)
            pooled = pooled if kind == "ConvNeXt" else pooled.flatten(1)  # whose norm is part of its classifier
        out: Tensor = rest(pooled)
        return out

    def resize(side: int) -> None:
        if tokens:
            resample(model.encoder, "pos_embedding", patches_across(side, model.patch_size, title), 1)
            model.image_size = side

    weights = models.get_model_weights(choice.name).DEFAULT.transforms()
    ways = {
        "size": model.image_size if tokens else weights.crop_size[0],
        "resize": weights.resize_size[0],
        "mean": weights.mean,
        "std": weights.std,
        "interpolation": weights.interpolation.value,
        "resize_mode": "shortest",
    }
    return Backbone(
        title=title,
        module=model,
        features=lambda image: _FEATURES[kind](model, image),
        pool=pool,
        vector=model,
        entry=from_open_clip(with_given(ways, choice.preprocess), title),
        head=head,
        resize=resize,
        prefix=int(tokens),
    )


def _without_last(model: nn.Module) -> str:
    """Replaces the last linear layer by nothing, and returns its name."""
    name = next(name for name in ("classifier", "fc", "heads", "head") if hasattr(model, name))
    layer = getattr(model, name)
    if not isinstance(layer, nn.Sequential):
        setattr(model, name, nn.Identity())
        return name
    last = [own for own, _ in layer.named_children()][-1]
    setattr(layer, last, nn.Identity())
    return f"{name}.{last}"
