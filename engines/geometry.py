"""The geometry of a model's input (size, crop or padding, interpolation, intensity); a bundle stores it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from .errors import BundleError
from .registry import did_you_mean

Mode = Literal["squash", "crop", "floor_crop", "pad_crop"]
Interpolation = Literal["bilinear", "bicubic", "area", "lanczos"]
Intensity = Literal["unchanged", "stretched", "equalised"]


@dataclass(frozen=True)
class Geometry:
    """Geometry of a model's input (docs/datasets.md §0.3).

    squash: resize to `size` x `size`, aspect ratio ignored (`resize` equals `size`).
    crop: shorter side to `resize`, then the centre `size` x `size`, which begins at round((length - size) / 2), halves
    to the even number, as torchvision cuts.
    floor_crop: the same, and the centre begins at (length - size) // 2, as transformers cuts.
    pad_crop: longer side to `resize`, zero padding to `resize` x `resize`, then the centre `size` x `size`; with
    `area` or `lanczos` interpolation, which no other mode has (OpenCV's and Pillow's rule of sizes).
    intensity: the grey levels before the resize. `stretched` maps the stored values of each image to 0..255, from its
    minimum to its maximum (docs/datasets.md §0.2). `equalised` equalises the histogram of the native image; no bundle
    has it: an evaluation protocol equalises (docs/protocols.md §5), or a live model states it.
    """

    mode: Mode
    size: int
    resize: int
    interpolation: Interpolation
    intensity: Intensity = "unchanged"

    def __post_init__(self) -> None:
        for what, name, valid in (
            ("geometry", self.mode, get_args(Mode)),
            ("interpolation", self.interpolation, get_args(Interpolation)),
            ("intensity", self.intensity, get_args(Intensity)),
        ):
            if name not in valid:
                raise BundleError(f"Unknown {what} '{name}': {did_you_mean(str(name), valid)}.")
        if (self.mode == "pad_crop") != (self.interpolation in ("area", "lanczos")):
            raise BundleError(f"The geometry {self.mode} does not go with {self.interpolation} interpolation.")
        if not 1 <= self.size <= self.resize <= 8192 or (self.mode == "squash" and self.size != self.resize):
            raise BundleError(f"Geometry sizes do not fit: size {self.size}, resize {self.resize}, mode {self.mode}.")

    @property
    def key(self) -> str:
        """A short name; models whose keys are equal share prepared images."""
        plain = f"{self.mode}-{self.size}-{self.resize}-{self.interpolation}"
        return plain if self.intensity == "unchanged" else f"{plain}-{self.intensity}"

    def scaled(self, side: int, native: int) -> Geometry:
        """For a model of `native` pixels that takes pictures of `side`: the resize and the cut grow alike."""
        return replace(self, size=round(self.size * side / native), resize=round(self.resize * side / native))

    @cached_property
    def stretched(self) -> bool:
        """Whether the grey levels follow from an image's stored values, so that decoding depends on it."""
        return self.intensity == "stretched"

    @staticmethod
    def from_key(key: str) -> Geometry:
        """The geometry whose `key` this is. Raises BundleError for any other text."""
        mode, *rest = key.split("-")
        names: list[Any] = [mode, *rest[2:]]
        if len(rest) not in (3, 4) or not (rest[0].isdecimal() and rest[1].isdecimal()):
            raise BundleError(f"'{key}' is not the key of a geometry, such as squash-224-224-bicubic.")
        return Geometry(names[0], int(rest[0]), int(rest[1]), *names[1:])

    def to_json(self) -> dict[str, str | int]:
        """The entry `geometry` of bundle.json; without `intensity` the levels are unchanged, as in older bundles.

        Raises BundleError for an intensity that a bundle cannot have.
        """
        if self.intensity == "equalised":
            raise BundleError(f"A bundle cannot store the intensity '{self.intensity}' of its geometry.")
        fields = asdict(self)
        if self.intensity == "unchanged":
            del fields["intensity"]
        return fields
