"""Reads and writes run.json, and checks its content. It holds a checksum of its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ...engines.errors import RunError
from ...engines.file_names import joined
from ...engines.strict_json import CHECKSUM, checksum_of
from .storage import write_json

RUN_FILE = "run.json"
RUN_SCHEMA = 1

_AGAIN = "delete that file and run eval again: results in cells/ are reused."

_Side = Annotated[int, msgspec.Meta(gt=0)]


class _Machine(msgspec.Struct):
    cpu: str
    cores: int
    libraries: dict[str, Any] = {}


class _Dataset(msgspec.Struct):
    root: str = ""
    reader: str = ""
    options: dict[str, Any] = {}


class _Config(msgspec.Struct):
    bundles: list[str] = []
    datasets: dict[str, Any] = {}
    cache: str | None = None


class _Run(msgspec.Struct):
    created: str
    updated: str
    code_version: str
    machine: _Machine
    config: _Config
    cells: dict[str, Any]


class _Attempt(msgspec.Struct):
    state: str
    reason: str
    at: str


class _Uncertain(msgspec.Struct):
    policy: Literal["ignore", "positive", "negative"]
    labels: int


class _Cell(msgspec.Struct):
    model: str
    dataset: str
    state: str
    reason: str = ""
    protocol: str = ""
    model_family: str = ""
    reader: str = ""
    cases: int = 0
    missing: int = 0
    unreadable: int = 0
    warnings: dict[str, str] = {}
    last_attempt: _Attempt | msgspec.UnsetType = msgspec.UNSET
    shard: dict[str, Any] = {}
    uncertain: _Uncertain | msgspec.UnsetType = msgspec.UNSET


class _Shard(msgspec.Struct):
    index: int
    of: int


class _Ingredients(msgspec.Struct):
    engine: Any
    limit: Any
    dataset: tuple[Any, Any] = ("", "")
    prompt_set: str = ""
    intensity: str = ""


class _Prompts(msgspec.Struct):
    set: str
    queries: int
    status: dict[str, str]


class _Result(msgspec.Struct):
    key: str
    file: str
    title: str
    weights: str
    findings: Annotated[list[str], msgspec.Meta(min_length=1)]
    ingredients: _Ingredients
    grid: tuple[_Side, _Side] | None = None
    map_size: tuple[_Side, _Side] | None = None
    smoothing: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    activation: str = ""
    resized: str = ""
    shard: _Shard | msgspec.UnsetType = msgspec.UNSET
    prompts: _Prompts | msgspec.UnsetType = msgspec.UNSET


def read_run(path: Path) -> dict[str, Any]:
    """The content of run.json in the run directory `path`. Raises RunError when there is none or it is damaged.

    The returned content is valid, so that its readers need no checks of their own. A file without a checksum was
    written by an older version. The keys of `cells` are what `joined` gives, also where an older version wrote another.
    """
    source = path / RUN_FILE
    if not source.is_file():
        inside = sorted(str(found.parent) for found in path.glob(f"*/{RUN_FILE}"))
        advice = f"make one with xbench-fast eval --out {path}"
        if inside:
            advice = f"name those in it: {', '.join(inside[:5])}{', ...' * (len(inside) > 5)}"
        raise RunError(f"{path} is no run directory: it holds no {RUN_FILE}; {advice}.")
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
        whole = not isinstance(data, dict) or CHECKSUM not in data or data[CHECKSUM] == checksum_of(data)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{source} cannot be read ({error}); {_AGAIN}") from error
    if not isinstance(data, dict):
        raise RunError(f"{source} is damaged: it is no object; {_AGAIN}")
    if data.get("schema") != RUN_SCHEMA:
        raise RunError(f"{source} was written by another version; use a new --out directory.")
    fault = _fault(data) if whole else "its checksum does not match"
    if fault is not None:
        raise RunError(f"{source} is damaged: {fault}; {_AGAIN}")
    cells = {joined(entry["model"], entry["dataset"]): entry for entry in data["cells"].values()}
    return {key: value for key, value in data.items() if key != CHECKSUM} | {"cells": cells}


def store_run(path: Path, data: Mapping[str, Any]) -> None:
    """Writes run.json into the run directory `path`, whole or not at all, with its checksum. Raises RunError."""
    write_json(path / RUN_FILE, {**data, CHECKSUM: checksum_of(data)})


def _fault(data: Mapping[str, Any]) -> str | None:
    """The first fault in the content of a run.json, in words; None when it is valid."""
    where = ""
    try:
        run = msgspec.convert(data, _Run)
        for name, told in run.config.datasets.items():
            where = f"the dataset '{name}' of 'config': "
            msgspec.convert(told, _Dataset)
        for name, entry in run.cells.items():
            where = f"the cell '{name}': "
            cell = msgspec.convert(entry, _Cell)
            # Older versions wrote no digest where a name contains the separator.
            if name not in (joined(cell.model, cell.dataset), f"{cell.model}--{cell.dataset}"):
                return f"{where}it is of {cell.model} on {cell.dataset}"
            if cell.state == "done":
                result = msgspec.convert(entry, _Result)
                if len(set(result.findings)) < len(result.findings):
                    return f"{where}its `findings` name one twice"
    except (msgspec.ValidationError, UnicodeError) as error:  # UnicodeError for half of a surrogate pair
        return f"{where}{error}"
    return None
