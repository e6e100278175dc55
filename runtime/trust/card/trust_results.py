"""Entries of trust directories, and which of them belong to a result of a run.

Results of another bundle, prompt set, dataset or precision, or of images that the run has not seen, are never mixed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....engines.errors import ConfigError, RunError
from ...results.stored_maps import image_hashes
from ..probes.directory import TRUST_FILE, read_trust

if TYPE_CHECKING:
    from ...reporting.studies.study_cell import StudyCell

_SHOWN = 12  # characters of a hash
_NEEDED = ("bundle", "prompt_set", "findings", "dataset", "engine")


@dataclass(frozen=True)
class ProbeEntry:
    """What a trust directory holds of a probe on a model and dataset; data: as in trust.json."""

    folder: Path
    data: Mapping[str, Any]

    @property
    def probe(self) -> str:
        return str(self.data["probe"])

    @property
    def table(self) -> str:
        """Where its verdicts and rows are."""
        return f"{self.folder / 'trust.csv'}, {self.folder / self.data['file']}"

    def fault(self, cell: StudyCell, hashes: Mapping[str, bytes | None]) -> str:
        """Why it is not of this result, or has no answer; empty if it is and has. hashes: case -> image, of the run."""
        state, where = self.data.get("state"), self.folder / TRUST_FILE
        if state == "failed":
            return f"it failed: {str(self.data.get('reason', 'no reason was noted')).rstrip('.')}"
        differs = self.differs(cell)
        if differs:
            return f"results of {differs} in {where}; run trust again with what the run has, in another --out"
        if state != "done":
            return f"it is not finished in {where} ({state}); run the same trust command again"
        return self._other_images(hashes)

    def differs(self, cell: StudyCell) -> str:
        """What is another than in this result; empty if nothing is."""
        tested, run = self.data["ingredients"], cell.rows.entry["ingredients"]
        for name, words in (("bundle", "bundle"), ("prompt_set", "prompt set")):
            if tested[name] != run.get(name):
                return f"another {words} ({_short(tested[name])}, and the run has {_short(run.get(name))})"
        content = (run.get("dataset") or ["", None])[-1]
        if tested["dataset"][-1] != content and not self._of_first_cases(content):
            if tested.get("limit") != run.get("limit"):
                return f"other cases ({_limit(tested.get('limit'))}, and the run has {_limit(run.get('limit'))})"
            return (
                f"another content of the dataset ({_short(tested['dataset'][-1])}, and the run has {_short(content)})"
            )
        asked = run.get("findings", {})
        other = [name for name, finding in tested["findings"].items() if asked.get(name) != finding]
        if other:
            return f"findings that the run did not ask ({', '.join(other)})"
        precision, of_run = (str(text).rpartition(" ")[2] for text in (tested["engine"], run["engine"]))
        return "" if precision == of_run else f"another precision ({precision}, and the run has {of_run})"

    def _of_first_cases(self, content: object) -> bool:
        """Whether it is drawn from the first cases of a dataset with this content, which the run has evaluated whole:
        a run with a limit has another. Each of its images is compared too."""
        return self.data["ingredients"].get("limit") is not None and self.data.get("content") == content

    def _other_images(self, hashes: Mapping[str, bytes | None]) -> str:
        file = self.folder / self.data["file"]
        images = image_hashes(file)
        if not images:
            return f"its rows in {file} are missing or damaged; run the same trust command again"
        other = [
            case
            for case, image in images.items()
            if case not in hashes or (None not in (image, hashes[case]) and image != hashes[case])
        ]
        if hashes and other:
            return (
                f"results of other images in {self.folder / TRUST_FILE} ({len(other)} of {len(images)}, such as "
                f"{other[0]}, are not those of the run); evaluate and test the same files"
            )
        return ""


@dataclass(frozen=True)
class CellTrust:
    """What trust directories say of a result. entries: by probe. faults: probe -> why it has no entry though a
    directory names it."""

    entries: Mapping[str, ProbeEntry]
    faults: Mapping[str, str]

    def on_line(self, number: int, probe: str) -> list[Mapping[str, Any]]:
        """The questions of a probe that belong to a line of the card."""
        entry = self.entries.get(probe)
        return [] if entry is None else [item for item in entry.data["questions"] if item["line"] == number]


class TrustResults:
    """All entries of some trust directories. Raises RunError for a folder that is none, or is damaged."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list({path.resolve(): path for path in folders}.values())
        self._entries = [entry for folder in self.folders for entry in _entries(folder)]
        self._used: set[Path] = set()

    def of_cell(self, cell: StudyCell, file: Path) -> CellTrust:
        """What belongs to a result of a run, whose rows are in `file`. Raises ConfigError where two directories answer
        one probe."""
        named = self._named(cell)
        self._used |= {entry.folder for entry in named}
        hashes = image_hashes(file) if named else {}
        entries: dict[str, ProbeEntry] = {}
        faults: dict[str, str] = {}
        for entry in named:
            fault = entry.fault(cell, hashes)
            if fault:
                faults[entry.probe] = fault
            elif entry.probe in entries:
                both = " and ".join(str(each.folder) for each in (entries[entry.probe], entry))
                raise ConfigError(
                    f"--trust: {both} both hold the probe {entry.probe} of {cell.model} on {cell.dataset}; give one of "
                    "them."
                )
            else:
                entries[entry.probe] = entry
        return CellTrust(entries, {probe: why for probe, why in faults.items() if probe not in entries})

    def _named(self, cell: StudyCell) -> list[ProbeEntry]:
        """The entries of the result's dataset and of its bundle, or of one with its name."""
        made = cell.rows.entry["ingredients"]
        return [
            entry
            for entry in self._entries
            if entry.data["dataset"] == cell.dataset
            and (entry.data["model"] == made.get("model") or entry.data.get("bundle", "") == made.get("bundle"))
        ]

    def out_for(self, cell: StudyCell, default: Path) -> Path:
        """Where to run what is missing of a result: in the first directory that holds nothing else under its name, or
        in a new one, so that no results are lost."""
        others = {
            each.folder for each in self._named(cell) if each.data.get("state") != "failed" and each.differs(cell)
        }
        free = [folder for folder in self.folders or [default] if folder not in others]
        if free:
            return free[0]
        new = (self.folders[0].with_name(f"{self.folders[0].name}-{number}") for number in count(2))
        return next(folder for folder in new if not folder.exists())

    def check_used(self, shown: Sequence[tuple[str, str]]) -> None:
        """Raises ConfigError for a directory of which nothing belongs to a card. shown: model and dataset of each."""
        for folder in self.folders:
            if folder in self._used:
                continue
            held = dict.fromkeys(
                f"{entry.data['model']} on {entry.data['dataset']}" for entry in self._entries if entry.folder == folder
            )
            raise ConfigError(
                f"--trust {folder}: it holds {', '.join(held) or 'no results'}, and the report shows "
                f"{', '.join(f'{model} on {dataset}' for model, dataset in shown)}; give the trust directory of a "
                "bundle and dataset of the report."
            )


def _entries(folder: Path) -> Iterator[ProbeEntry]:
    data = read_trust(folder)
    try:
        for entry in data["cells"].values():
            names = [str(entry[name]) for name in ("model", "dataset", "probe")]
            if entry.get("state") != "failed":
                _ = entry["file"], [entry["ingredients"][name] for name in _NEEDED]
            if entry.get("state") == "done":
                _ = [(item["line"], item["word"], item["value"]) for item in entry["questions"]], entry["notes"]
            assert all(names)
            yield ProbeEntry(folder, entry)
    except (KeyError, TypeError, AttributeError, AssertionError) as error:
        raise RunError(
            f"{folder / TRUST_FILE} does not have what this version reads ({error!r:.100}); run the same trust command "
            "again."
        ) from error


def _short(digest: object) -> str:
    return str(digest)[:_SHOWN] if digest else "none"


def _limit(limit: int | None) -> str:
    return "no --limit" if limit is None else f"--limit {limit}"
