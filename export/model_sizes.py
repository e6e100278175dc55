"""Finds the sizes that an adapter does not state by running its model once, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import torch

from ..engines.errors import ConfigError
from ..engines.geometry import Geometry
from .libraries import short_reason

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 512
"""The context of a text tower that takes texts of any length."""
LARGEST = 2**21
"""The vocabulary of one that takes any id."""


class _Model(Protocol):
    """What is asked of an `Adapter` here."""

    name: str
    geometry: Geometry
    grid: tuple[int, int]
    text_inputs: tuple[str, ...]
    text_shape: tuple[int, ...]
    texts_per_query: int
    findings: tuple[str, ...]
    context: int
    vocabulary_size: int

    def encode_text(self, input_ids: Tensor, attention_mask: Tensor | None, /) -> Tensor: ...

    def forward(self, image: Tensor, text: Tensor, /) -> tuple[Tensor, Tensor]: ...


def measure(adapter: _Model) -> None:
    """Sets `text_shape`, `context`, `vocabulary_size` and `grid` where they are empty.

    Raises ConfigError when the model does not run, or returns other shapes than an adapter's.
    """
    with torch.inference_mode():
        if adapter.findings:
            adapter.text_shape = (len(adapter.findings),)
        if not adapter.text_shape:
            adapter.text_shape = _text_shape(adapter)
        if not (adapter.context or adapter.findings):
            adapter.context = _largest(lambda width: _encode(adapter, torch.ones(1, width, dtype=torch.int64)), LONGEST)
        if not (adapter.vocabulary_size or adapter.findings):
            ids = torch.zeros(1, min(2, adapter.context), dtype=torch.int64)
            adapter.vocabulary_size = 1 + _largest(lambda number: _encode(adapter, ids + number), LARGEST)
        if not all(adapter.grid):
            adapter.grid = _grid(adapter)


def _encode(adapter: _Model, ids: Tensor) -> Tensor:
    mask = torch.ones_like(ids) if "attention_mask" in adapter.text_inputs else None
    return adapter.encode_text(ids, mask)


def _text_shape(adapter: _Model) -> tuple[int, ...]:
    try:
        one = _encode(adapter, torch.ones(3, 2, dtype=torch.int64))
    except Exception as error:  # of the user's own code
        raise ConfigError(f"encode_text of {adapter.name} fails with ids [3, 2]: {short_reason(error)}.") from error
    if one.ndim < 2 or one.shape[0] != 3:
        raise ConfigError(
            f"encode_text of {adapter.name} returns {list(one.shape)} for 3 texts; it must return [3, ...]."
        )
    shape = tuple(one.shape[1:])
    return (adapter.texts_per_query, *shape) if adapter.texts_per_query > 1 else shape


def _grid(adapter: _Model) -> tuple[int, int]:
    size = adapter.geometry.size
    picture = torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size)
    try:
        logits, saliency = adapter.forward(picture, torch.full((2, *adapter.text_shape), 0.1))
    except Exception as error:  # of the user's own code
        raise ConfigError(
            f"forward of {adapter.name} fails with an image [1, 3, {size}, {size}] and text "
            f"{[2, *adapter.text_shape]}: {short_reason(error)}."
        ) from error
    if logits.shape != (1, 2) or saliency.ndim != 4 or saliency.shape[:2] != (1, 2):
        raise ConfigError(
            f"forward of {adapter.name} returns logits {list(logits.shape)} and saliency {list(saliency.shape)} for "
            "one image and two prompts; it must return [1, 2] and [1, 2, rows, columns]."
        )
    return int(saliency.shape[2]), int(saliency.shape[3])


def _largest(run: Callable[[int], object], limit: int) -> int:
    """The largest number from 1 to `limit` with which `run` does not fail; it fails with all above, or with none."""
    low, high = 1, limit + 1  # runs, fails
    if _runs(run, limit):
        return limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _runs(run, middle) else (low, middle)
    return low


def _runs(run: Callable[[int], object], number: int) -> bool:
    try:
        run(number)
    except Exception:  # a table of positions or words that is too short raises whatever the code raises
        return False
    return True
