"""A folder of NIfTI masks of radiographs (docs/datasets.md §9.9)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ConfigError, DataError, ImageError
from ..mask_run_lengths import check_grid
from ..masks.mask_files import StoredMask
from .mask_folder import MaskFolder
from .nifti_axes import oriented

_ROUNDING: Final = 1e-3  # of labels that were stored as fractions of 255, or interpolated and not rounded
_PAIR: Final = {".hdr": ".img", ".img": ".hdr"}


class NiftiMasks(MaskFolder):
    """`<root>/masks/<class>/<image>.nii.gz` beside `<root>/images/`, or other names by the option `files`.

    The affine says how the mask lies on the image: columns run to the patient's left, rows to the feet or the back.
    """

    name = "nifti"
    title = "NIfTI"
    form = "{class}/{image}.nii.gz"
    option_help: ClassVar[Mapping[str, str]] = {
        **{key: text.replace(".png", ".nii.gz") for key, text in MaskFolder.option_help.items()},
        "axes": "auto (default): as the affine says, one that nobody stated is refused; affine: also such a one; rows: "
        "arrays [row, column] that were saved as they are",
    }

    @cached_property
    def axes(self) -> str:
        """The option `axes`."""
        return self.choice_option("axes", ("auto", "affine", "rows"), "auto")

    def _beside(self, path: Path) -> Sequence[Path]:
        other = _PAIR.get(path.suffix.lower())
        return () if other is None else [path.with_suffix(other)]

    def _load(self, path: Path) -> StoredMask:
        axes = self.axes
        if self.values and self.values.colours:
            raise ConfigError(f"The option 'values' of the dataset '{self.name}' has colours; NIfTI has numbers.")
        try:
            import nibabel
        except ImportError:
            raise DataError(
                f"{path} needs the package nibabel; install it with pip install 'xbench-fast[formats]'."
            ) from None
        try:
            with _quiet(logging.getLogger("nibabel.global")):
                image = nibabel.load(path)
            # The class of pairs of two files; those of single files and of NIfTI-2 are made of it.
            if not isinstance(image, nibabel.Nifti1Pair):
                raise ImageError("it is no NIfTI file")
            sides = [side for side in image.shape if side != 1]
            if len(sides) > 2 or len(image.shape) < 2 or max(image.shape[3:], default=1) > 1:
                raise ImageError(f"its shape is {' x '.join(map(str, image.shape))}, not that of one slice")
            check_grid(*image.shape[:2])
            if image.get_data_dtype().kind not in "biuf":
                raise ImageError(f"its pixels are of the type {image.get_data_dtype()}, not numbers")
            values = oriented(image, axes, nibabel)
        except DataError as error:
            raise ImageError(str(error).rstrip(".")) from error
        except ImageError:
            raise
        except OSError as error:
            raise ImageError(error.strerror or "it is damaged") from error
        # The library can raise any exception on a damaged file.
        except Exception as error:
            raise ImageError(f"it is damaged ({' '.join(str(error).split())[:200]})") from error
        return StoredMask(_checked(values, self.threshold))


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Drops what nibabel says of a header meanwhile: it names no file, and what matters is raised."""
    logger.addFilter(_drop)
    try:
        yield
    finally:
        logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False


def _checked(values: NDArray[Any], threshold: float | None) -> NDArray[Any]:
    """Whole numbers from 0 on as int64; with a threshold any finite numbers. Raises ImageError."""
    if not np.isfinite(values).all():
        raise ImageError("it holds other values than whole numbers: some are no finite number, so it is no mask")
    if threshold is not None:
        return values
    labels = np.rint(values)
    if np.abs(labels - values).max(initial=0) > _ROUNDING or labels.min(initial=0) < 0:
        raise ImageError(
            "it holds other values than whole numbers from 0 on, so it is no mask; set the option threshold where they "
            "are probabilities"
        )
    if values.any() and not labels.any():
        raise ImageError(
            f"it holds other values than whole numbers, from {values.min():g} up to {values.max():g}; set the option "
            "threshold, or correct the scaling that it states"
        )
    return np.asarray(labels.astype(np.int64))
