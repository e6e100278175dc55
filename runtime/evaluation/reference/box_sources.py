"""Where the answers of a model of boxes come from: its file or the dataset, and which answer each pair gets."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError
from ....metrics_gpu.grounding.other_patients import next_patients
from ....metrics_gpu.zones.thorax_places import ALL_CELLS, cell_names
from ...data.answers.answered import BoxFile, State
from ...data.answers.box_file import ReadOptions
from ...data.answers.questions import Questions
from ...data.answers.read_box_file import read_boxes
from ...data.answers.words.thorax_frames import ThoraxFrames
from ...data.datasets.readers.reader_marks import ReaderBoxes
from .box_models import BoxModel
from .true_zones import TrueZones


def read_answers(model: BoxModel, marks: ReaderBoxes | None, questions: Questions) -> BoxFile:
    """The answers of the model's file, or of a reader. Raises DataError."""
    if model.floor:
        return _floor(model, questions)
    if marks is None:
        return read_boxes(model.path, questions, model.options.read)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.reader}.jsonl"
        unknown, written = Path(), 0
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"xbench_boxes": 1, "frame": marks.frame}))
            for line in marks.lines:  # where an image has no known size, its boxes have no place
                row = questions.case(line["case"])
                if questions.size(row) is None:
                    unknown = questions.cases[row].image
                else:
                    written += file.write("\n" + json.dumps(line))
        if unknown.name and not written:
            problem = f"No image that {model.name} marked can be read for its size, such as {unknown}"
            raise DataError(f"{problem}; correct the dataset's root or its options.")
        return read_boxes(path, questions)


def _floor(model: BoxModel, questions: Questions) -> BoxFile:
    """The answers of words that look at no image, as codes of zones. Raises DataError."""
    options = model.options.read
    usual = None
    if model.floor == "prior":
        usual = TrueZones.of(questions, ThoraxFrames(options.words, questions).frame).usual.tolist()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.floor}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"xbench_boxes": 1, "dialect": "zones"}))
            for number, place in enumerate(questions.positives.tolist()):
                pair = questions.pair(place)
                zones = ALL_CELLS if usual is None else usual[number]
                if zones and questions.size(place // len(questions.classes)) is not None:
                    text = " ".join(f"{name}Z" for name in cell_names(zones))
                    file.write("\n" + json.dumps({"case": pair.case_id, "finding": pair.asked, "text": text}))
        return read_boxes(path, questions, ReadOptions(words=options.words))


def sources(file: BoxFile, questions: Questions, model: BoxModel) -> NDArray[np.intp]:
    """intp [P]: the pair whose answer each pair gets, itself or the next one of another patient; -1: left out."""
    counted = np.ones(len(file.positives), np.bool_)
    if model.options.missing == "leave-out" or model.floor:
        counted = file.positives.state != State.MISSING
    pairs = np.where(counted, np.arange(len(counted)), -1)
    if model.moved:
        kept = np.flatnonzero(counted)
        row_of, class_of = np.divmod(file.positives.places[kept], len(questions.classes))
        cases = [questions.cases[row].patient for row in row_of.tolist()]
        _, patient_of = np.unique(np.array(cases, np.str_), return_inverse=True)
        other = next_patients(class_of, patient_of)
        pairs[kept] = np.where(other >= 0, kept[other], -1)
    return pairs
