"""The key of a cell: one hash of everything that its result depends on. Equal keys mean equal rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engines.errors import DataError
from ..host.source_code import code_digest
from .schema import RESULT_VERSION

if TYPE_CHECKING:
    from ...engines.base import EngineInfo
    from ...engines.bundle import Bundle
    from ...engines.prompts.prompt_set import PromptSet
    from ..datasets.base import Case, Dataset
    from ..host.config import DatasetConfig

__all__ = [
    "annotation_digest",
    "cases_digest",
    "cell_ingredients",
    "changed_ingredients",
    "dataset_digest",
    "digest_of",
    "reader_code",
    "reference_ingredients",
    "relative_path",
]


def digest_of(value: object) -> str:
    """sha256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def dataset_digest(dataset: Dataset, cases: Sequence[Case], config: DatasetConfig) -> str:
    """A hash of a dataset's configuration and content.

    It covers the content of the annotation files, the reader's name and options, the classes, and per case its id,
    labels, classes with a region, and the image's path relative to the root. Not the content of the images, which is
    hashed when they are read and stored with the rows. Raises DataError when a file cannot be read.
    """
    sha = hashlib.sha256()

    def add(value: object) -> None:
        sha.update(digest_of(value).encode())

    add([config.reader, dict(config.options), list(dataset.classes)])
    add(sorted((relative_path(path, config.root), _file_digest(path)) for path in dataset.sources()))
    for case in cases:
        sha.update(digest_of(_facts(case, config.root)).encode())
    return sha.hexdigest()


def annotation_digest(dataset: Dataset) -> str:
    """A hash of the annotation files, the classes and the reader's code, independent of the dataset's folder.

    Raises DataError when a file cannot be read.
    """
    files = sorted((relative_path(path, dataset.root), _file_digest(path)) for path in dataset.sources())
    return digest_of([list(dataset.classes), files, reader_code(dataset)])


def reader_code(dataset: Dataset) -> str:
    """A hash of the code that reads a dataset: its class's module and what this imports. Raises DataError."""
    return code_digest([type(dataset).__module__])


def cases_digest(cases: Sequence[Case], root: Path) -> str:
    """A hash of the annotations of `cases`, and of the paths relative to `root` and the sizes of their images.

    Times are not included: they can differ between copies of the images on several machines.
    """
    return digest_of([[*_facts(case, root), _size(case.image)] for case in cases])


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
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the dataset's folder.") from error


def relative_path(path: Path, root: Path) -> str:
    """The path below `root`, as in a URL; the whole path of a file that is elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def _facts(case: Case, root: Path) -> list[object]:
    """The annotations of a case, then the path of its image."""
    said = [case.case_id, case.patient_id, sorted(case.labels.items()), sorted(case.regions)]
    phrases = [sorted(case.phrases.items())] if case.phrases else []
    return [*said, *phrases, relative_path(case.image, root)]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
