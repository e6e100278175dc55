"""Records the outcome of each cell (reused, computed, skipped or failed) in run.json, and reports it to the user."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError, RunError, XBenchError
from ..data.datasets.checking.box_statistics import BY_FILES
from ..data.datasets.checking.patient_counts import count_patients
from ..host.machine_record import code_version
from ..results.cell_key import changed_ingredients, digest_of, same_rows
from ..results.loaded_dataset import LoadedDataset
from ..results.read_images import ImageIndex, drop_parts_of_other_images, other_image, rests_on_images
from ..results.run_directory import RunDirectory
from ..results.run_outcome import RunOutcome, kept_line
from ..results.storage import CellFiles
from ..results.unread_images import unread_cases
from .progress import Progress, cell_summary


@dataclass(frozen=True)
class PlannedCell:
    """A cell that can be computed: what its rows depend on (`ingredients`), and `facts` for its entry in run.json.

    threads: of an engine on the CPU, since the last bits of a row can depend on them; None for everything else.
    warnings: what looks wrong with the model's own files, kind -> sentence.
    """

    model: str
    loaded: LoadedDataset
    findings: Sequence[str]
    ingredients: Mapping[str, Any]
    facts: Mapping[str, Any]
    threads: int | None = None
    warnings: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.model} on {self.loaded.name}"


Work = Callable[[Sequence[PlannedCell], Callable[[int], None]], Sequence[int]]
"""Computes cells of one dataset, counts finished cases, and returns how many it computed of each cell."""


class Finisher:
    """Updates run.json and counts cells in `outcome`. Its methods raise RunError when results cannot be written."""

    def __init__(self, run: RunDirectory, progress: Progress, protocol: str) -> None:
        self._run = run
        self._progress = progress
        self._protocol = protocol
        self.outcome = RunOutcome()
        self._warned: set[tuple[str, str]] = set()

    def files(self, cell: PlannedCell) -> CellFiles:
        """The files of the cell's parts and of its result."""
        return self._run.files(cell.model, cell.loaded.name, self._key(cell))

    def taken_over(self, cell: PlannedCell) -> bool:
        """Whether the cell is on disk already; if so, this is reported and recorded.

        Raises DataError when its file must be read and is damaged, and ConfigError for a name that two models have.
        """
        self._run.check_model(cell.model, cell.facts.get("variant_of"))
        files, entry = self.files(cell), self._entry(cell)
        if not files.finished() or self._other_image(cell) is not None:
            return False
        before = self._run.cell(cell.model, cell.loaded.name)
        self.outcome.reused += 1
        self.outcome.finished_cells[cell.model, cell.loaded.name] = "reused"
        self._progress.say(f"{cell.title}: finished before, reused{_other_protocol(before, entry)}")
        names = ("key", "protocol", "file")
        same = before is not None and before.get("key") == entry["key"]
        self._warn(cell, before["warnings"] if before is not None and same and "warnings" in before else {})
        unread = before is None or before.get("unreadable") or before.get("missing")
        if not same or unread or cell.facts["weights"] == "maps":
            self._unread(cell)
        if before is None or before.get("state") != "done" or any(before.get(n) != entry[n] for n in names):
            threads = {"threads": before["threads"]} if before is not None and same and "threads" in before else {}
            self._note(cell, "done", **entry, **threads, **files.coverage(len(cell.findings)))
        self._run.forget_attempt(cell.model, cell.loaded.name)
        self._index(cell).save(cell.loaded.contents)
        return True

    def begin(self, cell: PlannedCell) -> None:
        """Records that the cell is being computed; if it was finished with other inputs, reports the reason.

        Deletes what is on disk with its key and was made from other images than those there now.
        """
        before, entry = self._run.cell(cell.model, cell.loaded.name), self._entry(cell)
        if before is not None and before.get("state") == "done":
            names = changed_ingredients(before.get("ingredients", {}), cell.ingredients)
            image = None if names else self._other_image(cell)
            if image is not None:
                names = [f"the image of {image}"]
            if names:
                why = f"this changed: {', '.join(names)}"
            else:
                why = f"its result file {before['file']} {self.files(cell).fault()}"
            self._progress.say(f"{cell.title}: computed again, because {why}{_other_protocol(before, entry)}")
        if (cell.loaded.name, "patients") not in self._warned:
            self._warned.add((cell.loaded.name, "patients"))
            self._progress.say(f"{cell.loaded.name}: {count_patients(cell.loaded.cases).sentence}")
        early = cell.loaded.warnings.items()
        self._warn(cell, {warning: text for warning, text in early if warning not in BY_FILES} | dict(cell.warnings))
        self._note(cell, "running", **entry, **self._threads(cell))
        loaded, chunk = cell.loaded, cell.loaded.chunk
        drop_parts_of_other_images(
            self.files(cell), loaded.cases, chunk, loaded.contents, whole=rests_on_images(cell.facts)
        )

    def interrupted(self, cell: PlannedCell) -> None:
        """Records that the cell was interrupted; an error of the disk is ignored."""
        with suppress(RunError):
            self._note(cell, "interrupted", **self._entry(cell), **self._threads(cell))
            self._index(cell).save(cell.loaded.contents)

    def done(self, cell: PlannedCell, computed: int, seconds: float) -> None:
        """Records that the cell is finished; `computed` of its cases were computed now, in `seconds`."""
        coverage = self.files(cell).coverage(len(cell.findings))
        self.outcome.computed += 1
        self.outcome.finished_cells[cell.model, cell.loaded.name] = "computed"
        timing = {"seconds": round(seconds, 3), "computed": computed}
        if computed < len(cell.loaded.cases) and (rests_on_images(cell.facts) or cell.loaded.file_sizes):
            cell.loaded.read_sizes()
        warnings = cell.loaded.warnings | dict(cell.warnings)
        self._warn(cell, warnings)
        details = self._threads(cell, alone=computed == len(cell.loaded.cases))
        details |= {"warnings": warnings} if warnings else {}
        self._index(cell).save(cell.loaded.contents)
        self._note(cell, "done", **self._entry(cell), **coverage, **timing, **details)
        cases, unread = len(cell.loaded.cases), self._unread(cell)
        self._progress.say(f"{cell.title}: {cell_summary(cases, computed, coverage, seconds, unread)}")

    def _threads(self, cell: PlannedCell, *, alone: bool = False) -> dict[str, Any]:
        """The numbers of threads that its rows were computed with; `alone`: none are of an earlier process."""
        if cell.threads is None:
            return {}
        before = self._run.cell(cell.model, cell.loaded.name)
        earlier = before.get("threads", []) if before is not None and before.get("key") == self._key(cell) else []
        return {"threads": sorted({cell.threads, *(() if alone else earlier)})}

    def _warn(self, cell: PlannedCell, warnings: Mapping[str, str]) -> None:
        """Reports each kind of warning about a dataset once."""
        name = cell.loaded.name
        for warning, text in warnings.items():
            if (name, warning) not in self._warned:
                self._warned.add((name, warning))
                self._progress.say(f"{name}: warning: {text}")

    def _unread(self, cell: PlannedCell) -> str:
        """What could not be read of a finished cell, in words; a cell that is mostly unreadable is in the outcome."""
        unread = unread_cases(self.files(cell).final, len(cell.findings), str(cell.facts["weights"]))
        if unread.mostly_lost(part=cell.loaded.config.part):
            name = cell.loaded.name
            self.outcome.mostly_lost.append((cell.model, name, unread.sentence(name)))
        return unread.words(cell.loaded.name)

    def compute(self, cells: Sequence[PlannedCell], work: Work) -> None:
        """Reuses cells that are on disk, and calls `work` for the others. Several are tried alone after an error."""
        try:
            self._compute(cells, work)
        except Exception as error:
            if len(cells) == 1 or isinstance(error, RunError):
                raise
            self._progress.say(f"{cells[0].loaded.name}: each prompt set is computed alone, because of all: {error}")
            for cell in cells:
                if (cell.model, cell.loaded.name) not in self.outcome.finished_cells:
                    self.guarded(cell.model, cell.loaded.name, partial(self._compute, [cell], work))

    def _compute(self, cells: Sequence[PlannedCell], work: Work) -> None:
        left = [cell for cell in cells if not self.taken_over(cell)]
        if not left:
            return
        before = [self._run.cell(cell.model, cell.loaded.name) for cell in left]
        for cell in left:
            self.begin(cell)
        start = time.monotonic()
        title = left[0].title if len(left) == 1 else f"{len(left)} prompt sets on {left[0].loaded.name}"
        try:
            with self._progress.cell(title, len(left[0].loaded.cases)) as advance:
                computed = work(left, advance)
        except (KeyboardInterrupt, RunError):
            for cell in left:
                self.interrupted(cell)
            raise
        seconds = (time.monotonic() - start) / len(left)  # each second counts once
        for cell, count, entry in zip(left, computed, before, strict=True):
            self.done(cell, count, seconds)
            if entry is not None and entry.get("weights") == "live" and entry.get("version") is None:
                self._discard(entry)

    def _discard(self, entry: Mapping[str, Any]) -> None:
        """Deletes the files of a live model without a version: no later run can use them."""
        file = self._run.cells / Path(str(entry.get("file", ""))).name
        if file.suffix == ".parquet":
            file.unlink(missing_ok=True)
            shutil.rmtree(file.with_suffix(".parts"), ignore_errors=True)

    def guarded(self, model: str, dataset: str, run: Callable[[], None]) -> None:
        """Runs the work of one cell; an error in it is recorded, and the other cells still run."""
        try:
            run()
        except RunError:
            raise
        except XBenchError as error:
            self.fail(model, dataset, error)
        # A reader or engine of a third party can raise any exception.
        except Exception as error:
            note = self._run.keep_traceback(model, dataset)
            self.fail(model, dataset, f"unexpected {type(error).__name__}: {error} (details in {note})")

    def fail(self, model: str, dataset: str, why: str | XBenchError) -> None:
        """Records and reports that a cell failed; a result of an earlier run is kept."""
        reason = str(why)
        self.outcome.misused += isinstance(why, ConfigError)
        self.outcome.failed.append((model, dataset, reason))
        self._progress.say(f"{model} on {dataset}: failed: {reason}")
        self._give_up(model, dataset, "failed", reason)

    def skip(self, model: str, dataset: str, reason: str) -> None:
        """Records and reports that a cell is skipped; a result of an earlier run is kept."""
        self.outcome.skipped.append((model, dataset, reason))
        self._progress.say(f"{model} on {dataset}: skipped, {reason}")
        self._give_up(model, dataset, "skipped", reason)

    def remark(self, model: str, dataset: str, text: str) -> None:
        """Reports a remark about a cell that is computed."""
        self._progress.say(f"{model} on {dataset}: {text}")

    def learn(self, loaded: LoadedDataset) -> None:
        """Enters what earlier evaluations in this run directory read of the dataset's images."""
        ImageIndex(self._run.path, loaded.name, loaded.config.root).load(loaded.contents)

    def _ingredients(self, cell: PlannedCell) -> Mapping[str, Any]:
        """The cell's ingredients, as an earlier version wrote them where it began or finished the same cell: its files
        then keep their key, and are finished or continued."""
        before = self._run.cell(cell.model, cell.loaded.name) or {}
        written = before.get("ingredients", {})
        return written if same_rows(written, cell.ingredients) else cell.ingredients

    def _key(self, cell: PlannedCell) -> str:
        return digest_of(self._ingredients(cell))

    def _index(self, cell: PlannedCell) -> ImageIndex:
        return ImageIndex(self._run.path, cell.loaded.name, cell.loaded.config.root)

    def _other_image(self, cell: PlannedCell) -> str | None:
        """The first case of a finished result whose image is another one now."""
        loaded, file = cell.loaded, self.files(cell).final
        return other_image(file, loaded.cases, loaded.contents, whole=rests_on_images(cell.facts))

    def _give_up(self, model: str, dataset: str, state: str, reason: str) -> None:
        if self._run.give_up(model, dataset, state, reason):
            self._progress.say(kept_line(model, dataset))

    def _note(self, cell: PlannedCell, state: str, **details: Any) -> None:
        self._run.set_cell(cell.model, cell.loaded.name, state, **details)

    def _entry(self, cell: PlannedCell) -> dict[str, Any]:
        loaded = cell.loaded
        entry: dict[str, Any] = {
            "key": self._key(cell),
            "code_version": code_version(),
            "file": self.files(cell).final.relative_to(self._run.path).as_posix(),
            "ingredients": dict(self._ingredients(cell)),
            "protocol": self._protocol,
            **cell.facts,
            "title": loaded.dataset.title,
            "reader": loaded.config.reader,
            "classes": list(loaded.dataset.classes),
            "findings": list(cell.findings),
            "cases": len(loaded.cases),
        }
        if loaded.dataset.uncertain_labels:
            entry["uncertain"] = {"policy": loaded.dataset.uncertain, "labels": loaded.dataset.uncertain_labels}
        if loaded.config.part:
            entry["part"] = True
        if loaded.shard is not None:
            span = loaded.span
            entry["shard"] = {**loaded.shard.to_json(), "cases": [span.start, span.stop, len(loaded.all_cases)]}
        return entry


def _other_protocol(before: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> str:
    """The end of the message about a cell that was evaluated by another protocol."""
    old = entry["protocol"] if before is None else before.get("protocol", entry["protocol"])
    return "" if old == entry["protocol"] else f" (protocol {entry['protocol']} instead of {old})"
