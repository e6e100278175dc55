"""What run.json must hold, so that its readers need no checks of their own: a file on a disk may hold anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["fault_in_run"]

_Kinds = Mapping[str, type]

_RUN: Final[_Kinds] = {
    "created": str,
    "updated": str,
    "code_version": str,
    "machine": dict,
    "config": dict,
    "cells": dict,
}
_CELL: Final[_Kinds] = {"model": str, "dataset": str, "state": str}
_DONE: Final[_Kinds] = {"key": str, "file": str, "title": str, "weights": str, "findings": list, "ingredients": dict}
_OPTIONAL: Final[_Kinds] = {
    "reason": str,
    "protocol": str,
    "model_family": str,
    "reader": str,
    "cases": int,
    "missing": int,
    "unreadable": int,
    "last_attempt": dict,
    "shard": dict,
}
_ATTEMPT: Final[_Kinds] = {"state": str, "reason": str, "at": str}
_WORDS: Final = {str: "a text", dict: "an object", list: "a list", int: "a whole number"}


def fault_in_run(data: Mapping[str, Any]) -> str | None:
    """The first thing that is wrong with the content of a run.json, in words; None when its readers can use it."""
    return next(_faults(data), None)


def _faults(data: Mapping[str, Any]) -> Iterator[str]:
    """Later checks rest on earlier ones: only the first fault may be asked for."""
    yield from _missing("it", data, _RUN)
    yield from _missing("'machine'", data["machine"], {"cpu": str, "cores": int})
    yield from _odd("'machine'", data["machine"], {"libraries": dict})
    yield from _faults_of_config(data["config"])
    for name, entry in data["cells"].items():
        where = f"the cell '{name}'"
        if not isinstance(entry, dict):
            yield f"{where} is no object"
        yield from _missing(where, entry, _CELL)
        if name != f"{entry['model']}--{entry['dataset']}":
            yield f"{where} is of {entry['model']} on {entry['dataset']}"
        yield from _odd(where, entry, _OPTIONAL)
        if "last_attempt" in entry:
            yield from _missing(f"'last_attempt' of {where}", entry["last_attempt"], _ATTEMPT)
        if entry["state"] == "done":
            yield from _faults_of_result(where, entry)


def _faults_of_config(config: Mapping[str, Any]) -> Iterator[str]:
    yield from _odd("'config'", config, {"bundles": list, "datasets": dict})
    if not _texts(config.get("bundles", [])):
        yield "'bundles' of 'config' is no list of names"
    if not isinstance(config.get("cache"), str | None):
        yield "'cache' of 'config' is no path"
    for name, told in config.get("datasets", {}).items():
        where = f"the dataset '{name}' of 'config'"
        if not isinstance(told, dict):
            yield f"{where} is no object"
        yield from _odd(where, told, {"root": str, "reader": str, "options": dict})


def _faults_of_result(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    yield from _missing(where, entry, _DONE)
    findings, made = entry["findings"], entry["ingredients"]
    if not findings or not _texts(findings) or len(set(findings)) < len(findings):
        yield f"'findings' of {where} is no list of different names"
    for name in ("engine", "limit"):
        if name not in made:
            yield f"'ingredients' of {where} has no '{name}'"
    yield from _odd(f"'ingredients' of {where}", made, {"dataset": list, "prompt_set": str})
    if len(made.get("dataset", ["", ""])) != 2:
        yield f"'dataset' of {where} is not a name and a hash"
    for name in ("grid", "map_size"):
        if not _is_size(entry.get(name)):
            yield f"'{name}' of {where} is not a height and a width"
    if "shard" in entry:
        yield from _missing(f"'shard' of {where}", entry["shard"], {"index": int, "of": int})


def _missing(where: str, data: Mapping[str, Any], kinds: _Kinds) -> Iterator[str]:
    yield from (f"{where} has no '{name}'" for name in kinds if name not in data)
    yield from _odd(where, data, kinds)


def _odd(where: str, data: Mapping[str, Any], kinds: _Kinds) -> Iterator[str]:
    for name, kind in kinds.items():
        if name in data and not _is(data[name], kind):
            yield f"'{name}' of {where} is not {_WORDS[kind]}"


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_size(value: object) -> bool:
    """Two sides, or none at all."""
    if value is None:
        return True
    return isinstance(value, list) and len(value) == 2 and all(_is(side, int) and side > 0 for side in value)
