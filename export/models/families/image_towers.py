"""Image towers of open_clip, read for the image vector and for a vector of each patch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....engines.errors import ConfigError
from .family import ImageTower, each_alone, read_features


def image_tower(visual: Any, title: str) -> ImageTower:
    """The tower of `visual`. Raises ConfigError for one whose patches cannot be read."""
    towers = {"VisionTransformer": _transformer, "ModifiedResNet": _resnet, "TimmModel": _timm}
    reader = towers.get(type(visual).__name__)
    if reader is None:
        raise ConfigError(f"No patches can be read from {title}: its image tower is a {type(visual).__name__}.")
    return reader(visual)


def _transformer(visual: Any) -> ImageTower:
    """open_clip's own transformer. A pair of one patch has it as the class token and as the only patch."""

    def pool(x: Tensor) -> Tensor:
        pooled: Tensor = visual._pool(x)[0]
        return pooled if visual.proj is None else pooled @ visual.proj

    def read(image: Tensor) -> tuple[Tensor, Tensor]:
        x = visual.transformer(visual._embeds(image))
        return pool(x), each_alone(x[:, 1:], pool, copies=2)

    return read


def _timm(visual: Any) -> ImageTower:
    """A tower of timm: tokens [B, N, C], the prefix first, or a map [B, C, h, w] ([B, h, w, C] where it says NHWC)."""
    trunk = visual.trunk
    prefix = int(getattr(trunk, "num_prefix_tokens", 0))
    last = getattr(trunk, "output_fmt", "NCHW") == "NHWC"

    def head(x: Tensor) -> Tensor:
        pooled: Tensor = visual.head(trunk.forward_head(x))
        return pooled

    return lambda image: read_features(trunk.forward_features(image), head, prefix, last=last)


def _resnet(visual: Any) -> ImageTower:
    """CLIP's ResNet, whose image vector is a mean of these cells, weighted by the attention of its pool."""

    def read(image: Tensor) -> tuple[Tensor, Tensor]:
        x = visual.stem(image)
        for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
            x = layer(x)
        pool = visual.attnpool
        cells = x.flatten(2).transpose(1, 2) + pool.positional_embedding[1:]
        return pool(x), pool.c_proj(pool.v_proj(cells))

    return read
