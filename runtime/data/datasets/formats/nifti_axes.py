"""How the array of a NIfTI file lies on its image, and whether somebody stated it (docs/datasets.md §9.9)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError

_EXACT: Final = 1e-6  # of the longest side of a pixel; headers hold numbers of 32 bits
_ASK: Final = (
    "; set the option axes to rows for arrays [row, column] that were saved as they are, or to affine where the header "
    "is right"
)


def oriented(image: Any, axes: str, nibabel: Any) -> NDArray[Any]:
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
    """Why nobody seems to have stated the orientation, else empty.

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
            return f"its affine is the identity{scaled}{elsewhere}, which most likely nobody stated"
    if sform is not None and qform is not None and sform_code and qform_code:
        codes = [nibabel.aff2axcodes(form) for form in (sform, qform)]
        if codes[0] != codes[1]:
            names = [" ".join(map(str, code)) for code in codes]
            return f"its sform and qform state different orientations, {names[0]} and {names[1]}"
    return ""
