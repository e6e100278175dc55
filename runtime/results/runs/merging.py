"""Merges the shards of an evaluation into one run directory, equal row for row to that of an undivided evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....engines.errors import DataError, RunError
from ...data.datasets.region_boxes import FAULTS
from ..cell_key import changed_ingredients, digest_of
from ..integrity import fault_in_rows
from ..read_images import same_images
from ..run_directory import RunDirectory
from ..run_json import read_run
from ..run_outcome import RunOutcome, kept_line
from ..schema import result_schema, under_new_names
from ..storage import KEY_FIELD, CellFiles, result_fault, write_table
from ..unread_images import unread_cases
from .shards import Shard

_COUNTS = ("cases", "missing", "unreadable", *FAULTS)
_OWN = ("key", "file", *_COUNTS, "seconds", "computed", "shard", "updated", "ingredients", "last_attempt", "threads")
# An evaluation reads only the footer of a finished file without a checksum, so it would reuse this one.
_AGAIN = "delete that file and evaluate that shard again"


@dataclass(frozen=True)
class _Part:
    """The run directory of one shard."""

    path: Path
    shard: Shard
    run: Mapping[str, Any]


class _Unmergeable(Exception):
    """Why one cell cannot be merged."""


def merge_shards(folders: Sequence[Path], out: Path, say: Callable[[str], None]) -> RunOutcome:
    """Merges the cells that every shard has finished into the run directory `out`; the shards are not changed.

    A cell that a shard has not finished, or that was evaluated differently in one of them, counts as failed and does
    not stop the others. `say` receives a line for each cell. Raises RunError when the folders are not shards, or not
    all shards of one evaluation.
    """
    parts = _complete([_part(path) for path in folders])
    if any(part.path.resolve() == out.resolve() for part in parts):
        raise RunError(f"{out} is one of the shards; give another folder with --out.")
    outcome = RunOutcome()
    names = list(dict.fromkeys(name for part in parts for name in part.run["cells"]))
    config = {**parts[0].run.get("config", {}), "shard": None, "merged_from": len(parts)}
    with RunDirectory(out) as run:
        run.begin(config)
        for name in names:
            found = next(part.run["cells"][name] for part in parts if name in part.run["cells"])
            model, dataset = found["model"], found["dataset"]
            try:
                _merge(name, parts, run, outcome, say)
            except _Unmergeable as error:
                outcome.failed.append((model, dataset, str(error)))
                say(f"{model} on {dataset}: not merged: {error}")
                _give_up(run, say, model, dataset, "failed", str(error))
    return outcome


def _part(path: Path) -> _Part:
    run = read_run(path)
    text = run.get("config", {}).get("shard")
    if not isinstance(text, str) or not re.fullmatch(r"\d+/\d+", text):
        raise RunError(f"{path} is not a shard: it was evaluated without --shard; leave it out.")
    return _Part(path, Shard.parse(text), run)


def _complete(parts: Sequence[_Part]) -> list[_Part]:
    """The parts by number. Raises RunError when one is missing, duplicate, or of another evaluation."""
    if not parts:
        raise RunError("Name the shards' folders to merge, such as run/shard-*.")
    of = parts[0].shard.of
    found: dict[int, _Part] = {}
    for part in parts:
        if part.shard.of != of:
            raise RunError(
                f"{part.path} is shard {part.shard} and {parts[0].path} is shard {parts[0].shard}: they are not of one "
                "evaluation; merge them apart."
            )
        other = found.setdefault(part.shard.index, part)
        if other is not part:
            raise RunError(
                f"Shard {part.shard} was given twice, as {other.path} and {part.path}; leave one of them out."
            )
    missing = [str(Shard(index, of)) for index in range(1, of + 1) if index not in found]
    if missing:
        some = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        more = "shard is" if len(missing) == 1 else "shards are"
        raise RunError(f"{len(missing)} {more} missing, of {of}: {some}; evaluate with --shard, or name the folder.")
    return [found[index] for index in sorted(found)]


def _merge(
    name: str, parts: Sequence[_Part], run: RunDirectory, outcome: RunOutcome, say: Callable[[str], None]
) -> None:
    """Merges one cell. Raises _Unmergeable, and RunError when the result cannot be written."""
    entries = [(part, part.run["cells"].get(name)) for part in parts]
    skipped = [entry for _, entry in entries if entry is not None and entry.get("state") == "skipped"]
    if len(skipped) == len(entries):
        model, dataset = skipped[0]["model"], skipped[0]["dataset"]
        reason = skipped[0].get("reason", "no reason was noted")
        outcome.skipped.append((model, dataset, reason))
        say(f"{model} on {dataset}: skipped, {reason}")
        _give_up(run, say, model, dataset, "skipped", reason)
        return
    _check_states(entries)
    done = sorted(((part, entry) for part, entry in entries), key=lambda item: item[1]["shard"]["cases"][:2])
    _check_together(done)
    first = done[0][1]
    ingredients = {key: value for key, value in first["ingredients"].items() if key != "shard"}
    model, dataset, key = first["model"], first["dataset"], digest_of(ingredients)
    files = run.files(model, dataset, key)
    details = {
        **{field: value for field, value in first.items() if field not in (*_OWN, "model", "dataset", "state")},
        "key": key,
        "file": files.final.relative_to(run.path).as_posix(),
        "ingredients": ingredients,
        **{field: sum(entry.get(field, 0) for _, entry in done) for field in _COUNTS},
        **{field: round(sum(entry.get(field, 0) for _, entry in done), 3) for field in ("seconds", "computed")},
    }
    if threads := {count for _, entry in done for count in entry.get("threads", [])}:
        details["threads"] = sorted(threads)
    if files.finished() and same_images(files.final, [part.path / entry["file"] for part, entry in done]):
        outcome.reused += 1
        outcome.finished_cells[model, dataset] = "merged before"
        say(f"{model} on {dataset}: merged before, kept")
    else:
        _join(files, done)
        outcome.computed += 1
        outcome.finished_cells[model, dataset] = "merged"
        say(f"{model} on {dataset}: {details['cases']} cases of {len(done)} shards")
    try:
        unread = unread_cases(files.final, len(first["findings"]), str(first.get("weights", "")))
    except DataError as error:
        raise _Unmergeable(str(error).rstrip(".")) from error
    run.set_cell(model, dataset, "done", **details)
    if words := unread.words(dataset):
        say(f"{model} on {dataset}: {words}")
    if unread.mostly_lost(part=bool(first.get("part"))):
        outcome.mostly_lost.append((model, dataset, unread.sentence(dataset)))
    if fault := first.get("fault"):
        outcome.mostly_lost.append((model, dataset, str(fault)))


def _give_up(run: RunDirectory, say: Callable[[str], None], model: str, dataset: str, state: str, reason: str) -> None:
    if run.give_up(model, dataset, state, reason):
        say(kept_line(model, dataset))


def _check_states(entries: Sequence[tuple[_Part, Mapping[str, Any] | None]]) -> None:
    """Raises _Unmergeable unless every shard has finished the cell."""
    wanting = []
    for part, entry in entries:
        if entry is None:
            wanting.append(f"shard {part.shard} did not evaluate it")
        elif entry.get("state") != "done":
            why = f" ({entry['reason']})" if entry.get("reason") else ""
            wanting.append(f"shard {part.shard} has it as {entry.get('state')}{why}")
        elif not isinstance(entry.get("shard"), dict):
            wanting.append(f"shard {part.shard} has it whole, not as a shard")
    if wanting:
        rest = f", and {len(wanting) - 1} more" if len(wanting) > 1 else ""
        raise _Unmergeable(f"{wanting[0]}{rest}; run those shards again and merge again")


def _check_together(done: Sequence[tuple[_Part, Mapping[str, Any]]]) -> None:
    """Raises _Unmergeable unless the shards were evaluated in the same way, are consecutive, and their files exist."""
    first_part, first = done[0]
    end = 0
    for part, entry in done:
        names = [name for name in changed_ingredients(first["ingredients"], entry["ingredients"]) if name != "shard"]
        # Protocols that sweep alike have the same ingredients, but other numbers follow from the same rows.
        names += ["protocol"] * (not names and entry.get("protocol") != first.get("protocol"))
        if names:
            raise _Unmergeable(
                f"shards {first_part.shard} and {part.shard} are of different evaluations (they differ in "
                f"{', '.join(names)}); evaluate one of them again"
            )
        start, stop, total = entry["shard"]["cases"]
        if start != end or entry["cases"] != stop - start or total != first["shard"]["cases"][2]:
            raise _Unmergeable(f"shard {part.shard} does not begin where the one before it ends; evaluate it again")
        end = stop
        fault = result_fault(part.path / entry["file"], entry["key"])
        if fault:
            raise _Unmergeable(f"the result {part.path / entry['file']} {fault}; evaluate that shard again")
    if end != first["shard"]["cases"][2]:
        raise _Unmergeable("the shards do not cover all its cases; evaluate them again")


def _join(files: CellFiles, done: Sequence[tuple[_Part, Mapping[str, Any]]]) -> None:
    """Writes the merged result, one chunk in memory at a time. Raises RunError or _Unmergeable."""
    tables = (table for part, entry in done for table in _chunks(part.path / entry["file"], entry))
    entry = done[0][1]
    answers, words = entry.get("weights") == "boxes", "words" in entry.get("boxes", {})
    write_table(files.final, tables, result_schema({KEY_FIELD: files.key}, answers=answers, words=words))


def _chunks(source: Path, entry: Mapping[str, Any]) -> Iterator[Any]:
    """The tables of a result file, chunk by chunk as written. Raises _Unmergeable when it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            if file.metadata.num_rows != entry["cases"] * len(entry["findings"]):
                raise _Unmergeable(f"{source} does not hold {entry['cases']} cases; {_AGAIN}")
            for group in range(file.num_row_groups):
                table = under_new_names(file.read_row_group(group))
                fault = fault_in_rows(table, len(entry["findings"]))
                if fault:
                    raise _Unmergeable(f"{source} is damaged: {fault}; {_AGAIN}")
                yield table
    except (OSError, pa.ArrowException) as error:
        raise _Unmergeable(f"{source} cannot be read ({error}); {_AGAIN}") from error
