"""A model at another size of the picture than it was trained with (docs/parity.md §8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from ..engines.geometry import Geometry

if TYPE_CHECKING:
    from torch import nn


class _Model(Protocol):
    """What is asked of an `Adapter` here."""

    module: nn.Module
    variant: str
    geometry: Geometry
    resized: str

    @property
    def resolution(self) -> int: ...

    def resize(self, side: int, /) -> None: ...


M = TypeVar("M", bound=_Model)


def resized_variant(variant: str, side: int) -> str:
    """The variant of the model at another size than its own."""
    return f"{variant}-at-{side}"


def native_variant(variant: str) -> tuple[str, int | None]:
    """The variant at the model's own size, and the other size that `resized_variant` named."""
    base, _, side = variant.rpartition("-at-")
    return (base, int(side)) if base and side.isdecimal() else (variant, None)


def at_resolution(adapter: M, side: int | None) -> M:
    """Resizes a model of another size: its variant and geometry follow, and `resized` says how; None: its own size.

    Raises ConfigError where `Adapter.resize` does.
    """
    if side is None or side == adapter.resolution:
        return adapter
    native, before = adapter.resolution, _shapes(adapter)
    adapter.resize(side)
    how = "by size, trained at" if _shapes(adapter) == before else "positions resampled from"
    adapter.resized, adapter.variant = f"{how} {native}", resized_variant(adapter.variant, side)
    adapter.geometry = adapter.geometry.scaled(side, native)
    return adapter


def _shapes(adapter: _Model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in adapter.module.named_parameters()}
