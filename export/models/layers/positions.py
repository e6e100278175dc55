"""Learnt positions of image towers, resampled for another size of the picture (docs/parity.md §8)."""

from __future__ import annotations

from typing import Any

import torch
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import nn

from ....engines.errors import ConfigError
from ...libraries import short_reason


def patches_across(side: int, patch: int, title: str) -> int:
    """Patches of `patch` pixels along `side`. Raises ConfigError for a part of a patch."""
    if side % patch:
        raise ConfigError(
            f"{title} takes no pictures of {side} x {side} pixels, because its patches have {patch}: give a resolution "
            f"that is a multiple, such as {max(round(side / patch), 1) * patch}."
        )
    return side // patch


def resample(holder: nn.Module, name: str, cells: int, prefix: int) -> None:
    """Replaces the table `name` of `holder`, [prefix + n * n, C] or [1, ...], by the one of `cells` x `cells` patches.

    timm's bicubic resampling with antialias, which open_clip has too; the `prefix` (class token) stays.
    """
    with torch.no_grad():
        before = getattr(holder, name)
        rows = before.reshape(1, *before.shape[-2:])
        table = resample_abs_pos_embed(rows, [cells, cells], num_prefix_tokens=prefix)
    setattr(holder, name, nn.Parameter(table.reshape(*before.shape[:-2], *table.shape[1:]), requires_grad=False))


def resize_tower(visual: Any, side: int, title: str) -> None:
    """Makes an image tower of open_clip one of pictures of `side` x `side` pixels.

    Raises ConfigError where the patches do not divide the side, and for a tower that has one size.
    """
    kind = type(visual).__name__
    if kind == "VisionTransformer":
        cells = patches_across(side, visual.patch_size[0], title)
        resample(visual, "positional_embedding", cells, 1)
        visual.grid_size = (cells, cells)
    elif kind == "ModifiedResNet":
        resample(visual.attnpool, "positional_embedding", patches_across(side, 32, title), 1)  # the strides' product
    else:
        resize_timm(visual.trunk, side, title)
    visual.image_size = (side, side)


def resize_timm(trunk: Any, side: int, title: str) -> None:
    """The same of a tower of timm, which resamples positions and windows by itself."""
    if hasattr(trunk, "set_input_size"):
        patches_across(side, getattr(trunk.patch_embed, "patch_size", (1,))[0], title)
        try:
            trunk.set_input_size(img_size=(side, side))
        except Exception as error:  # of timm, about a size that its windows do not divide
            raise ConfigError(f"timm cannot resize {title} to {side} pixels: {short_reason(error)}.") from error
    elif getattr(trunk, "pos_embed", None) is not None:
        raise ConfigError(
            f"{title} has one size, because its {type(trunk).__name__} of timm cannot resample its positions: "
            "leave out the resolution."
        )
