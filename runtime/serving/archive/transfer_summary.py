"""What became of the films of a transfer: counts, and a sentence for each one that has a problem or a remark
(docs/pacs.md §5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...reporting.dicom.dicom_object import DicomObject

_MOST_SENTENCES: Final = 10_000  # of each sort; more are counted: a run over a whole archive must not grow


class TransferSummary:
    """Counts. studies: looked at; films: asked; before: films done by an earlier run; done: films whose objects are all
    in the archive now; stored, kept, refused, failed: objects. say: receives each problem and remark at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self.studies = self.films = self.before = self.done = 0
        self.stored = self.kept = self.refused = self.failed = 0
        self.problems: list[str] = []
        self.remarks: list[str] = []
        self.problem_count = self.remark_count = 0
        self.stopped = ""

    def problem(self, sentence: str) -> None:
        """Notes what is wrong with a film or a study."""
        with self._lock:
            self.problem_count += 1
            if len(self.problems) < _MOST_SENTENCES:
                self.problems.append(sentence)
        self._say(sentence)

    def remark(self, sentence: str) -> None:
        """Notes what a user should know and cannot mend: another modality, or a film without a pixel spacing."""
        with self._lock:
            self.remark_count += 1
            if len(self.remarks) < _MOST_SENTENCES:
                self.remarks.append(sentence)
        self._say(sentence)

    def would_send(self, label: str, objects: Sequence[DicomObject], kept: int) -> None:
        """Says what a dry run does not send."""
        self.done += 1
        self.stored += len(objects)
        self.kept += kept
        size = sum(len(made.content) for made in objects)
        names = ", ".join(f"{made.kind} of {made.finding}" if made.finding else made.kind for made in objects)
        self._say(f"film {label}: {names or 'nothing'} ({size} bytes), {kept} already there")

    def line(self, *, dry_run: bool) -> str:
        """The counts in words."""
        verb = "would be stored" if dry_run else "stored"
        return (
            f"{self.studies} studies, {self.films} films asked, {self.before} done before; objects: {self.stored} "
            f"{verb}, {self.kept} already there, {self.refused} refused, {self.failed} failed; "
            f"{self.problem_count} problems, {self.remark_count} remarks"
        )

    def document(self) -> dict[str, Any]:
        """The counts as JSON."""
        names = ("studies", "films", "before", "done", "stored", "kept", "refused", "failed")
        counts = {name: getattr(self, name) for name in names}
        sentences = ("problem_count", "problems", "remark_count", "remarks", "stopped")
        return counts | {name: getattr(self, name) for name in sentences}
