"""Annotation objects of which one value is damaged: no message, note, log line or warning holds it."""

from __future__ import annotations

import logging
import shutil
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydicom
import pytest
from dicom_streams import items
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects

CANARY = "ZZCANARY^ZEBRAFISH"
# The names of findings, and of their groups: what a user calls classes by.
NAMES = {"SegmentLabel", "CodeMeaning", "CodeValue", "GraphicLayer"}
# Damaged one after the other, because the reader looks at them; all others are damaged together.
READ = {
    "SOPClassUID", "SOPInstanceUID", "ReferencedSOPInstanceUID", "SegmentationType", "NumberOfFrames", "ValueType",
    "GraphicType", "GraphicAnnotationUnits", "TemplateIdentifier", "SpecificCharacterSet", "PhotometricInterpretation",
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "../ohif/sr_regions": {},
    "../ohif/seg_brush": {},
    "seg_binary": {},
    "seg_fractional": {"threshold": 0.5},
    "sr_tid1500": {"rename": {"Pleural effusion": "Effusion"}},
    "gsps_display_units": {"graphics": "Mass"},
    "parametric_map": {"threshold": 0.5, "maps": "Mass"},
}
TEXTS = {"AE", "AS", "CS", "DA", "DS", "DT", "IS", "LO", "LT", "PN", "SH", "ST", "TM", "UC", "UI", "UR", "UT"}


def elements(data: Dataset) -> Iterator[tuple[Dataset, Any]]:
    """All elements of text, at every depth, and where each is."""
    for element in data:
        if element.VR == "SQ":
            for item in element.value:
                yield from elements(item)
        elif element.VR in TEXTS and element.keyword not in NAMES:
            yield data, element


@pytest.fixture
def world(root: Path, tmp_path: Path) -> Path:
    for place in ("images", "annotations"):
        (tmp_path / place).mkdir()
    shutil.copy(root / "tests/formats/dicom/film.dcm", tmp_path / "images/IM0001")
    return tmp_path


@pytest.mark.parametrize("what", OPTIONS)
def test_no_text_of_a_damaged_object_is_told(
    what: str, root: Path, world: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    path = root / f"tests/formats/dicom/{what}.dcm"
    keywords = dict.fromkeys(element.keyword for _, element in elements(pydicom.dcmread(path)) if element.keyword)
    groups = [{keyword} for keyword in keywords if keyword in READ] + [set(keywords) - READ]
    said = 0
    for group in groups:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = pydicom.dcmread(path)
            for item, element in list(elements(data)):
                if element.keyword in group:  # as bytes, which are written as they are
                    value = CANARY.encode()
                    item._dict[element.tag] = RawDataElement(element.tag, element.VR, len(value), value, 0, False, True)
            data.save_as(world / "annotations/object")
        with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG):
            warnings.simplefilter("always")
            caplog.clear()
            capfd.readouterr()
            try:
                found = DicomObjects(world, **OPTIONS[what])
                texts = [str(note) for note in found.notes] + [str(case.image) for case in found.cases()]
            except DataError as error:
                texts = [str(error), *traceback.format_exception(error)]
                said += 1
        told = [*texts, *(str(one.message) for one in warned), caplog.text, *capfd.readouterr()]
        assert not any("CANARY" in text for text in told), (group, told)
    assert said >= 2


def test_pixels_of_a_mask_in_items(root: Path, world: Path) -> None:
    """Under an uncompressed syntax, of defined and of undefined length."""
    data = pydicom.dcmread(root / "tests/formats/dicom/seg_binary.dcm")
    pixels = data.PixelData
    for value in (items(pixels), pixels + b"\0\0", pixels[:-2]):
        data.PixelData = value
        data.save_as(world / "annotations/object")
        with pytest.raises(
            DataError, match=r"object: its (pixels are in items|PixelData has 65[48] bytes instead of 656)"
        ):
            DicomObjects(world)
