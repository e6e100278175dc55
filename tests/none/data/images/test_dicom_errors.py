"""No message about a DICOM file holds a value of it: in a damaged file any value can be a patient's name."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dicom_streams import BIG_ENDIAN, ENCODERS, EXPLICIT, IMPLICIT, JPEG, RUN_LENGTHS, Entry, film, items, written
from xbench_fast.engines.errors import ImageError, XBenchError
from xbench_fast.runtime.data.datasets.attributes.lookup import read_header
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_files import dicom_files, read_object
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.size import image_size

CANARY = "ZZCANARY^ZEBRAFISH"
TABLE: list[list[Entry]] = [[(0x00283002, "US", [4, 0, 16]), (0x00283006, "US", [1, 2, 3, 4])]]
ELEMENTS: dict[str, Any] = {
    "x00080005": ("CS", "ISO_IR 100"),
    "x00100010": ("PN", CANARY),
    "x00100020": ("LO", CANARY),
    "x00280008": ("IS", "1"),
    "x00280120": ("US", [0]),
    "x00281050": ("DS", "3"),
    "x00281051": ("DS", "9"),
    "x00281052": ("DS", "0"),
    "x00281053": ("DS", "1"),
    "x00281056": ("CS", "LINEAR"),
    "x00283000": ("SQ", TABLE),
    "x00283010": ("SQ", TABLE),
}
PIXELS = bytes(range(84))


@contextmanager
def overheard(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Fails if warnings, log lines or what is printed hold the canary."""
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG):
        warnings.simplefilter("always")
        yield
    told = [str(one.message) for one in warned] + [caplog.text, *capfd.readouterr()]
    assert not any("CANARY" in text for text in told), told


def refused(path: Path) -> list[str]:
    """What every reader of a DICOM file says of `path`, with the tracebacks that a log would show."""
    found = []
    for reader in (
        lambda: decode_grey(path.read_bytes(), "a.dcm"),
        lambda: image_size(path),
        lambda: read_header(path),
        lambda: list(dicom_files(path.parent)),
        lambda: read_object(path),
        lambda: read_object(path, "PatientID"),
    ):
        try:
            reader()
        except XBenchError as error:
            found += [str(error), *traceback.format_exception(error)]
    return found


def damaged() -> Iterator[tuple[str, bytes]]:
    """A film of which one element has a value that is not its own, in every way of writing one."""
    canary = CANARY.encode()
    for syntax in (IMPLICIT, EXPLICIT, BIG_ENDIAN):
        plain = film((6, 7), PIXELS, **ELEMENTS)
        for tag, vr, _ in plain:
            name = f"x{tag:08X}"
            for wrong in {vr, "LO", "UN", "US", "DS", "SQ", "CS"}:
                value: Any = [[(0x00100010, "PN", canary)]] if wrong == "SQ" else canary
                changed = {**ELEMENTS, name: (wrong, value)}
                yield f"{syntax} {name} {wrong}", written(film((6, 7), PIXELS, **changed), syntax)
                if wrong in ("DS", "CS"):
                    changed = {**ELEMENTS, name: (wrong, f"3\\{CANARY}")}
                    yield f"{syntax} {name} {wrong} 2", written(film((6, 7), PIXELS, **changed), syntax)


def test_no_reader_quotes_a_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    path, said, tried = tmp_path / "film.dcm", 0, 0
    for name, data in damaged():
        path.write_bytes(data)
        with overheard(caplog, capfd):
            texts = refused(path)
        caplog.clear()
        assert not any("CANARY" in text or "pydicom" in text for text in texts), (name, texts)
        said += bool(texts)
        tried += 1
    assert tried > 300 and said > 150


@pytest.mark.parametrize("syntax", sorted(set(ENCODERS) - {IMPLICIT, EXPLICIT, BIG_ENDIAN}))
def test_no_codec_quotes_a_value(
    syntax: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = ENCODERS[syntax].encode(8)
    path = tmp_path / "film.dcm"
    canary = CANARY.encode()
    starts = range(0, len(frame) - len(canary), 1 if syntax in (RUN_LENGTHS, f"{JPEG}.80", f"{JPEG}.90") else 9)
    for start in starts[:120]:
        broken = frame[:start] + canary + frame[start + len(canary) :]
        path.write_bytes(written(film((24, 32), b"", 8, 8, x7FE00010=("OB*", items(broken))), syntax))
        with overheard(caplog, capfd):
            texts = refused(path)
        assert not any("CANARY" in text for text in texts), texts


@pytest.mark.parametrize(
    "value",
    [
        "1.2.840.10008.1.2.4.90" + CANARY,
        CANARY,
        "1.2.840.10008.1.2.1\\" + CANARY,
        "1" * 70 + ".2",
        ".1.2",
        "1..2",
        "1.",
    ],
)
def test_only_a_valid_identifier_is_quoted(value: str, tmp_path: Path) -> None:
    path = tmp_path / "film.dcm"
    path.write_bytes(written(film((6, 7), PIXELS), value))
    texts = refused(path)
    assert all(
        "its TransferSyntaxUID is not a valid identifier, the file is damaged" in text
        for text in texts
        if "\n" not in text
    )
    with pytest.raises(ImageError, match=r"its transfer syntax 1\.2\.3 is not read"):
        decode_grey(written(film((6, 7), PIXELS), "1.2.3"), "a.dcm")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x00280004": ("CS", "DOE^JANE")}, "its PhotometricInterpretation is not one that DICOM defines"),
        ({"x00280004": ("CS", "PALETTE COLOR")}, "its PhotometricInterpretation is PALETTE COLOR, only MONOCHROME1"),
        ({"x00281056": ("CS", "DOE^JANE")}, "its VOILUTFunction is not one that DICOM defines"),
        ({"x00280008": ("IS", "DOE^JANE")}, "its NumberOfFrames is not a number"),
        ({"x00280008": ("IS", "1\\2")}, "its NumberOfFrames is not one whole number"),
        ({"x00280010": ("DS", "6.5")}, "its Rows is not one whole number"),
        ({"x00280103": ("US", [7])}, "its PixelRepresentation is 7, not 0 or 1"),
        ({"x00281050": ("DS", "nan")}, "its WindowCenter is not a number"),
        ({"x00280120": ("US", b"123")}, "its PixelPaddingValue is not a number"),
        ({"x00283010": ("LO", CANARY), "x00281050": None}, "its VOILUTSequence is damaged"),
    ],
)
def test_what_is_wrong_is_named_by_its_keyword(changes: dict[str, Any], sentence: str) -> None:
    data = written(film((6, 7), PIXELS, **{**ELEMENTS, "x00283000": None, **changes}))
    with pytest.raises(ImageError, match=rf"^a\.dcm cannot be read: {sentence}"):
        decode_grey(data, "a.dcm")


@pytest.mark.parametrize(
    "place", ["pydicom.filereader.read_dataset", "xbench_fast.runtime.data.images.dicom.dicom_grey.grey_levels"]
)
def test_no_exception_of_a_library_is_told(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError(CANARY)

    path = tmp_path / "film.dcm"
    path.write_bytes(written(film((6, 7), PIXELS)))
    monkeypatch.setattr(place, fails)
    texts = refused(path)
    assert any("(ValueError)" in text for text in texts) and not any("CANARY" in text for text in texts)


def test_an_attribute_at_the_end_of_a_cut_file_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "film.dcm"
    whole = written([(0x00080016, "UI", "1.2"), (0x00080070, "LO", "Philips Medical")])
    for end, known in ((len(whole), {"manufacturer": "Philips Medical"}), (len(whole) - 6, {})):
        path.write_bytes(whole[:end])
        assert read_header(path) == known


def test_numbers_are_read_however_they_are_written() -> None:
    plain = decode_grey(written(film((6, 7), PIXELS, **ELEMENTS)), "a.dcm")
    for changes in (
        {"x00280010": ("UL", [6]), "x00280011": ("IS", "7"), "x00280100": ("SS", [16])},
        {"x00280010": ("DS", "6.0"), "x00280011": ("UN", b"\7\0"), "x00280008": ("IS", "1 ")},
        {"x00281050": ("DS", "3\\100"), "x00281051": ("FD", [9.0, 7.0]), "x00281056": ("CS", "linear")},
    ):
        changed = written(film((6, 7), PIXELS, **{**ELEMENTS, **changes}))
        assert (decode_grey(changed, "a.dcm") == plain).all()
