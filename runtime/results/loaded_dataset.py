"""Opens a configured dataset for an evaluation: its reader, the evaluated cases, and their digest."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engines.errors import ConfigError, DataError, ImageError
from ...engines.registry import did_you_mean, is_file
from ..data.datasets.dataset import Case, Dataset
from ..data.datasets.dataset_registry import DATASETS
from ..data.images.contents import Contents
from ..data.images.size import image_size
from ..host.config import DatasetConfig
from ..host.former_code import FORMER
from ..host.paths import has_file, has_folder
from .cell_key import dataset_digest, digest_of, reader_code

if TYPE_CHECKING:
    from ..data.datasets.checking.turned_images import TurnedImage
    from .load_rows import StoredRun
    from .runs.shards import Shard


@dataclass(frozen=True)
class LoadedDataset:
    """A dataset opened for an evaluation: at most `limit` cases, and of those the ones of `shard`.

    `all_cases`: within the limit; `cases`: those at the positions `span`; `digest`: of the content of `all_cases`;
    `contents`: what is known of the image files; `file_sizes`: case -> (height, width) of those that were read so far.
    """

    config: DatasetConfig
    dataset: Dataset
    limit: int | None = None
    shard: Shard | None = None
    chunk: int = 1
    contents: Contents = field(default_factory=Contents)
    file_sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def asked(self) -> Sequence[Case]:
        """The cases of the dataset without those that have no phrase, if it asks phrases."""
        cases = self.dataset.cases()
        return [case for case in cases if case.phrases] if self.dataset.asks_phrases else cases

    @cached_property
    def all_cases(self) -> Sequence[Case]:
        cases = self.asked
        return cases if self.limit is None else cases[: self.limit]

    @cached_property
    def span(self) -> range:
        count = len(self.all_cases)
        return range(count) if self.shard is None else self.shard.span(self.name, count, self.chunk)

    @cached_property
    def cases(self) -> Sequence[Case]:
        return self.all_cases[self.span.start : self.span.stop]

    def read_sizes(self) -> None:
        """Enters the sizes of the images with regions that another process read, from their headers."""
        for case in self.cases:
            if case.regions and case.case_id not in self.file_sizes:
                with suppress(ImageError):
                    self.file_sizes[case.case_id] = image_size(case.image)

    @property
    def warnings(self) -> dict[str, str]:
        """What looks wrong with the annotation, kind -> sentence, by its notes, all boxes, the sizes of images read so
        far and their EXIF orientations."""
        from ..data.datasets.checking.box_statistics import box_warnings
        from ..data.datasets.checking.note_warnings import REPEATED_NOTES, note_warnings

        boxes = box_warnings(self.dataset, self.all_cases, self.file_sizes, self._turned)
        return note_warnings(self.dataset.notes, REPEATED_NOTES) | boxes

    @cached_property
    def _turned(self) -> dict[str, TurnedImage]:
        from ..data.datasets.checking.turned_images import turned_images

        return turned_images(self.all_cases)

    @cached_property
    def digest(self) -> str:
        return dataset_digest(self.dataset, self.all_cases, self.config)

    @cached_property
    def whole_digest(self) -> str:
        """A hash of the content of the dataset without a limit: that of an evaluation of all its cases."""
        cases = self.dataset.cases()
        return self.digest if len(cases) == len(self.all_cases) else dataset_digest(self.dataset, cases, self.config)

    @cached_property
    def regions_digest(self) -> str:
        """A hash of all regions of the dataset: of its content without a limit, and of the code that reads it."""
        return digest_of([self.whole_digest, reader_code(self.dataset)])

    @property
    def former_regions_digests(self) -> list[str]:
        """What earlier versions gave as `regions_digest` of the same regions."""
        return [digest_of([self.whole_digest, code]) for code in FORMER.get(reader_code(self.dataset), ())]


def check_reader(config: DatasetConfig) -> None:
    """Raises ConfigError when the dataset's reader is no known name, or is in a Python file that does not exist."""
    reader, known = config.reader, DATASETS.names()
    if is_file(reader) and not has_file(Path(reader.rpartition(":")[0])):
        DATASETS.load(reader)  # raises
    if reader in known or ":" in reader:
        return
    hint = did_you_mean(reader, known)
    if reader != config.name:
        raise ConfigError(f"Unknown reader '{reader}': {hint}.")
    raise ConfigError(
        f"Unknown dataset '{reader}': {hint}; for a name of your own, state the reader, such as --data-option "
        f'{reader}.reader=yolo, or reader = "yolo" in [datasets.{reader}] of xbench.toml.'
    )


def load_dataset(
    config: DatasetConfig,
    limit: int | None = None,
    shard: Shard | None = None,
    chunk: int = 1,
    *,
    verify: bool = False,
) -> LoadedDataset:
    """Opens the dataset and reads its cases; `limit`, `shard` and `chunk` as in `LoadedDataset`, `verify` as
    in `Contents`.

    Raises ConfigError (reader, options) or DataError (files).
    """
    check_reader(config)
    reader: Any = DATASETS.load(config.reader)
    if not (inspect.isclass(reader) and issubclass(reader, Dataset)):
        raise ConfigError(
            f"The reader '{config.reader}' of dataset '{config.name}' is not a class derived from Dataset."
        )
    faults = reader.unknown_options(config.name, config.options)
    wrong = DataError if not faults else ConfigError
    if not has_folder(config.root):
        faults.append(
            f"The folder {config.root} of dataset '{config.name}' does not exist or may not be entered; correct its "
            "root."
        )
    if faults:
        raise wrong(" ".join(faults))
    options = dict(config.options)
    if "title" in reader.option_help and not options.keys() & {"name", "title"}:
        options["title"] = config.name  # a run can have several datasets of a common format
    dataset = reader(config.root, **options)
    dataset.configured = config.name
    loaded = LoadedDataset(config, dataset, limit, shard, chunk, Contents(verify=verify))
    if not loaded.all_cases:
        what = "asks no phrase" if dataset.asks_phrases and dataset.cases() else "has no cases"
        raise DataError(f"The dataset '{config.name}' in {config.root} {what}; check its root and its options.")
    return loaded


def current_dataset(run: StoredRun, name: str, datasets: Mapping[str, DatasetConfig]) -> DatasetConfig:
    """Where a dataset is now and how it is read: by `datasets`, else by the run's configuration.

    Of a dataset with nothing but a folder, as --data NAME=PATH gives it, reader and options are the run's. Raises
    DataError when the run does not name the dataset, or its reader is not one of the known names: a run directory may
    be untrusted, and code that it names is not run.
    """
    given = datasets.get(name)
    plain = given is not None and given.reader == name and not given.options
    entry = run.data["config"].get("datasets", {}).get(name)
    known = isinstance(entry, Mapping) and {"root", "reader"} <= set(entry)
    if given is not None and not (plain and known and entry["reader"] in DATASETS.names()):
        return given
    if not known:
        raise DataError(f"The run's configuration does not say where the dataset '{name}' is.")
    if entry["reader"] not in DATASETS.names():
        raise DataError(
            f"The reader '{entry['reader']}' of the dataset '{name}' is not one that is built in or installed."
        )
    stored = DatasetConfig(name, Path(entry["root"]), entry["reader"], None, dict(entry.get("options") or {}))
    return stored if given is None else replace(stored, root=given.root, attributes=given.attributes)
