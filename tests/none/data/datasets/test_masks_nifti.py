"""NIfTI masks: orientations that nobody stated, forms of files, and kinds of values (docs/formats.md §9.9)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.formats.nifti import NiftiMasks

nibabel = pytest.importorskip("nibabel")

INSIDE = np.zeros((12, 12), np.bool_)  # square, so that no size tells a turned mask
INSIDE[2:5, 1:9] = True
ARRAY = INSIDE.T.astype(np.uint8)[..., None]
LPS = np.diag([-1.0, -1, 1, 1])
MOVED = np.array([[0.2, 0, 0, -5], [0, 0.2, 0, -7], [0, 0, 1, 0], [0, 0, 0, 1]])
CENTRED = np.array([[1, 0, 0, -5.5], [0, 1, 0, -5.5], [0, 0, 1, 0], [0, 0, 0, 1]])
ROWS = "; set the option axes to rows for arrays [row, column] that were saved as they are, or to affine"
Made = Callable[[Path], None]


def saved(image: Any) -> Made:
    return lambda path: nibabel.save(image, path)


def write(path: Path, content: bytearray) -> None:
    path.write_bytes(content)


def coded(values: Any, sform: Any, codes: tuple[int, int], qform: Any = None) -> Made:
    image = nibabel.Nifti1Image(values, sform)
    image.set_sform(sform, codes[0])
    image.set_qform(sform if qform is None else qform, codes[1])
    return saved(image)


def scaled(path: Path) -> None:
    """Bytes of 0 and 255 with a slope of 1 / 255 in the header, which 32 bits cannot hold exactly."""
    image = nibabel.Nifti1Image(ARRAY.astype(np.float32), LPS)
    image.set_data_dtype(np.uint8)
    nibabel.save(image, path)


def opened(root: Path, make: Made, ending: str = ".nii.gz", **options: Any) -> NiftiMasks:
    (root / "masks/Mass").mkdir(parents=True)
    (root / "images").mkdir()
    (root / "images/a.png").write_bytes(encode(np.eye(12, dtype=np.uint8), "PNG"))
    make(root / f"masks/Mass/a{ending}")
    return NiftiMasks(root, **{"files": f"{{class}}/{{image}}{ending}"} | options)


N1, N2 = nibabel.Nifti1Image, nibabel.Nifti2Image


@pytest.mark.parametrize(
    ("make", "ending"),
    [
        (saved(N1(ARRAY, LPS)), ".nii.gz"),
        (saved(N1(ARRAY, LPS)), ".nii"),
        (saved(N2(ARRAY, LPS)), ".nii.gz"),
        (saved(nibabel.Nifti1Pair(ARRAY, LPS)), ".hdr"),
        (saved(nibabel.Nifti1Pair(ARRAY, LPS)), ".img"),
        (saved(N1(ARRAY[..., 0], LPS)), ".nii.gz"),
        (saved(N1(ARRAY[..., None, None], LPS)), ".nii.gz"),
        (coded(ARRAY, LPS, (0, 1)), ".nii.gz"),
        (saved(N1(ARRAY, np.diag([-0.14, -0.14, 1, 1]))), ".nii.gz"),
        (saved(nibabel.as_closest_canonical(N1(ARRAY, LPS))), ".nii.gz"),  # as MONAI's Orientation("RAS") writes it
        (saved(nibabel.as_closest_canonical(N1(ARRAY, np.diag([-0.14, -0.2, 1, 1])))), ".nii.gz"),
        (saved(N1(ARRAY * 255, LPS)), ".nii.gz"),
        (saved(N1(ARRAY.astype(np.int64), LPS, dtype=np.int64)), ".nii.gz"),
        (saved(N1((ARRAY * 0.9995).astype(np.float32), LPS)), ".nii.gz"),
        (scaled, ".nii.gz"),
    ],
)  # fmt: skip
def test_what_a_file_states_is_read(tmp_path: Path, make: Made, ending: str) -> None:
    dataset = opened(tmp_path, make, ending)
    np.testing.assert_array_equal(dataset.cases()[0].regions["Mass"].mask(12, 12), INSIDE)
    assert not dataset.notes
    pair = {".hdr": ".img", ".img": ".hdr"}.get(ending)
    assert [path.suffix for path in dataset.sources()] == ([ending, pair] if pair else [Path(f"a{ending}").suffix])
    assert all(path.is_file() for path in dataset.sources())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (saved(N1(ARRAY, None)), "its header states no orientation (sform_code and qform_code are 0)"),
        (saved(N2(ARRAY, None)), "its header states no orientation (sform_code and qform_code are 0)"),
        (coded(ARRAY, LPS, (0, 0)), "its header states no orientation (sform_code and qform_code are 0)"),
        (saved(N1(ARRAY, np.eye(4))), "its affine is the identity, which"),
        (coded(ARRAY, np.eye(4), (0, 1)), "its affine is the identity, which"),
        (saved(N1(ARRAY, np.diag([0.14, 0.14, 1, 1]))), "its affine is the identity times the size of a pixel, which"),
        (
            saved(N1(ARRAY, MOVED)),
            "its affine is the identity times the size of a pixel, moved to another place, which",
        ),
        (saved(N1(ARRAY, CENTRED)), "its affine is the identity, moved to another place, which most likely no pro"),
        (
            saved(N1(np.pad(ARRAY, ((2, 0), (1, 0), (0, 0))), np.eye(4)).slicer[2:, 1:]),
            "its affine is the identity, moved to another place, which",
        ),
        (
            saved(N1(ARRAY, N1(ARRAY, None).header.get_base_affine())),
            "its affine is the one that nibabel assumes for a file without",
        ),
        (
            coded(ARRAY, LPS, (2, 1), np.diag([1.0, 1, 1, 1])),
            "its sform and qform state different orientations, L P S ",
        ),
    ],
)
def test_what_nobody_stated_is_refused_until_somebody_does(tmp_path: Path, make: Made, sentence: str) -> None:
    with pytest.raises(DataError) as told:
        opened(tmp_path, make)
    assert sentence in str(told.value) and ROWS in str(told.value) and "Mass/a.nii.gz" in str(told.value)
    for axes in ("rows", "affine"):
        assert NiftiMasks(tmp_path, axes=axes).cases()[0].regions["Mass"].mask(12, 12).sum() == 24


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (saved(N1(np.repeat(ARRAY[..., None], 2, 3), LPS)), {}, "its shape is 12 x 12 x 1 x 2, not the shape of one"),
        (saved(N1(ARRAY[:, None, :, 0][:, :, None], LPS)), {}, "its shape is 12 x 1 x 1 x 12, not the shape of one"),
        (saved(N1(ARRAY[:, :, None], LPS)), {"axes": "rows"}, ""),
        (saved(N1(ARRAY[None, ..., 0], LPS)), {"axes": "rows"}, r"its shape is 1 x 12 x 12, not \[row, column\]"),
        (saved(N1(ARRAY.astype(np.complex64), LPS)), {}, "its pixels are of the type complex64, not numbers"),
        (saved(N1((ARRAY * 0.7).astype(np.float32), LPS)), {}, "whole numbers from 0 on, .* set the option threshold"),
        (saved(N1((ARRAY * 0.998).astype(np.float32), LPS)), {}, "whole numbers from 0 on"),
        (saved(N1(np.where(ARRAY, 1, np.nan).astype(np.float32), LPS)), {"threshold": 0.5}, "no finite number"),
        (saved(nibabel.Spm99AnalyzeImage(ARRAY.astype(np.int16), LPS)), {"files": "{class}/{image}.hdr"}, "no NIfTI"),
        (saved(N1((ARRAY * 0.0009).astype(np.float32), LPS)), {}, "whole numbers, from 0 up to 0.0009; set the option"),
        (saved(N1(ARRAY + 1, LPS)), {}, "none of its 2 values is 0, .*; set the option threshold, or values"),
    ],
)  # fmt: skip
def test_what_is_no_mask(tmp_path: Path, make: Made, options: dict[str, Any], sentence: str) -> None:
    ending = ".hdr" if "files" in options else ".nii.gz"
    if not sentence:
        assert opened(tmp_path, make, **options).cases()[0].regions["Mass"].mask(12, 12).sum() == 24
        return
    with pytest.raises(DataError, match=rf"The mask .* cannot be read: .*{sentence}"):
        opened(tmp_path, make, ending, **options)


def test_what_the_library_has_to_say_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    image = nibabel.Nifti1Image(ARRAY, LPS)
    nibabel.save(image, tmp_path / "a.nii")
    content = bytearray((tmp_path / "a.nii").read_bytes())
    content[108:112], content[352:352] = np.float32(360).tobytes(), bytes(8)
    dataset = opened(tmp_path, lambda path: write(path, content), ".nii")
    assert dataset.cases()[0].regions["Mass"].mask(12, 12).sum() == 24
    content[70:72] = np.int16(12345).tobytes()
    write(tmp_path / "masks/Mass/a.nii", content)
    with pytest.raises(DataError, match=r"a\.nii cannot be read: it is damaged \(data code 12345 not recognized\)"):
        NiftiMasks(tmp_path, files="{class}/{image}.nii")
    assert not caplog.records
    nibabel.imageglobals.logger.warning("of another file")
    assert len(caplog.records) == 1


def test_an_affine_without_three_directions(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(ARRAY, LPS)
    image.header["srow_x"] = image.header["srow_y"]
    image.header["sform_code"] = 2

    def write(path: Path) -> None:
        with __import__("gzip").open(path, "wb") as stream:
            stream.write(image.header.binaryblock + bytes(4) + ARRAY.tobytes())

    image.header["vox_offset"], image.header["magic"] = 352, b"n+1"
    with pytest.raises(DataError, match="its affine states no three directions; set the option axes to rows"):
        opened(tmp_path, write, axes="affine")


def test_probabilities_need_a_threshold(tmp_path: Path) -> None:
    values = (ARRAY * 0.7 + 0.1).astype(np.float32)
    dataset = opened(tmp_path, saved(N1(values, LPS)), threshold=0.5)
    np.testing.assert_array_equal(dataset.cases()[0].regions["Mass"].mask(12, 12), INSIDE)
    assert not dataset.notes


def test_other_forms_of_a_file_are_counted(tmp_path: Path) -> None:
    opened(tmp_path, saved(N1(ARRAY, LPS)))
    nibabel.save(N1(ARRAY, LPS), tmp_path / "masks/Mass/a.nii")
    nibabel.save(nibabel.Nifti1Pair(ARRAY, LPS), tmp_path / "masks/Mass/a.hdr")
    for ending, others in ((".nii.gz", 3), (".nii", 3), (".hdr", 2)):
        (note,) = NiftiMasks(tmp_path, files=f"{{class}}/{{image}}{ending}").notes
        assert note.kind == "other_file" and note.text.endswith(f"not used: {others}")


def test_the_case_of_an_orientation_that_nobody_stated(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "tests/cases/nifti-no-orientation-stated", tmp_path / "x")
    with pytest.raises(DataError, match=r"states no orientation .*; set the option axes to rows"):
        NiftiMasks(tmp_path / "x")
    mask = NiftiMasks(tmp_path / "x", axes="rows").cases()[0].regions["Mass"].mask(64, 64)
    assert mask.sum() == 450 and mask[20:35, 10:40].all()
