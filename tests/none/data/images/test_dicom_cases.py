"""Files as scanners and archives wrote them: `tests/cases/dicom-*`, each with what is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import read_grey

RISING = np.arange(16).reshape(4, 4) * 17


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("compressed-unused-bits", "f"),
        ("compressed-unused-bits", "f_jls"),
        ("compressed-unused-bits", "f_j2k"),
        ("jpeg-lossless-8-in-16", "f"),
        ("jpeg-lossless-modulo", "f"),
        ("without-preamble", "nopreamble"),
        ("without-preamble", "raw"),
    ],
)
def test_the_pixels_are_those_of_the_uncompressed_file(root: Path, case: str, name: str) -> None:
    folder = root / f"tests/cases/dicom-{case}"
    np.testing.assert_array_equal(read_grey(folder / f"{name}.dcm"), read_grey(folder / "native.dcm"))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("lut-data-signed-vr", RISING),
        ("voi-lut-negative-first-implicit", RISING),
        ("voi-lut-ow-big-endian", 255 - RISING),
    ],
)
def test_the_levels_are_those_of_the_table(root: Path, case: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(read_grey(root / f"tests/cases/dicom-{case}/f.dcm"), expected)


def test_items_in_an_uncompressed_syntax_are_refused(root: Path) -> None:
    with pytest.raises(ImageError, match="its pixels are in items, although its transfer syntax is uncompressed"):
        read_grey(root / "tests/cases/dicom-encapsulated-in-native-syntax/f.dcm")
    assert read_grey(root / "tests/cases/dicom-encapsulated-in-native-syntax/native.dcm").any()


def test_a_transfer_syntax_of_the_wrong_length_is_not_quoted(root: Path) -> None:
    path = root / "tests/cases/dicom-error-quotes-bytes/f.dcm"
    with pytest.raises(ImageError) as found:
        read_grey(path)
    assert str(found.value) == (
        f"{path} cannot be read: its TransferSyntaxUID is not a valid identifier, the file is damaged."
    )
