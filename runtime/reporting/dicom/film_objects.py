"""The DICOM objects of a film's answers, whole and checked (docs/dicom.md)."""

from __future__ import annotations

import datetime
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....engines.errors import ConfigError, DataError, MissingExtraError, XBenchError
from ....engines.extras import missing_package
from ....engines.registry import did_you_mean
from ...data.images.dicom.open_dicom import silence_pydicom
from .dicom_object import DEFAULT_KINDS, KINDS, DicomObject
from .drawn_objects import RESEARCH, Making, fractions_object, map_object, mask_object, overlay_object
from .film_answer import FindingAnswer
from .film_header import FilmHeader
from .header_values import UNPAIRED
from .identity import ModelIdentity, ObjectIdentity
from .report_object import report_object

_SERIES: Final = 9001  # of the first kind: high, so that hanging protocols do not open it before the film
_DRAWN: Final[Mapping[str, Callable[[Making, FindingAnswer, int], Any]]] = {
    "overlay": overlay_object,
    "mask": mask_object,
    "fractions": fractions_object,
    "map": map_object,
}
_CLOCK: Final = {
    "InstanceCreationDate": "DA", "InstanceCreationTime": "TM", "ContentDate": "DA", "ContentTime": "TM",
    "DateOfSecondaryCapture": "DA", "TimeOfSecondaryCapture": "TM", "ContributionDateTime": "DT",
    "ObservationDateTime": "DT", "PresentationCreationDate": "DA", "PresentationCreationTime": "TM",
    "SeriesDate": "DA", "SeriesTime": "TM",
}  # fmt: skip
"""Attributes that say when an object was made. Two objects that differ in these alone are the same."""


@dataclass(frozen=True)
class ObjectOptions:
    """kinds: of `KINDS`. tau: the threshold that gave the masks and boxes of the answers. clock: when the objects are
    made, with the time of the machine if None."""

    kinds: tuple[str, ...] = DEFAULT_KINDS
    tau: float = 0.5
    clock: datetime.datetime | None = None


def film_objects(
    film: FilmHeader, answers: Sequence[FindingAnswer], model: ModelIdentity, options: ObjectOptions
) -> list[DicomObject]:
    """The objects of a film: for each answer those with pixels, and one report of all answers.

    Raises ConfigError for an unknown kind and no answer, DataError when an object cannot be made, MissingExtraError
    without highdicom.
    """
    for kind in options.kinds:
        if kind not in KINDS:
            raise ConfigError(f"There is no kind of DICOM object '{kind}': {did_you_mean(kind, KINDS)}.")
    if not answers:
        raise ConfigError("A film without an answer has no DICOM object; ask for at least one finding.")
    making = Making(film, model, ObjectIdentity(model, film.uid, options.tau))
    clock = options.clock or datetime.datetime.now().astimezone()
    try:
        silence_pydicom()
        return list(_objects(making, answers, options, clock))
    except ImportError as error:
        raise MissingExtraError(missing_package(error.name or "highdicom", "dicom", user="A DICOM object")) from error
    except (XBenchError, MemoryError):
        raise
    # highdicom checks values of the film's header, and its messages quote them.
    except Exception as error:
        raise DataError(
            f"The film {film_label(film.uid)} gets no DICOM objects: its header or its answer has a value that cannot "
            f"be written ({type(error).__name__}); correct the header."
        ) from None


def film_label(uid: str) -> str:
    """What names a film in messages: the first 12 digits of the SHA-256 of its UID, by which nobody is found."""
    return hashlib.sha256(uid.encode()).hexdigest()[:12]


def _objects(
    making: Making, answers: Sequence[FindingAnswer], options: ObjectOptions, clock: datetime.datetime
) -> Iterator[DicomObject]:
    for kind in dict.fromkeys(options.kinds):
        number = _SERIES + KINDS.index(kind)
        if kind == "report":
            yield _finished(making, kind, None, report_object(making, answers, number), clock)
            continue
        for answer in answers:
            yield _finished(making, kind, answer.finding, _DRAWN[kind](making, answer, number), clock)


def _finished(making: Making, kind: str, finding: str | None, made: Any, clock: datetime.datetime) -> DicomObject:
    """An object with the attributes that all kinds have, and without anything random or of the present."""
    header = making.film.header
    made.SpecificCharacterSet = "ISO_IR 192"
    for keyword, text in making.film.study.items():
        made.pop(keyword, None)  # highdicom may share the element with the header, which must stay without these texts
        setattr(made, keyword, text.split("\\") if "\\" in text else text)
    if "Rows" in made:
        made.BodyPartExamined = header.BodyPartExamined
        if kind in ("overlay", "map") and header.BodyPartExamined not in UNPAIRED:
            made.Laterality = ""  # a Segmentation must not have one
        for keyword in ("LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod"):
            if keyword in header:
                setattr(made, keyword, getattr(header, keyword))
        words = making.model.warning
        made.ImageComments = f"{RESEARCH}. {words + '. ' if words else ''}Not for diagnosis."
    making.sign(made)
    _settle(made, making.identity.uid(f"dimensions {kind}", finding or ""), clock)
    stream = io.BytesIO()
    made.save_as(stream, enforce_file_format=True)
    return DicomObject(
        kind=kind,
        finding=finding,
        class_uid=str(made.SOPClassUID),
        study_uid=str(made.StudyInstanceUID),
        series_uid=str(made.SeriesInstanceUID),
        uid=str(made.SOPInstanceUID),
        content=stream.getvalue(),
    )


def _settle(made: Any, dimensions: str, clock: datetime.datetime) -> None:
    """Replaces what highdicom takes from a random generator and from the machine's clock."""
    now = {"DA": f"{clock:%Y%m%d}", "TM": f"{clock:%H%M%S}", "DT": f"{clock:%Y%m%d%H%M%S}"}
    for element in made.iterall():
        if element.keyword in _CLOCK and element.value:
            element.value = now[_CLOCK[element.keyword]]
        elif element.keyword == "DimensionOrganizationUID":
            element.value = dimensions


def differs(old: bytes, new: bytes) -> bool:
    """Whether two objects differ in more than the time when they were made.

    An archive keeps the first object of a UID and drops the second without a word, so one that differs must not be
    sent. Anything that cannot be read differs.
    """
    if old == new:
        return False
    from pydicom import dcmread

    silence_pydicom()
    try:
        first, second = (dcmread(io.BytesIO(content), force=True) for content in (old, new))
        for dataset in (first, second):
            for element in dataset.iterall():
                if element.keyword in _CLOCK:
                    element.value = None
        return bool(first != second or first.file_meta != second.file_meta)
    except Exception:  # pydicom can raise any exception on a damaged file
        return True
