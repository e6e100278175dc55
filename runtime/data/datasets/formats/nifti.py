"""A folder of NIfTI masks of radiographs (docs/formats.md §9.9)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import DataError, ImageError
from .....engines.extras import missing_package
from ..mask_run_lengths import check_grid
from ..masks.mask_files import StoredMask
from .mask_folder import MaskFolder

_ROUNDING: Final = 1e-3  # of labels that were stored as fractions of 255, or interpolated and not rounded
_PAIR: Final = {".hdr": ".img", ".img": ".hdr"}
_EXACT: Final = 1e-6  # of the longest side of a pixel; headers hold numbers of 32 bits
_ASK: Final = (
    "; set the option axes to rows for arrays [row, column] that were saved as they are, or to affine where the header "
    "is right"
)


class NiftiMasks(MaskFolder):
    """`<root>/masks/<class>/<image>.nii.gz` next to `<root>/images/`, or other names by the option `files`.

    The affine says how the mask lies on the image: columns run to the patient's left, rows to the feet or the back.
    """

    name = "nifti"
    title = "NIfTI"
    form = "{class}/{image}.nii.gz"
    option_help: ClassVar[Mapping[str, str]] = {
        **{key: text.replace(".png", ".nii.gz") for key, text in MaskFolder.option_help.items()},
        "axes": "auto (default): as the affine says, one that no program stated is refused; affine: any affine; rows: "
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
            raise self.option_error("values", "has colours; NIfTI has numbers")
        try:
            import nibabel
        except ImportError:
            raise DataError(missing_package("nibabel", "formats", user=str(path))) from None
        try:
            with _quiet(logging.getLogger("nibabel.global")):
                image = nibabel.load(path)
            # The class of pairs of two files; the classes of single files and of NIfTI-2 derive from it.
            if not isinstance(image, nibabel.Nifti1Pair):
                raise ImageError("it is no NIfTI file")
            sides = [side for side in image.shape if side != 1]
            if len(sides) > 2 or len(image.shape) < 2 or max(image.shape[3:], default=1) > 1:
                raise ImageError(f"its shape is {' x '.join(map(str, image.shape))}, not the shape of one slice")
            check_grid(*image.shape[:2])
            if image.get_data_dtype().kind not in "biuf":
                raise ImageError(f"its pixels are of the type {image.get_data_dtype()}, not numbers")
            values = _oriented(image, axes, nibabel)
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
    """Drops nibabel's log messages about a header: they name no file, and real faults are raised."""
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
        raise ImageError("it holds other values than whole numbers: some are no finite number, so it is not a mask")
    if threshold is not None:
        return values
    labels = np.rint(values)
    if np.abs(labels - values).max(initial=0) > _ROUNDING or labels.min(initial=0) < 0:
        raise ImageError(
            "it holds other values than whole numbers from 0 on, so it is not a mask; set the option threshold if they "
            "are probabilities"
        )
    if values.any() and not labels.any():
        raise ImageError(
            f"it holds other values than whole numbers, from {values.min():g} up to {values.max():g}; set the option "
            "threshold, or correct the scaling that it states"
        )
    return np.asarray(labels.astype(np.int64))


def _oriented(image: Any, axes: str, nibabel: Any) -> NDArray[Any]:
    """The values [row, column] of a NIfTI image of one slice, by the option `axes`. Raises ImageError."""
    shape = (*image.shape, 1)[:3]
    values = np.asarray(image.dataobj).reshape(shape)
    flat = next((axis for axis in (2, 1, 0) if shape[axis] == 1), 2)
    if axes == "rows":
        if flat != 2:
            raise ImageError(f"its shape is {' x '.join(map(str, image.shape))}, not [row, column] as with axes rows")
        return values[..., 0]
    if axes == "auto" and (doubt := _doubt(image, nibabel)):
        raise ImageError(doubt + _ASK)
    directions = image.affine[:3, :3]
    lengths = np.linalg.norm(directions, axis=0)
    if not np.isfinite(lengths).all() or not lengths.all() or abs(np.linalg.det(directions / lengths)) < _EXACT:
        raise ImageError("its affine states no three directions" + _ASK)
    axes_of_body = nibabel.orientations.io_orientation(image.affine)
    turned = np.asarray(nibabel.orientations.apply_orientation(values, axes_of_body))
    flat = next((axis for axis in (2, 1, 0) if turned.shape[axis] == 1), 2)
    turned_back: NDArray[Any] = turned.squeeze(flat)[::-1, ::-1].T
    return turned_back


def _doubt(image: Any, nibabel: Any) -> str:
    """Why the orientation seems not to be stated, else empty.

    A program that is given an array alone writes codes of 0 (nibabel without an affine) or an identity, perhaps with
    the size of a pixel (nibabel with `np.eye(4)` or `np.diag`), and cutting or centring it moves it. A radiograph has
    no place in a room, so nothing else does, but that an upright file of ITK was turned to RAS (`as_closest_canonical`
    of nibabel, MONAI): then its last pixel is at 0. Who loads a file without an orientation and saves its
    affine again states what nibabel assumed: flipped columns about the middle of the image. SimpleITK's identity is
    diag(-1, -1, 1) here, since its axes run to the left and the back: it lays an array [row, column] on the image as
    it is.
    """
    sform, sform_code = image.header.get_sform(coded=True)
    qform, qform_code = image.header.get_qform(coded=True)
    if not sform_code and not qform_code:
        return "its header states no orientation (sform_code and qform_code are 0)"
    if np.allclose(image.affine, image.header.get_base_affine(), rtol=0, atol=1e-4):
        return "its affine is the one that nibabel assumes for a file without an orientation, and was saved again"
    directions, origin = image.affine[:3, :3], image.affine[:3, 3]
    sides = np.diag(directions)
    tiny = _EXACT * np.abs(directions).max()
    if (sides > 0).all() and np.abs(directions - np.diag(sides)).max() <= tiny:
        last = -sides * (np.array((*image.shape, 1)[:3]) - 1)
        moved = np.abs(origin).max() > tiny
        if not moved or not np.allclose(origin, last, rtol=1e-4, atol=tiny):
            scaled = "" if (sides == 1).all() else " times the size of a pixel"
            elsewhere = ", moved to another place" if moved else ""
            return f"its affine is the identity{scaled}{elsewhere}, which most likely no program stated"
    if sform is not None and qform is not None and sform_code and qform_code:
        codes = [nibabel.aff2axcodes(form) for form in (sform, qform)]
        if codes[0] != codes[1]:
            names = [" ".join(map(str, code)) for code in codes]
            return f"its sform and qform state different orientations, {names[0]} and {names[1]}"
    return ""
