"""Films of an archive through a model and the objects back, study by study (docs/pacs.md §1)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ....engines.errors import DataError, ImageError
from ...data.images.dicom.open_dicom import open_data_set
from ...evaluation.progress import Progress
from ...reporting.dicom.dicom_object import DicomObject
from ...reporting.dicom.film_header import is_own_object
from ...reporting.dicom.film_objects import differs, film_label
from .archive import Archive, ArchiveError, Instance
from .film_maker import FilmMaker
from .other_series import unasked_series
from .sending import missing, store
from .transfer_log import TransferLog
from .transfer_summary import TransferSummary

_FAILED_IN_A_ROW: Final = 5
_STUDIES: Final = 64  # of a window, where most have no film left to ask


@dataclass(frozen=True)
class FilmChoice:
    """Which films, and how much of a study. filters: attributes and values of the search. instances and study_bytes:
    more in a study are refused. elsewhere: the objects go to another archive, so films must be de-identified."""

    modalities: tuple[str, ...] = ("CR", "DX")
    filters: tuple[tuple[str, str], ...] = ()
    studies: tuple[str, ...] = ()
    limit: int | None = None
    instances: int = 100
    study_bytes: int = 2 << 30
    elsewhere: bool = False
    dry_run: bool = False


@dataclass
class Film:
    """A film on its way. read: what the maker read, None once it is answered."""

    uid: str
    label: str
    read: Any
    objects: list[DicomObject] = field(default_factory=list)


@dataclass
class Study:
    """A study with its films that are read and not done."""

    uid: str
    films: list[Film]


class Transfer:
    """Takes films from `source`, makes their objects and stores them in `target`.

    One thread reads ahead and one sends, so that the model does not wait for the archive. Each holds about a batch of
    films or a study, whichever is more.
    """

    def __init__(
        self,
        source: Archive,
        target: Archive,
        maker: FilmMaker,
        log: TransferLog,
        choice: FilmChoice,
        progress: Progress,
    ) -> None:
        self._source, self._target, self._maker, self._log = source, target, maker, log
        self._choice, self._progress = choice, progress
        self.summary = TransferSummary(progress.say)
        self._failures = {"reading": 0, "sending": 0}  # in a row; one side may work while the other fails

    def run(self) -> TransferSummary:
        """Transfers all films. Raises ArchiveError, a clause, when going on is useless, and what the maker raises."""
        studies = self._studies()
        reader, sender = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        sent: Future[int] | None = None
        try:
            with self._progress.cell("pacs", len(studies), "studies") as advance:
                windows = self._windows(studies)
                ahead = reader.submit(next, windows, None)
                while (window := ahead.result()) is not None:
                    ahead = reader.submit(next, windows, None)
                    self._answer(window)
                    if sent is not None:
                        advance(sent.result())
                    sent = sender.submit(self._send, window)
                if sent is not None:
                    advance(sent.result())
            if self._source.unusable:
                count = len(self._source.unusable)
                self.summary.problem(f"{count} entries in lists of the archive have no valid UID and were left out.")
        finally:
            for archive in (self._source, self._target):
                archive.tries.stop.set()
            reader.shutdown(cancel_futures=True)
            sender.shutdown()
        return self.summary

    def _studies(self) -> dict[str, list[str]]:
        """Study -> its series of the chosen modalities; a study that was named may have none."""
        found: dict[str, dict[str, None]] = {}  # an archive that ignores a filter lists a series more than once
        one_by_one = [[("StudyInstanceUID", uid)] for uid in self._choice.studies]
        for modality in self._choice.modalities:
            for of_study in one_by_one or [[]]:
                for study, series in self._source.series(modality, (*self._choice.filters, *of_study)):
                    if not self._choice.studies or study in self._choice.studies:
                        found.setdefault(study, {})[series] = None
        for study in self._choice.studies:
            found.setdefault(study, {})
        return {study: list(found[study]) for study in islice(found, self._choice.limit)}

    def _windows(self, studies: dict[str, list[str]]) -> Iterator[list[Study]]:
        """Studies with their films, as many as fill a batch."""
        window = list[Study]()
        for uid, series in studies.items():
            window.append(Study(uid, self._films(uid, series)))
            if len(window) == _STUDIES or sum(len(study.films) for study in window) >= self._maker.batch:
                yield window
                window = []
        if window:
            yield window

    def _films(self, study: str, series: Sequence[str]) -> list[Film]:
        """The films of a study that are not done; none if the study cannot be read."""
        summary, films, size = self.summary, list[Film](), 0
        summary.studies += 1
        try:
            every = (instance for one in series for instance in self._source.instances(study, one))
            listed = list(islice(every, self._choice.instances + 1))
            if series and not listed:
                raise ArchiveError("the archive lists no instance of its series")
            if len(listed) > self._choice.instances:
                raise ArchiveError(f"it has more than {self._choice.instances} instances; see --max-instances")
            for instance in listed:
                if self._log.has(instance.uid):
                    summary.before += 1
                    continue
                summary.films += 1
                label = film_label(instance.uid)
                try:
                    data = self._fetched(instance)
                    size += len(data)
                    if is_own_object(data):  # where an archive lists it as of another modality
                        summary.films -= 1
                        continue
                    film = Film(instance.uid, label, self._maker.read(data, f"The film {label}"))
                    if (film.read.header.uid, str(film.read.header.header.StudyInstanceUID)) != (instance.uid, study):
                        raise ImageError(f"The film {label} gets no DICOM objects: the archive gave another object.")
                    if film.read.header.remark:
                        summary.remark(f"The film {label}: {film.read.header.remark}.")
                    films.append(film)
                except ImageError as error:
                    summary.problem(str(error))
                if size > self._choice.study_bytes:
                    raise ArchiveError(f"its films have more than {self._choice.study_bytes} bytes; see --max-study")
        except ArchiveError as error:
            self._study_failed(study, error, "reading")
            return []
        self._note_others(study, named_in_vain=not series)
        return films

    def _note_others(self, study: str, *, named_in_vain: bool) -> None:
        """Says what else a study has, without fetching it."""
        label, modalities = film_label(study), self._choice.modalities
        try:
            if named_in_vain:
                which = f"{' or '.join(modalities)}{' of --date' if self._choice.filters else ''}"
                self.summary.problem(f"The study {label} has no series of {which} in the archive.")
            for sentence in unasked_series(self._source, study, modalities):
                self.summary.remark(sentence)
        except ArchiveError as error:
            if not error.final:
                self.summary.problem(f"The other series of the study {label} cannot be listed: {error}.")
            self._note_failure(error, "reading")

    def _fetched(self, instance: Instance) -> bytes:
        """The file of a film. Raises ImageError for an instance that is no film, and ArchiveError."""
        name = f"The film {film_label(instance.uid)}"
        if instance.rows == 0 or (instance.frames or 1) > 1:
            why = "no pixels" if instance.rows == 0 else "several frames"
            raise ImageError(f"{name} gets no DICOM objects: the archive says that it has {why}.")
        try:
            data = self._source.fetch(instance)
        except ArchiveError as error:
            self._note_failure(error, "reading")
            raise ImageError(f"{name} cannot be fetched: {error}.") from None
        self._failures["reading"] = 0
        if self._choice.elsewhere:
            with suppress(ImageError):
                header = open_data_set(io.BytesIO(data), ("PatientIdentityRemoved",), pixels=False)
                if header.text("PatientIdentityRemoved") == "YES":
                    return data
            raise ImageError(
                f"{name} is not sent to another archive: it does not say that its patient's identity was removed "
                "(PatientIdentityRemoved); de-identify the study first."
            )
        return data

    def _answer(self, window: Sequence[Study]) -> None:
        """Makes the objects of all films of the studies; a film without objects leaves its study."""
        films = [film for study in window for film in study.films]
        for start in range(0, len(films), self._maker.batch):
            batch = films[start : start + self._maker.batch]
            answers = self._maker.answer([film.read for film in batch])
            for film, objects in zip(batch, answers, strict=True):
                film.read = None
                if isinstance(objects, DataError):
                    self.summary.problem(str(objects))
                else:
                    film.objects = objects
        for study in window:
            study.films = [film for film in study.films if film.objects]

    def _send(self, window: Sequence[Study]) -> int:
        """Sends the objects of the studies; how many studies there are."""
        for study in window:
            try:
                if study.films:
                    self._send_study(study)
                    self._failures["sending"] = 0
            except ArchiveError as error:
                self._study_failed(study.uid, error, "sending")
            study.films = []
        return len(window)

    def _send_study(self, study: Study) -> None:
        """Stores what the archive lacks, and notes the films that are whole there. Raises ArchiveError."""
        summary, absent, kept = self.summary, dict[str, list[DicomObject]](), dict[str, int]()
        size = sum(len(made.content) for film in study.films for made in film.objects)
        if size > self._choice.study_bytes:
            raise ArchiveError(f"its objects have {size} bytes, more than {self._choice.study_bytes}; see --max-study")
        for film in study.films:
            lacking, changed = missing(self._target, film.objects, differs)
            if changed:
                summary.refused += changed
                summary.problem(
                    f"The film {film.label} has {changed} object{'s' * (changed != 1)} in the archive that differ from "
                    "what it has now, under the same UID; none of its objects was sent."
                )
                continue
            absent[film.uid], kept[film.uid] = lacking, len(film.objects) - len(lacking)
        new = [made for lacking in absent.values() for made in lacking]
        if self._choice.dry_run:
            for film in study.films:
                if film.uid in absent:
                    summary.would_send(film.label, absent[film.uid], kept[film.uid])
            return
        failed = store(self._target, new)
        for film in study.films:
            if film.uid not in absent:
                continue
            reasons = [failed[made.uid] for made in absent[film.uid] if made.uid in failed]
            stored = len(absent[film.uid]) - len(reasons)
            summary.stored += stored
            summary.kept += kept[film.uid]
            if reasons:
                summary.failed += len(reasons)
                summary.problem(f"The film {film.label} lacks {len(reasons)} of its objects: {reasons[0]}.")
            else:
                summary.done += 1
                self._log.add(film.uid, film.label, stored, kept[film.uid])

    def _study_failed(self, uid: str, error: ArchiveError, side: str) -> None:
        """Notes a study that fails; the run goes on, unless other studies would fail too. Raises ArchiveError."""
        if not error.final:
            self.summary.problem(f"The study {film_label(uid)} was left out: {error}.")
        self._note_failure(error, side)

    def _note_failure(self, error: ArchiveError, side: str) -> None:
        if error.final:
            raise error
        if error.down:
            self._failures[side] += 1
        if self._failures[side] >= _FAILED_IN_A_ROW:
            raise ArchiveError(
                f"the archive failed {_FAILED_IN_A_ROW} times in a row, at last: {error}; run the same command later",
                final=True,
            )
