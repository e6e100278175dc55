"""The key of a cell: one hash of everything that its result depends on. Equal keys mean equal rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engines.errors import DataError
from ..host.code_numbers import code_number
from ..host.former_code import renewed
from ..host.source_code import PROJECT, code_digest
from .schema import RESULT_VERSION

if TYPE_CHECKING:
    from ...engines.base import EngineInfo
    from ...engines.bundle import Bundle
    from ...engines.prompts.prompt_set import PromptSet
    from ..data.datasets.dataset import Case, Dataset
    from ..host.config import DatasetConfig

_TOGETHER = 4096  # cases whose annotations are written as JSON at once


def digest_of(value: object) -> str:
    """sha256 of `value` as canonical JSON."""
    return _digests([value])[0]


def dataset_digest(dataset: Dataset, cases: Sequence[Case], config: DatasetConfig) -> str:
    """A hash of a dataset's configuration and content.

    It covers the content of the annotation files, the reader's name and options, the classes, and per case its id,
    labels, classes with a region, and the image's path relative to the root. Not the content of the images, which is
    hashed when they are read and stored with the rows. Raises DataError when a file cannot be read.
    """
    about = [config.reader, dict(config.options), list(dataset.classes)]
    sha = hashlib.sha256("".join(_digests([about, _sources(dataset, config.root)])).encode())
    for start in range(0, len(cases), _TOGETHER):
        sha.update("".join(_digests(_facts(cases[start : start + _TOGETHER], config.root))).encode())
    return sha.hexdigest()


def annotation_digest(dataset: Dataset) -> str:
    """A hash of the annotation files, the classes and the reader's code, independent of the dataset's folder.

    Raises DataError when a file cannot be read.
    """
    return digest_of([list(dataset.classes), _sources(dataset, dataset.root), reader_code(dataset)])


def reader_code(dataset: Dataset) -> str:
    """What reads a dataset: numbers for the built-in readers, and a hash of the user's code for a reader of their own.

    Raises DataError when that code cannot be read.
    """
    module, part = type(dataset).__module__, reader_part(type(dataset))
    numbers = [code_number("reading"), *([code_number(part)] if part else [])]
    return "+".join(numbers if module.startswith(f"{PROJECT}.") else [*numbers, code_digest([module])])


def reader_part(reader: type[Dataset]) -> str | None:
    """The part of `NUMBERS` that a reader belongs to: that of the built-in reader from which it derives.

    None for a user's reader that derives from no built-in one. `vindr_kaggle` shares the part of `vindr`.
    """
    built_in = [each for each in reader.__mro__ if each.__module__.startswith(f"{PROJECT}.") and "name" in vars(each)]
    return f"reader {vars(built_in[-1])['name']}" if built_in else None


def cases_digest(cases: Sequence[Case], root: Path) -> str:
    """A hash of the annotations of `cases`, and of the paths relative to `root` and the sizes of their images.

    Times are not included: they can differ between copies of the images on several machines.
    """
    return digest_of([[*facts, _size(case.image)] for case, facts in zip(cases, _facts(cases, root), strict=True)])


def cell_ingredients(
    bundle: Bundle,
    prompts: PromptSet,
    findings: Mapping[str, str],
    dataset: tuple[str, str],
    info: EngineInfo,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that a cell's rows depend on, by name; the cell's key is its `digest_of`.

    `dataset` is its name and digest, `options` holds the code, decoder, batch, chunk, limit and the sweep: the batch
    decides the shapes of a GPU engine's inputs, and therefore the last bits of its outputs.
    """
    prompt_digest = digest_of([asdict(prompts.record()), hashlib.sha256(prompts.features.tobytes()).hexdigest()])
    return {
        "result_version": RESULT_VERSION,
        "bundle": bundle.digest,
        "model": bundle.name,
        "prompt_set": prompt_digest,
        "findings": dict(findings),
        "dataset": list(dataset),
        "engine": f"{info.backend} {info.precision}",
        **options,
    }


def reference_ingredients(
    name: str, description: str, dataset: tuple[str, str], options: Mapping[str, Any]
) -> dict[str, Any]:
    """As `cell_ingredients`, for a baseline or a folder of maps: it has no bundle and reads no image."""
    return {
        "result_version": RESULT_VERSION,
        "model": name,
        "map": description,
        "dataset": list(dataset),
        "engine": "none",
        **options,
    }


def changed_ingredients(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Names of the ingredients that differ, for the message that gives the reason for a new computation."""
    old, new = renewed_ingredients(old), renewed_ingredients(new)
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def same_rows(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether rows with the ingredients `old`, perhaps of an earlier version, are those of `new`."""
    return digest_of(renewed_ingredients(old)) == digest_of(new)


def renewed_ingredients(ingredients: Mapping[str, Any]) -> dict[str, Any]:
    """The ingredients of a cell, with numbers in place of the hashes of code that an earlier version wrote."""
    now = dict(ingredients)
    for name in ("code", "reader", "decoder"):
        if name in now:
            now[name] = renewed(str(now[name]))
    if {"map", "dataset", "reader"} <= now.keys():
        # Maps that depend on the regions of all cases are described with `LoadedDataset.regions_digest`. It is known
        # here unless a limit was set: the dataset's digest is then that of the limited cases.
        written, today = (digest_of([now["dataset"][-1], reader]) for reader in (ingredients["reader"], now["reader"]))
        now["map"] = str(now["map"]).replace(written, today)
    return now


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the dataset's folder.") from error


def relative_paths(paths: Iterable[Path], root: Path) -> list[str]:
    """The paths below `root`, as in a URL; the whole path of a file that is elsewhere."""
    return [path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix() for path in paths]


def _sources(dataset: Dataset, root: Path) -> list[tuple[str, str]]:
    """The annotation files below `root`, with the digests of their content."""
    files = dataset.sources()
    return sorted(zip(relative_paths(files, root), map(_file_digest, files), strict=True))


def _facts(cases: Sequence[Case], root: Path) -> list[list[object]]:
    """The annotations of each case, then the path of its image."""
    found = list[list[object]]()
    for case, image in zip(cases, relative_paths((case.image for case in cases), root), strict=True):
        phrases = [sorted(case.phrases.items())] if case.phrases else []
        said = [case.case_id, case.patient_id, sorted(case.labels.items()), sorted(case.regions)]
        found.append([*said, *phrases, image])
    return found


def _digests(values: Sequence[object]) -> list[str]:
    """sha256 of each value as canonical JSON."""
    how: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":"), "default": str}
    return [hashlib.sha256(json.dumps(value, **how).encode()).hexdigest() for value in values]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
