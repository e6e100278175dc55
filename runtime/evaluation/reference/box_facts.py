"""What run.json keeps of a file of boxes or words, and of a reader (docs/run-directory.md)."""

from __future__ import annotations

from typing import Any

from ...data.answers.answered import BoxFile
from ...data.answers.unread_answers import UnreadAnswers
from ...data.datasets.readers.reader_marks import ReaderBoxes
from .box_models import BoxModel


def file_facts(model: BoxModel, file: BoxFile, marks: ReaderBoxes | None, unread: UnreadAnswers) -> dict[str, Any]:
    """What a run keeps of the file as a whole; the counters of its answers stand in the rows."""
    return {
        "file": "" if model.reader or model.floor else str(model.path.absolute()),
        "sha256": file.sha256,
        "kind": file.file_format,
        "lines": file.lines,
        "rejected": file.rejected,
        "unknown_label": file.unknown_label,
        "no_region": file.no_region,
        "unmatched": file.unmatched,
        "silence": file.silence,
        "frames": dict(file.frames),
        "missing": model.options.missing,
        **({"moved": True} if model.moved else {}),
        "unread": [unread.count, unread.given],
        "tags": dict(file.tags),
        "mislabelled": file.mislabelled,
        "bad_lines": "count" if model.options.read.count_bad_lines else "stop",
        "provenance": {**file.provenance, **{name: list(values) for name, values in file.line_provenance.items()}},
        **({"reader": model.reader} if marks else {}),
        **({"left_out": True} if marks and marks.left_out else {}),
    }


def word_facts(model: BoxModel, not_frontal: int, frame_fixed: int) -> dict[str, Any]:
    """What a run keeps of a file of words. not_frontal: pairs of lateral images, which are left out. frame_fixed: pairs
    with the fixed frame instead of that of masks."""
    options = model.options.read.words
    frame = "image" if options.thorax == "image" else "thorax"
    record = {
        "frame": "lungs" if options.lungs is not None else frame,
        "uncertain": options.uncertain,
        "not_frontal": not_frontal,
        "frame_fixed": frame_fixed,
    }
    control = {"floor": model.floor} if model.floor else {"mirrored": True} if model.mirrored else {}
    return {"words": record, **control}
