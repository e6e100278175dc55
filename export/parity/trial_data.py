"""Radiographs with labels and regions, read as an evaluation reads them: a lower precision is measured on some, and
INT8 is calibrated on others.

They come from a dataset, named as `eval` names it, or from a folder: one with `annotations.csv` beside `images/` is
read as the dataset `csv`, any other is taken as images without annotations.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError, DataError
from ...engines.geometry import Geometry
from ...engines.registry import did_you_mean
from ...runtime.datasets.base import Case
from ...runtime.datasets.pixels import direct_source
from ...runtime.evaluation.decoding import DecodedCase, decode_case
from ...runtime.host.config import Config, DatasetConfig, load_config
from ...runtime.images.decode import decode_ahead
from ...runtime.results.loaded_dataset import load_dataset
from ..machine import threads_to_use
from .metric_changes import TrialImage

__all__ = ["TrialData", "open_data", "parted"]

ANNOTATIONS = "annotations.csv"
_IMAGES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")
_SHARE = 4  # of a dataset that is used for both, one image in so many calibrates


@dataclass(frozen=True)
class TrialData:
    """Cases of one dataset or folder; pixels are read one image at a time.

    `name`: the dataset's, or "" for a folder; `place`: for messages; `sha256`: of its annotation files, `stem`: the
    first one's name; `numbers`: the positions of the cases in the dataset; `apart`: hashes of the model inputs that
    `images` leaves out, and `left_out` counts them and the images that cannot be read.
    """

    name: str
    place: str
    cases: tuple[Case, ...]
    classes: tuple[str, ...] = ()
    sha256: str = ""
    stem: str = ""
    numbers: tuple[int, ...] = ()
    apart: frozenset[bytes] = frozenset()
    left_out: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def description(self) -> str:
        return f"the dataset '{self.name}'" if self.name else "the user's images"

    def choose(self, sets: Mapping[str, Sequence[str]]) -> str:
        """The prompt set (name -> findings) with most of the classes; of equal sets the one with fewest other findings.

        Raises ConfigError when no set has any of them.
        """
        shared = {name: len(set(findings) & set(self.classes)) for name, findings in sets.items()}
        best = max(shared, key=lambda name: (shared[name], -len(sets[name])))
        if shared[best] == 0:
            raise ConfigError(
                f"{self.place} has the classes {', '.join(self.classes) or 'none'}, and no prompt set asks for one of "
                "them: use the findings' names, or give prompts for yours with --prompts FILE."
            )
        return best

    def images(self, geometry: Geometry, findings: Sequence[str]) -> Iterator[TrialImage]:
        """Every image as the model takes it, with the regions and known labels of `findings`, by their indices.

        Images that cannot be read are left out and counted. Raises DataError when most cannot, and for a region that
        cannot be drawn.
        """
        self.left_out.clear()
        asked = [finding for finding in findings if finding in self.classes]
        read = partial(decode_case, source=direct_source(geometry), geometry=geometry, findings=asked)
        workers = threads_to_use()
        for number, decoded in enumerate(decode_ahead(read, self.cases, workers, 2 * workers)):
            if decoded.pixels is None:
                self._count("unreadable", decoded)
            elif _digest(decoded.pixels) in self.apart:
                self._count("calibrated", decoded)
            else:
                yield self._trial(number, decoded, decoded.pixels, findings)

    def inputs(self, geometry: Geometry) -> NDArray[np.uint8]:
        """The model inputs of all cases, uint8 [N, 1, S, S]. Raises ImageError."""
        source = direct_source(geometry)
        try:
            return np.stack([source(case)[0][None] for case in self.cases])
        except FileNotFoundError as error:
            raise DataError(f"There is no image {error}; calibrate on images that are there.") from error

    def named(self, number: int) -> str:
        """Names a case by its row in the annotation file, since a bundle may be shared and file names can identify a
        patient; by its file name in a folder without annotations."""
        case = self.cases[number]
        if not self.stem:
            return case.case_id
        return f"{self.stem} row {case.rows[0]}" if case.rows else f"{self.stem} case {self.numbers[number] + 1}"

    @cached_property
    def patients(self) -> list[str]:
        """The patient of each case; a case of nobody known is its own."""
        return [f"patient {case.patient_id}" if case.patient_id else case.case_id for case in self.cases]

    def only(self, numbers: Sequence[int]) -> TrialData:
        """These cases."""
        cases = tuple(self.cases[number] for number in numbers)
        return replace(self, cases=cases, numbers=tuple(self.numbers[number] for number in numbers), left_out={})

    def _trial(
        self, number: int, decoded: DecodedCase, pixels: NDArray[np.uint8], findings: Sequence[str]
    ) -> TrialImage:
        case, places = decoded.case, {finding: place for place, finding in enumerate(findings)}
        labels = {
            places[name]: bool(label) for name, label in case.labels.items() if name in places and label is not None
        }
        masks = {places[name]: mask for name, mask in decoded.masks.items()}
        return TrialImage(self.named(number), pixels[None], masks, labels, decoded.frame, self.patients[number])

    def _count(self, why: str, decoded: DecodedCase) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1
        if why == "unreadable" and 2 * self.left_out[why] > len(self.cases):
            raise DataError(f"Most images of {self.place} cannot be read, {decoded.case.image}: {decoded.reason}.")


def open_data(text: str, config_file: Path | None = None) -> TrialData:
    """The cases of `text`: NAME=PATH, a dataset of the configuration, or a folder. Raises ConfigError and DataError."""
    config = load_config(config_file)
    name, equals, path = text.partition("=")
    if equals and name and path:
        root = Path(path).expanduser()
        known = config.datasets.get(name)
        return _dataset(replace(known, root=root) if known else DatasetConfig(name, root, name))
    if text in config.datasets:
        return _dataset(config.datasets[text])
    folder = Path(text)
    if (folder / ANNOTATIONS).is_file():
        return replace(_dataset(DatasetConfig("csv", folder, "csv")), name="")
    if folder.is_dir():
        return _folder(folder)
    raise ConfigError(_unknown(text, config))


def _unknown(text: str, config: Config) -> str:
    hint = f" ({did_you_mean(text, sorted(config.datasets))})" if config.datasets else ""
    return f"{text} is neither a folder nor a dataset of the configuration{hint}; give a folder, or NAME=PATH."


def _dataset(config: DatasetConfig) -> TrialData:
    loaded = load_dataset(config)
    digest = hashlib.sha256()
    for source in loaded.dataset.sources():
        digest.update(source.read_bytes())
    stem = next((source.name for source in loaded.dataset.sources()), config.name)
    place, cases = f"The dataset '{config.name}' in {config.root}", tuple(loaded.all_cases)
    numbers = tuple(range(len(cases)))
    return TrialData(config.name, place, cases, tuple(loaded.dataset.classes), digest.hexdigest(), stem, numbers)


def _folder(folder: Path) -> TrialData:
    files = sorted(Path(at) / name for at, _, names in os.walk(folder) for name in names)
    images = [path for path in files if path.suffix.lower() in _IMAGES]
    if not images:
        raise DataError(
            f"{folder} has no image ({', '.join(_IMAGES)}) and no {ANNOTATIONS}; give a folder with images."
        )
    cases = tuple(Case(path.relative_to(folder).as_posix(), path, {}, {}, "") for path in images)
    return TrialData("", str(folder), cases, numbers=tuple(range(len(cases))))


def parted(
    calibration: TrialData, trial: TrialData | None, most: int, geometry: Geometry
) -> tuple[TrialData, TrialData]:
    """At most `most` cases to calibrate on, and the cases of `trial` to measure on, of which none calibrates.

    Without `trial` both come from `calibration`. Where both are one dataset, about a quarter of it calibrates at most,
    and no other image of a calibrated patient is measured. An image with the pixels of a calibrated one is never
    measured (`TrialData.images`). Raises ConfigError when nothing is left to measure on, DataError and ImageError.
    """
    trial = calibration if trial is None else trial
    same = trial is calibration or (trial.sha256 != "" and trial.sha256 == calibration.sha256)
    most = min(most, max(len(calibration.cases) // _SHARE, 1)) if same else most
    chosen = calibration.only(_spread(calibration.patients, most))
    if not trial.classes:
        raise ConfigError(
            f"{trial.place} has no annotations, and a lower precision is judged by pointing, Dice and AUC; give "
            "--parity-data a dataset, or a folder with annotations.csv."
        )
    files, patients = {case.image.resolve() for case in chosen.cases}, set(chosen.patients) if same else set()
    rest = [
        number
        for number, (case, patient) in enumerate(zip(trial.cases, trial.patients, strict=True))
        if patient not in patients and case.image.resolve() not in files
    ]
    if not rest:
        raise ConfigError(f"{trial.place} has no image that is not calibrated on; give --parity-data other images.")
    apart = frozenset(_digest(pixels[0]) for pixels in chosen.inputs(geometry))
    return chosen, replace(trial.only(rest), apart=apart)


def _spread(patients: Sequence[str], most: int) -> list[int]:
    """Numbers of about `most` cases, spread evenly, with all cases of each patient."""
    step = max(len(patients) / most, 1.0)
    taken = {patients[int(place * step)] for place in range(min(most, len(patients)))}
    return [number for number, patient in enumerate(patients) if patient in taken]


def _digest(pixels: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()
