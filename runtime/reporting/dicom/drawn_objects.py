"""Objects with pixels: Secondary Capture, Segmentation and Parametric Map of an answer (docs/dicom.md §1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...host.machine_record import code_version
from ..gallery.overlay import drawn_map
from .dicom_object import MANUFACTURER
from .film_answer import FindingAnswer, on_film
from .film_header import FilmHeader
from .finding_codes import finding_code, long_text
from .identity import ModelIdentity, ObjectIdentity

RESEARCH: Final = "RESEARCH USE ONLY"
_JPEG_LS: Final = "1.2.840.10008.1.2.4.80"
_RAW: Final = "1.2.840.10008.1.2.1"
_SMALLEST: Final = 32  # pixels a side; smaller pictures are stored raw, as compression gains nothing
_STEPS: Final = 255  # of a fractional Segmentation


@dataclass(frozen=True)
class Making:
    """What the objects of one film share: the film, the model, the identity, and the words of their series."""

    film: FilmHeader
    model: ModelIdentity
    identity: ObjectIdentity

    def series(self, kind: str, number: int, words: str) -> dict[str, Any]:
        """The arguments of highdicom by which an object of a kind belongs to its series."""
        return {"series_instance_uid": self.series_uid(kind), "series_number": number, "instance_number": 1} | {
            "series_description": self.description(words)
        }

    def series_uid(self, kind: str) -> str:
        """One series a kind and run: the findings of a film share it."""
        return self.identity.uid(f"series {kind}")

    def description(self, words: str) -> str:
        """The description of a series, which archives and viewers show first."""
        marks = ", ".join(text for text in (RESEARCH, self.model.warning) if text)
        return long_text(f"{marks}: {words} {self.model.name}")

    def equipment(self) -> dict[str, Any]:
        """The arguments of highdicom that name the program; the serial number is the bundle's digest."""
        return {
            "manufacturer": MANUFACTURER,
            "manufacturer_model_name": long_text(self.model.name),
            "software_versions": long_text(code_version()),
            "device_serial_number": self.model.digest,
        }

    def sign(self, made: Any) -> None:
        """Writes the same into an object whose class in highdicom takes no such arguments."""
        made.ManufacturerModelName = long_text(self.model.name)
        made.SoftwareVersions = long_text(code_version())
        made.DeviceSerialNumber = self.model.digest

    def parameters(self) -> dict[str, str]:
        """The parameters of the algorithm, by name."""
        model = self.model
        return {
            "bundle": model.digest,
            "prompts": model.prompt_digest,
            "threshold": str(np.float32(self.identity.tau)),
            "precision": model.precision,
            "engine": model.engine,
        }

    def algorithm(self) -> Any:
        """The identification of the algorithm in a Segmentation."""
        import highdicom
        from pydicom.sr.codedict import codes

        family = codes.DCM.ArtificialIntelligence
        return highdicom.AlgorithmIdentificationSequence(
            long_text(self.model.name), family, code_version()[:64], parameters=self.parameters()
        )

    def tracking(self, finding: str) -> tuple[str, str]:
        """Identifier and UID of a finding, the same in a Segmentation and in the report."""
        return self.identity.uid("tracking", finding), long_text(finding)


def overlay_object(making: Making, answer: FindingAnswer, number: int) -> Any:
    """A Secondary Capture: the film in grey with the map and the mask's outline, RGB at native resolution."""
    import highdicom

    film = making.film
    header = film.plain
    picture = drawn_map(film.grey, answer.normalised, on_film(answer.mask, film.grey.shape) > 0)
    words = [RESEARCH, making.model.warning, f"{answer.finding}, {making.model.name}"]
    _write_words(picture, [text for text in words if text])
    made = highdicom.sc.SCImage(
        pixel_array=picture,
        photometric_interpretation="RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        patient_orientation=("L", "F"),  # replaced below: highdicom checks it
        pixel_spacing=film.spacing,
        sop_instance_uid=making.identity.uid("overlay", answer.finding),
        study_instance_uid=header.StudyInstanceUID,
        manufacturer=MANUFACTURER,
        transfer_syntax_uid=_JPEG_LS if min(film.grey.shape) >= _SMALLEST else _RAW,
        **making.series("overlay", number, "overlay"),
    )
    made.PatientOrientation = header.PatientOrientation
    made.BurnedInAnnotation = "YES"
    return made


def mask_object(making: Making, answer: FindingAnswer, number: int) -> Any:
    """A binary Segmentation of the thresholded map, pixel-equal to what an evaluation counts."""
    pixels = on_film(answer.mask, making.film.grey.shape)
    return _segmentation(making, answer, "mask", "BINARY", pixels, number)


def fractions_object(making: Making, answer: FindingAnswer, number: int) -> Any:
    """A fractional Segmentation of the map, in 255 steps."""
    pixels = on_film(answer.normalised, making.film.grey.shape)
    return _segmentation(making, answer, "fractions", "FRACTIONAL", np.clip(pixels, 0.0, 1.0), number)


def _segmentation(
    making: Making, answer: FindingAnswer, kind: str, form: str, pixels: NDArray[Any], number: int
) -> Any:
    import highdicom
    from pydicom.sr.coding import Code

    tracking_uid, tracking_id = making.tracking(answer.finding)
    segment = highdicom.seg.SegmentDescription(
        1,
        long_text(answer.finding),
        Code("49755003", "SCT", "Morphologically Abnormal Structure"),
        finding_code(answer.finding),
        "AUTOMATIC",
        making.algorithm(),
        tracking_uid=tracking_uid,
        tracking_id=tracking_id,
    )
    made = highdicom.seg.Segmentation(
        [making.film.header],
        pixels[None],
        form,
        [segment],
        sop_instance_uid=making.identity.uid(kind, answer.finding),
        fractional_type="PROBABILITY",
        max_fractional_value=_STEPS,
        omit_empty_frames=False,
        content_label="SALIENCY",
        content_description=long_text(f"{answer.finding}: map of {making.model.name}"),
        **making.series(kind, number, kind),
        **making.equipment(),
    )
    made.PatientOrientation = making.film.header.PatientOrientation
    return made


def map_object(making: Making, answer: FindingAnswer, number: int) -> Any:
    """A Parametric Map: the values of the normalised map, float32."""
    import highdicom
    from pydicom.sr.codedict import codes
    from pydicom.sr.coding import Code

    mapping = highdicom.pm.RealWorldValueMapping(
        "SALIENCY", "min-max normalised", codes.UCUM.NoUnits, (0.0, 1.0), slope=1.0, intercept=0.0,
        quantity_definition=Code("130404", "DCM", "Saliency"),
    )  # fmt: skip
    return highdicom.pm.ParametricMap(
        [making.film.header],
        on_film(answer.normalised, making.film.grey.shape),
        sop_instance_uid=making.identity.uid("map", answer.finding),
        contains_recognizable_visual_features=False,
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[highdicom.VOILUTTransformation(0.5, 1.0)],
        derived_pixel_contrast="NONE",
        content_label="SALIENCY",
        content_description=long_text(f"{answer.finding}: map of {making.model.name}"),
        **making.series("map", number, "map"),
        **making.equipment(),
    )


def _write_words(picture: NDArray[np.uint8], lines: list[str]) -> None:
    """Writes lines into the upper left of a picture [H, W, 3], white on black as far as they reach."""
    from PIL import Image, ImageDraw, ImageFont

    height = len(picture)
    size = max(8, height // 48)
    strip = Image.fromarray(picture[: min(height, size * (len(lines) + 1))])
    draw = ImageDraw.Draw(strip)
    font = ImageFont.load_default(size)
    text = "\n".join(lines)
    draw.rectangle(draw.multiline_textbbox((size // 2, size // 4), text, font), fill=(0, 0, 0))
    draw.multiline_text((size // 2, size // 4), text, fill=(255, 255, 255), font=font)
    picture[: strip.height] = np.asarray(strip)
