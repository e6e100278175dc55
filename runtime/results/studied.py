"""What a study was made from, as its file says it, and whether a run has the same now (docs/studies.md §4).

The key of a cell does not hold the images, so a study names the checksum of the rows themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...engines.errors import RunError
from ...engines.strict_json import CHECKSUM, checksum_of
from ..host.machine_record import code_version
from .integrity import file_digest
from .load_rows import StoredRun
from .storage import write_json


def basis_of(run: StoredRun, model: str, dataset: str) -> dict[str, str]:
    """A finished result as a study names it: model, dataset, protocol, and in `rows` the checksum of its file.

    Raises RunError when the file cannot be read.
    """
    entry = run.entry(model, dataset)
    path = run.path / entry["file"]
    try:
        rows = file_digest(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; run the same eval command again.") from error
    return {"model": model, "dataset": dataset, "protocol": str(entry.get("protocol", "default")), "rows": rows}


def predicted_boxes(run: StoredRun, datasets: Iterable[str]) -> list[tuple[str, str]]:
    """Model and dataset of the finished results of predicted boxes on these datasets: the study of errors takes their
    true boxes for maps too."""
    wanted = set(datasets)
    entries = ((name, run.entry(*name)) for name in run.finished)
    return [name for name, entry in entries if name[1] in wanted and entry["weights"] == "boxes"]


def write_study(file: Path, record: Mapping[str, Any]) -> None:
    """Writes a study, whole or not at all, with the version of the code and a checksum. Raises RunError."""
    body = {**record, "code_version": code_version()}
    write_json(file, {**body, CHECKSUM: checksum_of(body)})


def read_study(file: Path) -> dict[str, Any]:
    """The content of a study's file. Raises RunError for one that is damaged, or of a version without a checksum."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        whole = isinstance(record, dict) and record.get(CHECKSUM) == checksum_of(record)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file} cannot be read ({error}).") from error
    if not isinstance(record, dict) or not (whole or CHECKSUM not in record):
        raise RunError(f"{file} is damaged: its checksum does not match.")
    if not whole:
        raise RunError(f"{file} was written by a version that did not say which results a study is of.")
    return record


def stale(record: Mapping[str, Any], now: Iterable[Mapping[str, Any]], draws: Mapping[str, Any]) -> str:
    """Why a study is not of what a run has now, as the end of a sentence that begins with the study; empty if it is.

    now: the results that it must be of, as `basis_of` gives them, or with more that must be the same. draws: settings
    of the resampling that must be the same.
    """
    if record["code_version"] != code_version():
        return f"was made by version {record['code_version']}"
    studied = {(each["model"], each["dataset"]): each for each in record["results"]}
    for result in now:
        named = studied.get((result["model"], result["dataset"]), {})
        other = [name for name, value in result.items() if named.get(name) != value]
        if "model" in other or "rows" in other or "pairs" in other:
            return "is of earlier results"
        if "protocol" in other:
            return f"is by the protocol {named['protocol']}"
        if other:
            return f"is of other {other[0]}"
    if any(record["settings"].get(name) != value for name, value in draws.items()):
        told = (f"--{name} {record['settings'].get(name)}" for name in draws)
        return f"was made with {' '.join(told)}"
    return ""
