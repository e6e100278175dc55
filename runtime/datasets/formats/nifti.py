"""A folder of NIfTI masks of radiographs (docs/datasets.md §9.9)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ConfigError, DataError, ImageError
from ..mask_run_lengths import check_grid
from .mask_folder import MaskFolder

__all__ = ["NiftiMasks"]


class NiftiMasks(MaskFolder):
    """`<root>/masks/<class>/<image>.nii.gz` beside `<root>/images/`, or other names by the option `files`.

    The affine says how the mask lies on the image: columns run to the patient's left, rows to the feet or the back.
    """

    name = "nifti"
    title = "NIfTI"
    form = "{class}/{image}.nii.gz"
    option_help: ClassVar[Mapping[str, str]] = {
        **{key: text.replace(".png", ".nii.gz") for key, text in MaskFolder.option_help.items()},
        "axes": "auto (default): as the affine says, an identity is refused; affine: also an identity; rows: arrays "
        "[row, column] that were saved as they are",
    }

    @cached_property
    def axes(self) -> str:
        """The option `axes`."""
        return self.choice_option("axes", ("auto", "affine", "rows"), "auto")

    def _load(self, path: Path) -> NDArray[Any]:
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
            image = nibabel.load(path)
            if not isinstance(image, nibabel.Nifti1Image):
                raise ImageError("it is no NIfTI file")
            sides = [side for side in image.shape if side != 1]
            if len(sides) > 2 or len(image.shape) < 2:
                raise ImageError(f"its shape is {' x '.join(map(str, image.shape))}, not that of one slice")
            check_grid(*image.shape[:2])
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
        labels = np.rint(values)
        if not np.array_equal(labels, values) or labels.min(initial=0) < 0:
            raise ImageError("it holds other values than whole numbers from 0 on, so it is no mask")
        return np.asarray(labels.astype(np.int64))


def _oriented(image: Any, axes: str, nibabel: Any) -> NDArray[Any]:
    """The values [row, column]."""
    if axes == "rows":
        return np.asarray(image.dataobj).reshape(image.shape[:2])
    if axes == "auto" and np.array_equal(image.affine, np.eye(4)):
        raise ImageError(
            "its affine is the identity, which most likely nobody stated; set the option axes to rows for arrays "
            "[row, column] that were saved as they are, or to affine"
        )
    whole = image.shape + (1,) * (3 - len(image.shape))
    turned = nibabel.as_closest_canonical(type(image)(np.asarray(image.dataobj).reshape(whole), image.affine))
    values = np.asarray(turned.dataobj)
    flat = next((axis for axis in (2, 1, 0) if values.shape[axis] == 1), 2)
    turned_back: NDArray[Any] = values.squeeze(flat)[::-1, ::-1].T
    return turned_back
