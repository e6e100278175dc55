"""Radiographs with labels and regions: a lower precision is measured on some, and INT8 is calibrated on others.

`export/cli` opens them with the public Python interface, which reads them as an evaluation does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError, DataError
from ...engines.geometry import Geometry
from .metric_changes import TrialImage

_SHARE = 4  # of a dataset that is used for both, one image in so many calibrates


class ReadInput(Protocol):
    """A radiograph as a model takes it: uint8 [1, S, S], or None with the `problem`; its regions on the evaluation
    grid, and the part of the image that the pixels show."""

    @property
    def pixels(self) -> NDArray[np.uint8] | None: ...
    @property
    def regions(self) -> Mapping[str, NDArray[np.bool_]]: ...
    @property
    def frame(self) -> tuple[float, float, float, float]: ...
    @property
    def problem(self) -> str | None: ...


class InputReader(Protocol):
    """Reads the radiographs of a dataset at these places, in order, with the regions of `findings`."""

    def __call__(
        self, geometry: Geometry, findings: Sequence[str], *, places: Sequence[int]
    ) -> Iterator[ReadInput]: ...


@dataclass(frozen=True)
class TrialCase:
    """One image: `name` for the report, `patient`, whose name is the image's where no patient is known, its file, the
    labels that are known, and its position in the dataset."""

    name: str
    patient: str
    image: Path
    labels: Mapping[str, bool] = field(default_factory=dict)
    position: int = 0


@dataclass(frozen=True)
class TrialData:
    """Cases of one dataset or folder; pixels are read one image at a time.

    `name`: the dataset's, or "" for a folder; `source`: for messages; `sha256`: of its annotation files; `reader`: the
    version of the decoders; `prepare`: one file -> uint8 [1, 1, S, S]; `read`: as `InputReader`, None without
    annotations; `apart`: hashes of the model inputs that `images` leaves out, and `left_out` counts them and the images
    that cannot be read.
    """

    name: str
    source: str
    cases: tuple[TrialCase, ...]
    prepare: Callable[[Path, Geometry], NDArray[np.uint8]]
    read: InputReader | None = None
    classes: tuple[str, ...] = ()
    sha256: str = ""
    reader: str = ""
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
                f"{self.source} has the classes {', '.join(self.classes) or 'none'}, and no prompt set asks for one of "
                "them: use the findings' names, or give prompts for yours with --prompts FILE."
            )
        return best

    def images(self, geometry: Geometry, findings: Sequence[str]) -> Iterator[TrialImage]:
        """Every image as the model takes it, with the regions and known labels of `findings`, by their indices.

        Images that cannot be read are left out and counted. Raises DataError when most cannot, and for a region that
        cannot be drawn.
        """
        assert self.read is not None  # `choose` has refused data without classes
        self.left_out.clear()
        index = {name: number for number, name in enumerate(findings) if name in self.classes}
        inputs = self.read(geometry, list(index), places=[case.position for case in self.cases])
        for case, image in zip(self.cases, inputs, strict=True):
            if image.pixels is None:
                self._count("unreadable", f"{case.image}: {image.problem}")
            elif _digest(image.pixels) in self.apart:
                self._count("calibrated")
            else:
                regions = {index[name]: region for name, region in image.regions.items()}
                labels = {index[name]: label for name, label in case.labels.items() if name in index}
                yield TrialImage(case.name, image.pixels, regions, labels, image.frame, case.patient)

    def inputs(self, geometry: Geometry) -> NDArray[np.uint8]:
        """The model inputs of all cases, uint8 [N, 1, S, S]. Raises DataError and ImageError."""
        for case in self.cases:
            if not case.image.exists():
                raise DataError(f"There is no image {case.image}; calibrate on images that are there.")
        return np.concatenate([self.prepare(case.image, geometry) for case in self.cases])

    @property
    def patients(self) -> list[str]:
        """The patient of each case."""
        return [case.patient for case in self.cases]

    def only(self, numbers: Sequence[int]) -> TrialData:
        """These cases."""
        return replace(self, cases=tuple(self.cases[number] for number in numbers), left_out={})

    def _count(self, why: str, where: str = "") -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1
        if why == "unreadable" and 2 * self.left_out[why] > len(self.cases):
            raise DataError(f"Most images of {self.source} cannot be read, {where}.")


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
            f"{trial.source} has no annotations, and a lower precision is judged by pointing, Dice and AUC; give "
            "--parity-data a dataset, or a folder with annotations.csv."
        )
    files, patients = {case.image.resolve() for case in chosen.cases}, set(chosen.patients) if same else set()
    rest = [
        number
        for number, case in enumerate(trial.cases)
        if case.patient not in patients and case.image.resolve() not in files
    ]
    if not rest:
        raise ConfigError(f"{trial.source} has no image that is not calibrated on; give --parity-data other images.")
    apart = frozenset(_digest(pixels) for pixels in chosen.inputs(geometry))
    return chosen, replace(trial.only(rest), apart=apart)


def _spread(patients: Sequence[str], most: int) -> list[int]:
    """Numbers of about `most` cases, spread evenly, with all cases of each patient."""
    step = max(len(patients) / most, 1.0)
    taken = {patients[int(index * step)] for index in range(min(most, len(patients)))}
    return [number for number, patient in enumerate(patients) if patient in taken]


def _digest(pixels: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()
