"""What objects take from the header of a film, what they say of themselves, and films that get none."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dicom_films
import pytest
from dicom_answers import ANSWERS, MODEL, objects, read, tool
from dicom_films import CANARY, Raw
from PIL import Image
from xbench_fast.engines.errors import ConfigError, ImageError
from xbench_fast.runtime.reporting.dicom.dicom_object import KINDS, DicomObject
from xbench_fast.runtime.reporting.dicom.film_header import FilmHeader
from xbench_fast.runtime.reporting.dicom.film_objects import ObjectOptions, film_objects

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("highdicom")
Made = Mapping[str, list[DicomObject]]
METHOD = "LossyImageCompressionMethod"
PLANE: dict[str, Any] = {
    "FrameOfReferenceUID": "1.2.3.9",
    "ImagePositionPatient": [3, 4, 5],
    "ImageOrientationPatient": [1, 0, 0, 0, 0, -1],
}


def test_every_object_is_marked_and_names_what_made_it(made: Made) -> None:
    for name in dicom_films.NAMES:
        for item in made[name]:
            data = read(item)
            assert data.SeriesDescription.startswith("RESEARCH USE ONLY, STAND-IN WEIGHTS")
            assert len(data.SeriesDescription) <= 64 and 9001 <= data.SeriesNumber <= 9005
            assert data.DeviceSerialNumber == MODEL.digest and data.ManufacturerModelName == MODEL.name
            assert data.SpecificCharacterSet == "ISO_IR 192" and str(data.file_meta.TransferSyntaxUID)[:17] == (
                "1.2.840.10008.1.2"
            )
            if item.kind == "report":
                flags = (data.CompletionFlag, data.PreliminaryFlag, data.VerificationFlag)
                assert flags == ("PARTIAL", "PRELIMINARY", "UNVERIFIED")
            else:
                assert data.ImageComments.startswith("RESEARCH USE ONLY. STAND-IN WEIGHTS.")
            if item.kind == "overlay":
                assert data.BurnedInAnnotation == "YES"
            if item.kind == "map":
                assert data.ContentQualification == "RESEARCH"
            if item.kind in ("mask", "fractions"):
                (identified,) = data.SegmentSequence[0].SegmentationAlgorithmIdentificationSequence
                said = identified.AlgorithmParameters
                for text in (MODEL.digest, MODEL.prompt_digest, "0.7", "fp32", "onnxruntime-cpu"):
                    assert text in said


def test_the_film_is_left_out_of_view_and_what_is_taken_is_listed(made: Made) -> None:
    """Only attributes of the allow-list carry values of the film's; the rest of its header is nowhere."""
    for name in dicom_films.NAMES:
        film = pydicom.dcmread(io.BytesIO(dicom_films.film(name)))
        for item in made[name]:
            data = read(item)
            canaries = {
                element.keyword for element in data.iterall() if element.VR != "SQ" and CANARY in str(element.value)
            }
            assert canaries <= {"PatientName", "PatientID", "AccessionNumber", "ReferringPhysicianName"}
            for keyword in ("PatientName", "PatientID", "AccessionNumber", "StudyInstanceUID"):
                assert data[keyword].value == film[keyword].value
            for keyword in ("StudyDate", "StudyTime", "StudyID", "PatientBirthDate", "PatientSex", "StudyDescription"):
                assert data.get(keyword) or film.get(keyword, "") == ""
            assert data.SeriesInstanceUID == item.series_uid != film.SeriesInstanceUID
            assert "PatientAge" not in data and "Laterality" not in data
            if item.kind in ("overlay", "mask", "fractions"):
                assert (data.PatientOrientation or "") == (film.get("PatientOrientation") or "")
            if item.kind in ("overlay", "report"):  # which have no plane
                assert not {"FrameOfReferenceUID", "ImagePositionPatient"} & set(data.dir())
            if item.kind != "report":
                assert data.get("LossyImageCompression") == film.get("LossyImageCompression") or name != "sc"
    frames = {read(item).get("FrameOfReferenceUID") for item in made["sc"]}
    assert len(frames - {None}) == 1  # one for masks and maps; the overlay and the report have none
    assert frames & {read(item).get("FrameOfReferenceUID") for item in made["inverted"]} == {None}


@pytest.mark.parametrize(
    ("name", "characters"),
    [("Yamada^Tarou=山田^太郎=やまだ^たろう", "ISO_IR 192"), ("Müller^Jörg", "ISO_IR 100"), ("", "ISO_IR 100")],
)
def test_names_in_other_scripts_survive(name: str, characters: str) -> None:
    for item in objects("sc", PatientName=name, SpecificCharacterSet=characters):
        assert str(read(item).PatientName) == name


def test_a_film_with_a_plane_keeps_it() -> None:
    (item,) = [one for one in objects("sc", **PLANE) if one.kind == "map" and one.finding == "Effusion"]
    data = read(item)
    assert data.FrameOfReferenceUID == "1.2.3.9"
    partly = objects("sc", FrameOfReferenceUID="1.2.3.9")[2]
    assert read(partly).FrameOfReferenceUID not in ("1.2.3.9", None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Modality": "CT"}, "its Modality is none of CR, DX, RG and OT"),
        ({"Modality": CANARY}, "its Modality is none of CR, DX, RG and OT"),
        ({"NumberOfFrames": 2}, "2 frames|several frames"),
        ({"StudyInstanceUID": None}, "its StudyInstanceUID is absent"),
        ({"SeriesInstanceUID": ""}, "its SeriesInstanceUID is absent"),
        ({"SOPClassUID": "1.2.826.0.1"}, "its SOPClassUID is private"),
    ],
)
def test_what_is_no_film_is_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ImageError, match=words) as caught:
        FilmHeader.read(dicom_films.film("sc", **changes), "scan.dcm")
    assert str(caught.value).startswith("scan.dcm ") and str(caught.value).endswith(".")
    assert CANARY not in str(caught.value) and caught.value.__suppress_context__


def test_private_syntaxes_and_pictures_are_refused_in_a_sentence() -> None:
    data = pydicom.dcmread(io.BytesIO(dicom_films.film("sc")))
    data.file_meta.TransferSyntaxUID = "1.2.826.0.1.3680043.10.1.1"
    stream, picture = io.BytesIO(), io.BytesIO()
    data.save_as(stream, implicit_vr=False, little_endian=True)
    Image.new("L", (300, 300)).save(picture, "PNG")
    for content, words in ((stream.getvalue(), "transfer syntax"), (picture.getvalue(), "it is no DICOM file")):
        with pytest.raises(ImageError, match=words):
            FilmHeader.read(content, "scan.dcm")


@pytest.mark.parametrize(
    "changes",
    [
        {"PatientBirthDate": "1.3.1950"}, {"PatientSex": "female"}, {"StudyDate": "2004.08.26"}, {"StudyTime": "noon"},
        {"PatientOrientation": ["L"]}, {"PatientOrientation": "LFH"}, {"BodyPartExamined": None},
        {"PixelSpacing": None, "ImagerPixelSpacing": [0.2, 0.3]}, {"StudyID": "x" * 40}, {"PatientName": "a" * 90},
        {"PatientName": "a\\b"}, {"PatientID": ["a", "b"]}, {"LossyImageCompressionRatio": Raw("many")},
    ],
)  # fmt: skip
def test_odd_headers_give_objects(changes: dict[str, Any]) -> None:
    items = objects("undated", **changes)
    assert len(items) == 9
    for keyword in {"PatientName", "PatientID"} & changes.keys():
        written = pydicom.dcmread(io.BytesIO(dicom_films.film("undated", **changes)))[keyword].value
        assert all(read(item)[keyword].value == written for item in items)
    spacing = read(items[2]).SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].PixelSpacing
    assert list(spacing) == ([0.2, 0.3] if "ImagerPixelSpacing" in changes else [1, 1])


ODD: list[dict[str, Any]] = [
    {"PatientOrientation": ["LFH", "FPR"]}, {"PatientOrientation": ["l", "f"]}, {"PatientOrientation": ["L", "L"]},
    {"PatientOrientation": ["ZZ", "QQ"]}, {"PatientBirthDate": "00000000", "StudyDate": "20200231"},
    {"StudyTime": "250000"}, {"StudyTime": "235960"}, {"BodyPartExamined": "chest"}, {"BodyPartExamined": "x" * 40},
    {"BodyPartExamined": ["CHEST", "RIB"]}, {"BodyPartExamined": "hand"}, {"BodyPartExamined": "PORT CHEST"},
    {"PixelSpacing": Raw("0,143\\0,143")}, {"PixelSpacing": Raw("inf\\inf")}, {"PixelSpacing": Raw("0.1")},
    {"LossyImageCompression": "YES"}, {METHOD: CANARY},
    PLANE | {"ImageOrientationPatient": [1, 1, 1, 1, 1, 1]}, PLANE | {"ImageOrientationPatient": [1, 0, 0, 0]},
    PLANE | {"ImagePositionPatient": Raw("nan\\0\\0")}, PLANE | {"FrameOfReferenceUID": "abc"},
    PLANE | {"SliceThickness": "-3", "PositionReferenceIndicator": CANARY},
]  # fmt: skip


@pytest.mark.parametrize("changes", ODD, ids=lambda changes: "+".join(changes))
def test_odd_values_leave_no_error_in_objects(changes: dict[str, Any], tmp_path: Path) -> None:
    """A film of each gets all objects, and the validator finds no error that is the film's."""
    film = FilmHeader.read(dicom_films.film("inverted", (60, 60), **changes), "the film")
    for item in film_objects(film, ANSWERS[:1], MODEL, ObjectOptions(("overlay", "mask", "report", "map"))):
        data = read(item)
        assert not any(CANARY in str(data.get(name)) for name in ("PositionReferenceIndicator", METHOD))
        part = {"hand": "HAND", "PORT CHEST": "PORT CHEST"}.get(str(changes.get("BodyPartExamined")), "CHEST")
        assert data.get("BodyPartExamined", part) == part
        if item.kind in ("mask", "map"):
            assert data.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].SliceThickness > 0
        (tmp_path / "object.dcm").write_bytes(item.content)
        done = subprocess.run([tool("dciodvfy"), "-new", tmp_path / "object.dcm"], capture_output=True, text=True)
        assert not [line for line in done.stderr.splitlines() if line.startswith("Error")], done.stderr


def test_the_header_stays_without_the_patient() -> None:
    """Of it highdicom makes warnings and messages; an object must not write into it."""
    film = FilmHeader.read(dicom_films.film("sc"), "the film")
    film_objects(film, ANSWERS, MODEL, ObjectOptions(KINDS))
    assert CANARY not in str(film.header) + str(film.plain) and film.study["PatientID"] == f"{CANARY}-4711"


def test_every_code_is_in_the_dictionary_or_private() -> None:
    from pydicom.sr._concepts_dict import concepts
    from xbench_fast.runtime.reporting.dicom.finding_codes import VERIFIED, finding_code

    for value, scheme, meaning in VERIFIED.values():
        assert meaning in {entry[value][0] for entry in concepts[scheme].values() if value in entry}, (
            scheme,
            value,
            meaning,
        )
    private = finding_code("Größe des Herzens")
    assert private.scheme_designator == "99XBENCH" and len(private.value) <= 16
    assert private != finding_code("Herz") and len(finding_code("x" * 300).meaning) == 64


def test_unknown_kinds_and_no_answer_are_refused() -> None:
    film = FilmHeader.read(dicom_films.film("sc"), "the film")
    with pytest.raises(ConfigError, match="did you mean 'mask'"):
        film_objects(film, ANSWERS, MODEL, ObjectOptions(("masks",)))
    with pytest.raises(ConfigError, match="at least one finding"):
        film_objects(film, [], MODEL, ObjectOptions())
