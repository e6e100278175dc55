"""What the families share: texts at full width, patches found by running the tower, and the facts of a bundle."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ....engines.registry import did_you_mean
from ....engines.tokenizing import TokenBatch
from ...libraries import short_reason
from ...prompts.builtin import BOOKS, prompt_styles
from ..saliency_maps import FAMILY_MAPS
from ..two_towers import TwoTowers

ImageTower = Callable[[Tensor], tuple[Tensor, Tensor]]
"""float32 [B, 3, S, S] -> the image [B, D] and its patches [B, N, D]."""


class TextPadding(NamedTuple):
    """How the family's own pipeline fills a text up to the context: with which id, on which side; `separator` is an id
    that it replaces by 0, `last` one that it puts behind all others; `masked`: the tower gets a mask of filling ids."""

    number: int = 0
    left: bool = False
    separator: int | None = None
    last: int | None = None
    masked: bool = False

    def fill(self, ids: Tensor, mask: Tensor, context: int) -> Tensor:
        """ids, mask int64 [T, N], padded on the right by anything, N <= context -> int64 [T, context]."""
        if self.last is not None:
            padded = self._replace(last=None).fill(ids, mask, context - 1)
            return torch.cat([padded, padded.new_full((1, 1), self.last).expand(padded.shape[0], -1)], dim=1)
        rest = ids.new_full((1, context), self.number).expand(ids.shape[0], -1)
        plain = torch.where(mask > 0, ids, self.number)
        if self.separator is not None:
            plain = torch.where(plain == self.separator, 0, plain)
        filled = torch.narrow(torch.cat([plain, rest], dim=1), 1, 0, context)
        if not self.left:
            return filled
        places = torch.arange(context, device=ids.device) - context + mask.clamp(max=1).sum(1, keepdim=True)
        return torch.where(places < 0, self.number, filled.gather(1, places.clamp(min=0)))


def check_style(style: str) -> None:
    """Raises ConfigError for a style without built-in prompts of single texts."""
    styles = [name for name in prompt_styles() if name not in BOOKS]
    if style not in styles:
        raise ConfigError(f"There are no built-in prompts in the style '{style}': {did_you_mean(style, styles)}.")


def check_float32(model: nn.Module, title: str) -> None:
    """Raises ConfigError for a model in memory whose weights have another type."""
    if kinds := sorted({str(parameter.dtype) for parameter in model.parameters()} - {"torch.float32"}):
        raise ConfigError(f"{title} has weights of {kinds[0]}; give it in float32, with torch.autocast if need be.")


def near(name: str, names: Sequence[str], otherwise: str) -> str:
    """As `did_you_mean`, of more than a hundred names: only the near ones are shown, or the sentence `otherwise`."""
    lower = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), lower, n=4, cutoff=0.5)
    return f"did you mean {' or '.join(repr(lower[one]) for one in close)}?" if close else otherwise


def each_alone(patches: Tensor, pool: Callable[[Tensor], Tensor], copies: int = 1) -> Tensor:
    """What `pool` ([*, copies, C] -> [*, D]) returns for each of the patches [B, N, C] by itself: [B, N, D].

    `copies` above 1 put the same patch where the pool expects the class token as well, so that it sees nothing else.
    """
    alone = patches.flatten(0, 1)[:, None].expand(-1, copies, -1)
    return torch.unflatten(pool(alone), 0, (-1, patches.shape[1]))


def read_features(
    x: Tensor, pool: Callable[[Tensor], Tensor], prefix: int = 0, *, last: bool = False
) -> tuple[Tensor, Tensor]:
    """The last features of a tower -> what `pool` makes of all [B, D], and of each patch alone [B, N, D].

    x: tokens [B, prefix + N, C], or a map [B, C, h, w] ([B, h, w, C] where `last`).
    """
    if x.ndim == 3:
        return pool(x), each_alone(x[:, prefix:], pool, copies=1 + prefix)
    cells = x.flatten(1, 2) if last else x.flatten(2).transpose(1, 2)
    return pool(x), each_alone(cells, lambda one: pool(one[:, None] if last else one.transpose(1, 2)[..., None]))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards each of its modules is in the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def patch_grid(
    tower: ImageTower,
    image_vector: Callable[[Tensor], Tensor],
    size: int,
    title: str,
    device: torch.device | None = None,
) -> tuple[int, int]:
    """The grid of the patches, found by running the tower. Its image vector must equal `image_vector`, the model's own.

    Raises ConfigError where no patches can be read.
    """
    picture = torch.linspace(-1, 1, 3 * size * size, device=device).reshape(1, 3, size, size)
    with torch.inference_mode():
        try:
            pooled, patches = tower(picture)
            expected = image_vector(picture)
        except (RuntimeError, ValueError, AssertionError, IndexError, TypeError, AttributeError) as error:
            reason = short_reason(error, 160)
            raise ConfigError(f"No patches can be read from {title}: {reason}; write an adapter for it.") from error
    side = math.isqrt(patches.shape[1])
    if side * side != patches.shape[1] or pooled.shape != expected.shape:
        raise ConfigError(
            f"No square map can be read from {title}: {patches.shape[1]} patches, image vectors {list(pooled.shape)} "
            f"and {list(expected.shape)}; write an adapter for it."
        )
    if not torch.allclose(F.normalize(pooled, dim=-1), F.normalize(expected, dim=-1), atol=1e-4):
        raise ConfigError(f"The patches of {title} do not lead to its own image vector; write an adapter for it.")
    return side, side


class ModelFamily(TwoTowers):
    """A model of a library, in the library's own code. Texts get the width of the context."""

    maps: ClassVar[Mapping[str, str]] = FAMILY_MAPS
    read_image: ImageTower
    read_text: Callable[..., Tensor]
    padding: TextPadding

    def connect(self, image: ImageTower, text: Callable[..., Tensor], padding: TextPadding) -> None:
        """Sets the towers; `text` takes ids int64 [T, context], and a mask of that shape where the padding is
        `masked`."""
        self.read_image, self.read_text, self.padding = image, text, padding

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own image vector, and the vector of each patch alone."""
        return self.read_image(image)

    def encoder_ids(self, batch: TokenBatch) -> list[list[int]]:
        """The ids of each text at the width of the context."""
        filled = self.padding.fill(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask), self.context)
        rows: list[list[int]] = filled.tolist()
        return rows

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N <= context] -> float32 [T, D]; padding is done here as the model's own pipeline does it."""
        mask = torch.ones_like(ids) if mask is None else mask
        filled = self.padding.fill(ids, mask, self.context)
        if not self.padding.masked:
            return self.read_text(filled)
        return self.read_text(filled, TextPadding(0, self.padding.left).fill(mask, mask, self.context))

    def scale(self) -> Tensor:
        """The factor of the cosine; some models store it as [1]."""
        return super().scale().reshape(())

    def bias(self) -> Tensor | None:
        """SigLIP's bias."""
        bias = getattr(self.module, "logit_bias", None)
        return bias.reshape(()) if isinstance(bias, Tensor) else None
