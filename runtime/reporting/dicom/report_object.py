"""The structured report of a film's answers, template 1500 (docs/dicom.md §1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...host.machine_record import code_version
from .dicom_object import MANUFACTURER
from .drawn_objects import Making
from .film_answer import FindingAnswer, film_corners
from .finding_codes import finding_code, long_text, private_code

COSINE: Final = "Cosine similarity of the image and the text"
_PROCEDURE: Final = "Plain chest radiograph"


def report_object(making: Making, answers: Sequence[FindingAnswer], number: int) -> Any:
    """A Comprehensive SR by template 1500: a group for each box, with the finding and the score of the image.

    A finding without a box has one group without a region.
    """
    from highdicom import sr
    from pydicom.sr.codedict import codes

    names = [answer.finding for answer in answers]
    device = sr.DeviceObserverIdentifyingAttributes(
        uid=making.identity.uid("device"),
        name=long_text(making.model.name),
        manufacturer_name=MANUFACTURER,
        model_name=long_text(making.model.name),
        serial_number=making.model.digest,
    )
    groups = [group for answer in answers for group in _groups(making, answer)]

    def report(groups: Sequence[Any]) -> Any:
        return sr.MeasurementReport(
            sr.ObservationContext(observer_device_context=sr.ObserverContext(codes.DCM.Device, device)),
            private_code(_PROCEDURE),
            imaging_measurements=groups,
            title=codes.DCM.ImagingMeasurementReport,
        )

    made = sr.ComprehensiveSR(
        [making.film.plain],
        report(groups[:1]),
        sop_instance_uid=making.identity.uid("report", "", *names),
        is_complete=False,
        is_final=False,
        is_verified=False,
        manufacturer=MANUFACTURER,
        **making.series("report", number, "report"),
    )
    # highdicom copies and searches the content several times, 8 ms a group. All groups are about one film, so the first
    # one is enough for what is derived from the content.
    for tag, value in report(groups)[0].items():
        made[tag] = value
    return made


def score_of(making: Making, logit: float) -> tuple[Any, float]:
    """The concept and the value of a score: a probability where it is one, else a cosine by its name."""
    from pydicom.sr.codedict import codes

    from ....metrics_gpu.recognition.scores import probability

    if making.model.logit_scale != 1:
        return private_code(COSINE), logit / making.model.logit_scale
    return codes.DCM.Probability, float(probability(np.array([logit], np.float32))[0])


def _groups(making: Making, answer: FindingAnswer) -> list[Any]:
    """The measurement groups of one finding."""
    from highdicom import sr

    size = making.film.grey.shape
    source = sr.SourceImageForRegion.from_source_image(making.film.plain)
    uid, identifier = making.tracking(answer.finding)
    concept, value = score_of(making, answer.logit)
    shared: dict[str, Any] = {
        "finding_type": finding_code(answer.finding),
        "measurements": [_measured(making, concept, value)],
    }
    if not answer.boxes:
        return [
            sr.MeasurementsAndQualitativeEvaluations(
                sr.TrackingIdentifier(uid, identifier),
                source_images=[sr.SourceImageForMeasurementGroup.from_source_image(making.film.plain)],
                **shared,
            )
        ]
    return [
        sr.PlanarROIMeasurementsAndQualitativeEvaluations(
            sr.TrackingIdentifier(uid if at == 0 else making.identity.uid("tracking", answer.finding, str(at)),
                                  identifier if at == 0 else long_text(f"{identifier[:56]} {at + 1}")),
            referenced_region=sr.ImageRegion("POLYLINE", np.array(film_corners(box, size)), source),
            **shared,
        )
        for at, box in enumerate(answer.boxes)
    ]  # fmt: skip


def _measured(making: Making, concept: Any, value: float) -> Any:
    from highdicom import sr
    from pydicom.sr.codedict import codes

    algorithm = sr.AlgorithmIdentification(
        long_text(making.model.name),
        code_version()[:64],
        parameters=[", ".join(f"{name}: {text}" for name, text in making.parameters().items())],
    )
    return sr.Measurement(concept, value, codes.UCUM.NoUnits, algorithm_id=algorithm)
