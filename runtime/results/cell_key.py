"""The key of a cell: one hash of everything that its result depends on. Equal keys mean equal rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
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
    """A hash of the code that reads a dataset: its class's module and what this imports. Raises DataError."""
    return code_digest([type(dataset).__module__])


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
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


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
