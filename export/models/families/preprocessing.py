"""Geometry and normalisation from a model's own configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from ....engines.errors import ConfigError
from ....engines.geometry import Geometry, Interpolation
from ....engines.registry import did_you_mean

_MODES: dict[str, Literal["crop", "squash"]] = {"shortest": "crop", "squash": "squash"}
_RESAMPLE = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_KNOWN = ("CLIPImageProcessor", "BitImageProcessor", "BlipImageProcessor", "SiglipImageProcessor", "ViTImageProcessor")
"""Classes of transformers that resize, cut, rescale and normalise by the rules of their base class."""
_HINT = "change the option preprocess, or write an adapter"


@dataclass(frozen=True)
class Preprocessing:
    """How a picture enters the model."""

    geometry: Geometry
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


WORDS: dict[str, type | tuple[type, ...]] = {
    "size": int,
    "resize": int,
    "mean": list,
    "std": list,
    "interpolation": str,
    "resize_mode": str,
}
"""The option `preprocess`, in open_clip's words; `resize`: the shorter side before the centre is cut, by default the
size."""


def from_open_clip(config: Mapping[str, Any], where: str) -> Preprocessing:
    """From open_clip's `preprocess_cfg` (size, mean, std, interpolation, resize_mode), and `resize`.

    Raises ConfigError.
    """
    size = config["size"]
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise ConfigError(f"{where} takes pictures of {list(size)} pixels; only square ones can be exported.")
    side, mode, interpolation = int(sides.pop()), str(config["resize_mode"]), str(config["interpolation"])
    for what, value, allowed in (
        ("resize_mode", mode, [*_MODES]),
        ("interpolation", interpolation, [*_RESAMPLE.values()]),
    ):
        if value not in allowed:
            raise ConfigError(f"{where}: {what} '{value}' cannot be exported: {did_you_mean(value, allowed)}; {_HINT}.")
    resize = int(config.get("resize", side))
    if not 0 < side <= resize or (mode == "squash" and side != resize):
        raise ConfigError(
            f"{where}: pictures resized to {resize} and cut to {side} pixels cannot be exported with resize_mode "
            f"'{mode}'; {_HINT}."
        )
    geometry = Geometry(_MODES[mode], side, resize, cast(Interpolation, interpolation))
    return Preprocessing(geometry, _three(config["mean"], "mean", where), _three(config["std"], "std", where))


def with_given(library: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """How the library's own weights take pictures, in open_clip's words, with the option `preprocess` in their place.
    Of another size or way the library's resize says nothing."""
    kept = {
        key: value for key, value in library.items() if key != "resize" or not given.keys() & {"size", "resize_mode"}
    }
    return {**kept, **given}


def from_processor(processor: Any, size: int | None, where: str) -> Preprocessing:
    """From an image processor of transformers, for a model that takes pictures of `size`, or any. Raises ConfigError.

    The rules of the library are followed, with Pillow's resize: the centre begins at (H - S) // 2.
    """
    class_name = type(processor).__name__
    if class_name.removesuffix("Fast").removesuffix("Pil") not in _KNOWN:
        raise ConfigError(
            f"{where} is a {class_name}, whose rules are not known here: known are {', '.join(_KNOWN)}; write an "
            "adapter."
        )
    interpolation = _RESAMPLE.get(int(processor.resample))
    if interpolation is None:
        raise ConfigError(
            f"{where}: the interpolation {processor.resample!s} cannot be exported: known are bilinear and bicubic."
        )
    if not processor.do_resize or not processor.do_rescale or abs(255 * processor.rescale_factor - 1) > 1e-6:
        raise ConfigError(f"{where}: pictures that are not resized and divided by 255 cannot be exported.")
    if getattr(processor, "do_pad", None):
        raise ConfigError(f"{where}: pictures that are padded (do_pad) cannot be exported.")
    mode, resize = _resized(processor, where)
    cuts = bool(getattr(processor, "do_center_crop", False))
    crop = _side(processor.crop_size) if cuts else resize
    size = crop if size is None else size
    if mode == "floor_crop" and cuts and crop is not None and resize < crop:
        raise ConfigError(
            f"{where}: the shorter side is resized to {resize} pixels (shortest_edge), less than the {crop} that are "
            "cut (crop_size), so that transformers pads pictures, which cannot be exported; correct the two numbers."
        )
    if crop is None or crop != size or (mode == "squash" and crop != resize) or (mode == "floor_crop" and not cuts):
        raise ConfigError(
            f"{where}: pictures resized by {processor.size} and cut to {crop} do not become the {size} x {size} pixels "
            "of config.json in a way that can be exported (the shorter side resized, then cut; or both sides resized)."
        )
    normalised = processor.do_normalize
    return Preprocessing(
        Geometry(mode, size, resize, cast(Interpolation, interpolation)),
        _three(processor.image_mean if normalised else (0, 0, 0), "image_mean", where),
        _three(processor.image_std if normalised else (1, 1, 1), "image_std", where),
    )


def _resized(processor: Any, where: str) -> tuple[Literal["squash", "floor_crop"], int]:
    size = dict(processor.size)
    shortest = size.get("shortest_edge")
    if shortest and not size.get("longest_edge"):
        return "floor_crop", int(shortest)
    side = _side(size)
    if side is None:
        raise ConfigError(f"{where}: a resize by {size} cannot be exported; only square pictures can.")
    return "squash", side


def _side(size: Any) -> int | None:
    sides = dict(size)
    return int(sides["height"]) if sides.get("height") and sides.get("height") == sides.get("width") else None


def _three(values: Sequence[float] | float, what: str, where: str) -> tuple[float, float, float]:
    try:
        one, two, three = (float(value) for value in cast(Sequence[float], values))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{where}: '{what}' must be three numbers, one for each of R, G, B; not {values!r}."
        ) from error
    return one, two, three
