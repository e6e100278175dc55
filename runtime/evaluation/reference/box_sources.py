"""Where the answers of a model of boxes come from: its file or the dataset, and which answer each pair gets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.other_patients import next_patients
from ...answers.answered import BoxFile, State
from ...answers.questions import Questions
from ...answers.read import read_boxes
from .box_models import SECOND_READER, BoxModel

if TYPE_CHECKING:
    from ...datasets.base import Dataset

__all__ = ["read_answers", "sources"]


def read_answers(model: BoxModel, dataset: Dataset, questions: Questions) -> BoxFile | None:
    """The answers of the model's file, or of the dataset's second reader; None if it has none. Raises DataError."""
    if model.name != SECOND_READER:
        return read_boxes(model.path, questions, model.options.read)
    lines = dataset.second_reader()
    return None if lines is None else _read_lines(lines, questions)


def _read_lines(lines: Sequence[Mapping[str, Any]], questions: Questions) -> BoxFile:
    """Lines with boxes in the frame `unit`, read as those of a file; without those of images of unknown size."""
    lines = [line for line in lines if questions.size(questions.case(line["case"])) is not None]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "second-reader.jsonl"
        path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "unit"}, *lines])), encoding="utf-8")
        return read_boxes(path, questions)


def sources(file: BoxFile, questions: Questions, model: BoxModel) -> NDArray[np.intp]:
    """intp [P]: the pair whose answer each pair gets, itself or the next one of another patient; -1: left out."""
    counted = np.ones(len(file.positives), np.bool_)
    if model.options.missing == "leave-out":
        counted = file.positives.state != State.MISSING
    found = np.where(counted, np.arange(len(counted)), -1)
    if model.moved:
        kept = np.flatnonzero(counted)
        pairs = [file.positives.pairs[place] for place in kept]
        cases = [questions.cases[questions.case(pair.case_id)].patient for pair in pairs]
        _, patient_of = np.unique(np.array(cases, np.str_), return_inverse=True)
        class_of = np.array([questions.finding(pair.asked) for pair in pairs], np.intp)
        other = next_patients(class_of, patient_of)
        found[kept] = np.where(other >= 0, kept[other], -1)
    return found
