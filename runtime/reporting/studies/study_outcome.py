"""The outcome of a study, and the folder it is written to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ....engines.errors import MissingExtraError
from ....engines.strict_json import CHECKSUM, checksum_of
from ...host.protocols import PROTOCOLS
from ...results.storage import remove_drafts, write_bytes
from ...results.studied import write_study
from ..figures.figure import Figure
from ..tables.markdown_csv import markdown_text, to_csv, to_markdown
from ..tables.table import Table
from .writing import clean

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class StudyOutcome:
    """The answer of one study.

    name: of the study and its folder. facts: lines about what was studied. tables: to read; data: rows by the name of
    their CSV file, unrounded fractions unless a column says otherwise, also in the JSON file. settings: the arguments
    of the study. files: other files by their path in the folder. remarks: what could not be done, and why. protocol: of
    the results studied, if the run has several (`of_protocol`). results: what it was made from (`Material.basis`), for
    pages that show it.
    """

    name: str
    title: str
    facts: tuple[str, ...]
    tables: tuple[Table, ...]
    data: Mapping[str, Rows]
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    protocol: str = ""
    results: Rows = ()

    def with_figures(self, draw: Callable[[], Sequence[Figure]]) -> StudyOutcome:
        """The outcome with the figures that `draw` draws, or with a remark why there are none."""
        try:
            return replace(self, figures=tuple(draw()))
        except MissingExtraError as error:
            return replace(self, remarks=(*self.remarks, f"No figure: {error}"))


def of_protocol(outcome: StudyOutcome, protocol: str) -> StudyOutcome:
    """The outcome named after the protocol of its block; unchanged if the run has one protocol (empty name)."""
    if not protocol:
        return outcome
    settings = {**outcome.settings, "protocol": protocol}
    return replace(outcome, title=f"{outcome.title}, protocol {protocol}", settings=settings, protocol=protocol)


def study_folder(run: Path, name: str) -> Path:
    """The folder of a study of a run."""
    return run / "studies" / name


def write_outcomes(outcomes: Sequence[StudyOutcome], folder: Path, *, raw_csv: bool = False) -> list[list[Path]]:
    """Writes the first into `folder` and each other beside it, into FOLDER-PROTOCOL; returns the paths of each.
    raw_csv: as `raw` of `to_csv`.

    Files of earlier studies of protocols that are not among these are deleted. Raises RunError as `write_outcome`.
    """
    folders = [folder, *(_block_folder(folder, outcome.protocol) for outcome in outcomes[1:])]
    written = [write_outcome(outcome, place, raw_csv) for outcome, place in zip(outcomes, folders, strict=True)]
    for other in (_block_folder(folder, protocol) for protocol in PROTOCOLS):
        if other not in folders:
            record = f"{outcomes[0].name}.json"
            earlier = [other / name for name in _written_before(other / record)]
            for path in [*earlier, *([other / record] if earlier else [])]:
                path.unlink(missing_ok=True)
            for place in {path.parent for path in earlier} | {other}:
                with suppress(OSError):  # other files stay
                    place.rmdir()
    return written


def _block_folder(folder: Path, protocol: str) -> Path:
    return folder.with_name(f"{folder.name}-{protocol}")


def write_outcome(outcome: StudyOutcome, folder: Path, raw_csv: bool = False) -> list[Path]:
    """Writes NAME.md, NAME.json, a CSV file per kind of row and the figures; returns their paths.

    Files that an earlier study of the same name left in `folder` and this one does not write are deleted. Raises
    RunError when a file cannot be written.
    """
    images = [f"![{markdown_text(f.title)}]({f.name}.png)\n\n{markdown_text(f.caption)}" for f in outcome.figures]
    facts = (*outcome.facts, *outcome.remarks)
    document = "\n\n".join([to_markdown(outcome.title, facts, outcome.tables).rstrip("\n"), *images]) + "\n"
    contents: dict[str, bytes] = {f"{outcome.name}.md": document.encode()}
    contents |= {
        f"{name}.csv": to_csv([{key: clean(value) for key, value in row.items()} for row in rows], raw=raw_csv).encode()
        for name, rows in outcome.data.items()
    }
    for figure in outcome.figures:
        contents |= figure.files
    contents |= dict(outcome.files)
    record = f"{outcome.name}.json"
    before = _written_before(folder / record)
    remove_drafts(folder)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    write_study(
        folder / record,
        {
            "study": outcome.name,
            "title": outcome.title,
            "settings": {key: clean(value) for key, value in outcome.settings.items()},
            "facts": list(facts),
            "notes": [*dict.fromkeys(note for table in outcome.tables for note in table.notes)],
            "files": sorted(contents),
            "checksums": {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)},
            "figures": [{"name": each.name, "title": each.title, "caption": each.caption} for each in outcome.figures],
            "results": list(outcome.results),
            **{
                name: [{key: clean(value) for key, value in row.items()} for row in rows]
                for name, rows in outcome.data.items()
            },
        },
    )
    for name in before - contents.keys():
        (folder / name).unlink(missing_ok=True)
    return [folder / name for name in (*contents, record)]


def _written_before(record: Path) -> set[str]:
    """Files that an earlier study wrote, without any outside its folder; none by a damaged record, which may name
    files of others."""
    try:
        earlier = json.loads(record.read_text(encoding="utf-8"))
        if CHECKSUM in earlier and earlier[CHECKSUM] != checksum_of(earlier):
            return set()
        names = [str(name) for name in earlier["files"]]
        folder = record.parent.resolve()
        return {name for name in names if (folder / name).resolve().is_relative_to(folder)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
