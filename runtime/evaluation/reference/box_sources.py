"""Where the answers of a model of boxes come from: its file or the dataset, and which answer each pair gets."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError
from ....metrics_gpu.grounding.other_patients import next_patients
from ...data.answers.answered import BoxFile, State
from ...data.answers.questions import Questions
from ...data.answers.read_box_file import read_boxes
from ...data.datasets.readers.reader_marks import ReaderBoxes
from .box_models import BoxModel


def read_answers(model: BoxModel, marks: ReaderBoxes | None, questions: Questions) -> BoxFile:
    """The answers of the model's file, or of a reader. Raises DataError."""
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


def sources(file: BoxFile, questions: Questions, model: BoxModel) -> NDArray[np.intp]:
    """intp [P]: the pair whose answer each pair gets, itself or the next one of another patient; -1: left out."""
    counted = np.ones(len(file.positives), np.bool_)
    if model.options.missing == "leave-out":
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
