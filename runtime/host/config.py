"""The configuration file `xbench.toml`: where bundles, datasets and caches are, and how an evaluation runs.

    bundles = ["bundles"]                 # folders that hold engine bundles
    cache = "prepared"                    # where prepared images are kept
    cache_limit = "20 GB"                 # size limit of this cache; default: no limit

    [datasets.chestxdet10]
    root = "/data/chestxdet10"            # every other key is an option of the reader

    [datasets.my_hospital]
    root = "my_hospital"
    reader = "readers/mine.py:MyReader"   # a known name, "module:Class" or "file.py:Class"; default: the dataset's name
    prompts = "chestxdet10"               # which prompt set of a bundle to use; default: the dataset's name
                                          # ["a", "b"]: several, each a result of its own (docs/run-directory.md §3)
    attributes = "patients.csv"           # view, sex, age ... for `study subgroups`; default: its own files
    augment = ["flip", "shift:8"]         # views of every image, each a result of its own (docs/datasets.md §0.9)
    part = true                           # images of a part of it are enough; default: from half missing on, eval fails
    credentialed = true                   # `ask` sends its images only to hosts named for it (docs/ask.md §6)

    [metrics.my_recall]                   # a number of your own in reports (docs/metrics.md §19)
    function = "metrics.py:recall"        # maps = true: it takes the map and the region; levels = true: a curve

    [models.mine]                         # for xbench-export: your own model (docs/add-a-model.md)
    class = "my_model.py:MyModel"

    [groups.pretraining]                  # sets of models, for `study groups` (docs/studies.md)
    general = ["clip"]
    chest = ["kad-224", "medklip-224"]

    [eval]
    engine = "auto"
    batch = 16
    threads = 2
    out = "run"
    protocol = "default"                  # or paper, chexlocalize, medklip, mavl, biovil: how maps are scored
    gpu = 0                               # number of the GPU among those in CUDA_VISIBLE_DEVICES
    build = true                          # allow building TensorRT plans
    tf32 = false                          # allow float32 products on a GPU to round their inputs to TF32
    prompts = ["a", "b"]                  # prompt sets of all datasets that name none themselves
    tiles = "2x2@0.25"                    # tiles of a higher resolution (docs/saliency.md)
    tile_score = "whole"                  # or largest

Relative paths are relative to the file, except those in the options of a reader (such as `annotations` or `list`),
which are relative to the dataset's root. Every key is also a flag of `xbench-fast`; a flag has priority.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...engines.errors import ConfigError
from ...engines.registry import code_line, did_you_mean, is_file
from ...engines.toml_values import WORDS, Text, convert, read_toml
from .options import EvalConfig
from .paths import has_file, has_folder
from .sizes import parse_bytes

DEFAULT_FILE = "xbench.toml"
DATASET_KEYS = ("root", "reader", "prompts", "attributes", "part", "augment", "credentialed")
"""Keys of a dataset's table that are not options of its reader."""
_WORDS = {**WORDS, "`int": "a whole number of at least 1", "`array": "a list of folders"}


@dataclass(frozen=True)
class DatasetConfig:
    """One dataset: its folder, its reader and the reader's options.
    `prompts`: the prompt set of a bundle; None means `name`, then the reader's own name. A tuple names several, and
    each gives a cell of its own (`each_set`). `attributes`: a table of the cases' attributes, which no result depends
    on; None: from the dataset's files. `part`: only a part of the images is meant to be there (docs/datasets.md §0.1);
    no result depends on it. `augment`: views of every image (docs/datasets.md §0.9), each of which gives a cell besides
    the one of the plain images. `view`: the one of a cell, empty for plain images. `credentialed`: under a data use
    agreement, which `ask` keeps (docs/ask.md §6).
    """

    name: str
    root: Path
    reader: str
    prompts: str | tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Path | None = None
    part: bool = False
    augment: tuple[str, ...] = ()
    view: str = ""
    credentialed: bool = False

    @property
    def each_view(self) -> list[DatasetConfig]:
        """The dataset with plain images, then with each of its views."""
        return [replace(self, view=view) for view in ("", *self.augment)]

    @property
    def each_set(self) -> list[DatasetConfig]:
        """The dataset with one prompt set each; alone, where `prompts` is no tuple."""
        several = isinstance(self.prompts, tuple)
        return [replace(self, prompts=name) for name in self.prompts or ()] if several else [self]

    def with_option(self, key: str, value: Any) -> DatasetConfig:
        """A copy with one more key of the table `[datasets.NAME]`. Raises ConfigError."""
        where = f"The option '{key}' of the dataset '{self.name}' must be"
        if key in ("part", "credentialed"):
            if not isinstance(value, bool):
                raise ConfigError(f"{where} true or false, not {value!r}.")
            return replace(self, part=value) if key == "part" else replace(self, credentialed=value)
        value = value.split(",") if key == "augment" and isinstance(value, str) else value
        if key in ("prompts", "augment") and not isinstance(value, str):
            if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
                raise ConfigError(f"{where} a text or a list of texts, not {value!r}.")
            value = tuple(dict.fromkeys(value))
        if key in ("root", "attributes"):
            value = Path(value).expanduser()
        if key in ("reader", "prompts", "augment", "root", "attributes"):
            return replace(self, **{key: value})
        return replace(self, options={**self.options, key: value})


@dataclass(frozen=True)
class Config:
    """A whole configuration; `path`: its file, None without one. `cache_limit`: bytes. `code`: readers in Python files,
    dataset -> reader, of a file that was not `named`. `groups`: division -> group -> its models. `metrics`: name -> the
    keys of its table."""

    path: Path | None = None
    bundles: tuple[Path, ...] = ()
    cache: Path | None = None
    cache_limit: int | None = None
    datasets: Mapping[str, DatasetConfig] = field(default_factory=dict)
    eval: EvalConfig = field(default_factory=EvalConfig)
    code: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    named: bool = True

    def dataset(self, name: str, root: Path | None = None) -> DatasetConfig:
        """The dataset called `name`, in the folder `root` if that is given. Raises ConfigError where nothing says its
        folder."""
        configured = self.datasets.get(name)
        if root is not None:
            return replace(configured, root=root) if configured else DatasetConfig(name, root, name)
        if configured is None:
            hint = f": {did_you_mean(name, sorted(self.datasets))}" if self.datasets else ""
            raise ConfigError(f"No dataset '{name}' is configured{hint}; give its folder.")
        return configured

    def own_code(self) -> list[str]:
        """A line for each reader in a Python file that ./xbench.toml names, without --config: its code runs here.
        Raises ConfigError for a file outside the folder of ./xbench.toml, which runs only where --config is given."""
        named = {name: reader for name, reader in self.code.items() if self.datasets[name].reader == reader}
        return [code_line(DEFAULT_FILE, reader, f"reads dataset '{name}'") for name, reader in named.items()]

    def own_metrics(self) -> list[str]:
        """As `own_code`, of the metrics. Raises ConfigError alike."""
        codes = {} if self.named else {name: str(table["function"]) for name, table in self.metrics.items()}
        return [code_line(DEFAULT_FILE, code, f"computes metric '{n}'") for n, code in codes.items() if is_file(code)]

    def with_settings(self, **given: Any) -> Config:
        """A copy with these keys of `[eval]`; None keeps the value of the file."""
        return replace(self, eval=replace(self.eval, **{key: v for key, v in given.items() if v is not None}))

    def with_prompts(self, names: Sequence[str]) -> Config:
        """A copy whose datasets are all asked these prompt sets, whatever they name; without names, a plain copy."""
        given = tuple(dict.fromkeys(names))
        asked = {name: replace(item, prompts=given) for name, item in self.datasets.items()}
        return replace(self, datasets=asked) if given else self

    def with_dataset(self, dataset: DatasetConfig) -> Config:
        """A copy with `dataset` added; it replaces a dataset of the same name."""
        return replace(self, datasets={**self.datasets, dataset.name: dataset})


def find_config(path: Path | None) -> Path | None:
    """The file to read: `path`, else ./xbench.toml if it exists.

    Raises ConfigError if `path` is not a file, or cannot be accessed.
    """
    if path is not None:
        try:
            is_file = stat.S_ISREG(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            is_file = False
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; check --config.") from error
        if not is_file:
            what = "is a folder" if has_folder(path) else "does not exist"
            raise ConfigError(f"The configuration file {path} {what}; check --config.")
        return path
    default = Path(DEFAULT_FILE)
    return default if has_file(default) else None


def load_config(path: Path | None = None) -> Config:
    """Reads the configuration found by `find_config`; an empty one when there is no file.

    Raises ConfigError when the file is not TOML, names an unknown key or holds a value of the wrong kind.
    """
    file = find_config(path)
    if file is None:
        return Config()
    config = parse_config(read_toml(file), file)
    code = {name: item.reader for name, item in config.datasets.items() if is_file(item.reader)}
    return config if path is not None else replace(config, code=code, named=False)


class _File(msgspec.Struct):
    """The top level of the file; the content of a dataset and of `models` is checked elsewhere."""

    bundles: list[Path] = []
    cache: Path | None = None
    cache_limit: Any = None
    datasets: dict[str, Any] = {}
    eval: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    models: dict[str, Any] = {}
    metrics: dict[str, Any] = {}


class _Metric(msgspec.Struct):
    function: Text
    maps: bool = False
    levels: bool = False


class _Dataset(msgspec.Struct):
    root: Path
    reader: Text = ""
    prompts: Text | Annotated[list[Text], msgspec.Meta(min_length=1)] | None = None
    attributes: Path | None = None
    part: bool = False
    credentialed: bool = False
    augment: Annotated[list[Text], msgspec.Meta(min_length=1)] | None = None


def parse_config(data: Mapping[str, Any], path: Path) -> Config:
    """A Config from parsed TOML; `path` is the file that relative paths and messages refer to. Raises ConfigError."""
    _check_keys(data, _File.__struct_fields__, f"{path}")
    one = isinstance(data.get("bundles"), str)
    file: _File = convert({**data, "bundles": [data["bundles"]]} if one else data, _File, "", path, _WORDS)
    _check_keys(file.eval, (item.name for item in fields(EvalConfig)), f"{path}: [eval]")
    return Config(
        path=path,
        bundles=tuple(file.bundles),
        cache=file.cache,
        cache_limit=None if file.cache_limit is None else parse_bytes(file.cache_limit, f"{path}: cache_limit"),
        datasets={name: _dataset(name, value, path) for name, value in file.datasets.items()},
        groups={name: _groups(name, table, path) for name, table in file.groups.items()},
        metrics={name: _metric(name, value, path) for name, value in file.metrics.items()},
        eval=convert(file.eval, EvalConfig, "eval", path, {**_WORDS, "`array": "a list of texts"}),
    )


def _dataset(name: str, value: Any, path: Path) -> DatasetConfig:
    where = f"datasets.{name}"
    if isinstance(value, dict) and "root" not in value:
        raise ConfigError(f"{path}: [{where}] has no key 'root'; write the folder of the dataset there.")
    table: _Dataset = convert(value, _Dataset, where, path, {**_WORDS, "`array": "a list of at least one text"})
    reader = _beside(table.reader or name, path)
    options = {key: option for key, option in value.items() if key not in DATASET_KEYS}
    prompts = tuple(dict.fromkeys(table.prompts)) if isinstance(table.prompts, list) else table.prompts
    kept = {key: getattr(table, key) for key in ("root", "attributes", "part", "credentialed")}
    views = tuple(dict.fromkeys(table.augment or ()))
    return DatasetConfig(name, reader=reader, prompts=prompts, options=options, augment=views, **kept)


def _groups(name: str, table: Any, path: Path) -> dict[str, tuple[str, ...]]:
    words = {**_WORDS, "`array": "a list of models"}
    key, tables = f"groups.{name}", convert(table, dict[str, Any], f"groups.{name}", path, words)
    groups = {group: convert(models, list[Text], f"{key}.{group}", path, words) for group, models in tables.items()}
    where = f"{path}: [{key}]"
    if len(groups) < 2:
        raise ConfigError(f"{where} has {len(groups) or 'no'} group; name at least two, each with a list of models.")
    for group, models in groups.items():
        if not models:
            raise ConfigError(f"{where}: the group '{group}' is empty; list its models.")
    return {group: tuple(dict.fromkeys(models)) for group, models in groups.items()}


def _metric(name: str, value: Any, path: Path) -> dict[str, Any]:
    if isinstance(value, dict):
        _check_keys(value, _Metric.__struct_fields__, f"{path}: [metrics.{name}]")
        value = {"function": name, **value}
    table: _Metric = convert(value, _Metric, f"metrics.{name}", path, _WORDS)
    return {"function": _beside(table.function, path), "maps": table.maps, "levels": table.levels}


def _beside(target: str, path: Path) -> str:
    """The target; a Python file is relative to the configuration file."""
    file, _, attribute = target.rpartition(":")
    return f"{path.parent / file}:{attribute}" if is_file(target) else target


def _check_keys(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    names = list(keys)
    for key in table:
        if key not in names:
            raise ConfigError(f"{where}: unknown key '{key}': {did_you_mean(key, names)}.")
