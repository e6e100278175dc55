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

    [models.mine]                         # for xbench-export: your own model (docs/add-a-model.md)
    class = "my_model.py:MyModel"

    [eval]
    engine = "auto"
    batch = 16
    threads = 2
    out = "run"
    protocol = "default"                  # or paper, chexlocalize, medklip, mavl: how maps are thresholded and scored
    build = true                          # allow building TensorRT plans
    tf32 = false                          # allow float32 products on a GPU to round their inputs to TF32

Relative paths are relative to the file, except those in the options of a reader (such as `annotations` or `list`),
which are relative to the dataset's root. Every key is also a flag of `xbench-fast`; a flag has priority.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from .paths import has_file, has_folder
from .sizes import parse_bytes

__all__ = [
    "DATASET_KEYS",
    "DEFAULT_FILE",
    "Config",
    "DatasetConfig",
    "EvalConfig",
    "find_config",
    "load_config",
    "parse_config",
]

DEFAULT_FILE = "xbench.toml"
DATASET_KEYS = ("root", "reader", "prompts")
"""Keys of a dataset's table that are not options of its reader."""
_TOP = ("bundles", "cache", "cache_limit", "datasets", "eval", "models")


@dataclass(frozen=True)
class DatasetConfig:
    """One dataset: its folder, its reader and the reader's options.

    `prompts` names the prompt set of a bundle; None means `name`, then the reader's own name.
    """

    name: str
    root: Path
    reader: str
    prompts: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_option(self, key: str, value: Any) -> DatasetConfig:
        """A copy with one more key of the table `[datasets.NAME]`."""
        if key in ("reader", "prompts"):
            return replace(self, **{key: value})
        if key == "root":
            return replace(self, root=Path(value).expanduser())
        return replace(self, options={**self.options, key: value})


@dataclass(frozen=True)
class EvalConfig:
    """Table `[eval]`: the engine's name, images per batch, threads (None: all cores), run directory, protocol, and for
    engines on a GPU whether plans may be built and TF32 may be used."""

    engine: str = "auto"
    batch: int = 16
    threads: int | None = None
    out: Path = Path("run")
    protocol: str = "default"
    build: bool = True
    tf32: bool = False


@dataclass(frozen=True)
class Config:
    """A whole configuration; `path` is its file, None when there is none. `cache_limit`: bytes."""

    path: Path | None = None
    bundles: tuple[Path, ...] = ()
    cache: Path | None = None
    cache_limit: int | None = None
    datasets: Mapping[str, DatasetConfig] = field(default_factory=dict)
    eval: EvalConfig = field(default_factory=EvalConfig)

    def with_settings(self, **given: Any) -> Config:
        """A copy with these keys of `[eval]`; None keeps the value of the file."""
        return replace(self, eval=replace(self.eval, **{key: v for key, v in given.items() if v is not None}))

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
    found = find_config(path)
    if found is None:
        return Config()
    try:
        data = tomllib.loads(found.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise ConfigError(f"{found} is not a TOML file: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{found} cannot be read: {error.strerror}.") from error
    return parse_config(data, found)


def parse_config(data: Mapping[str, Any], path: Path) -> Config:
    """A Config from parsed TOML; `path` is the file that relative paths and messages refer to. Raises ConfigError."""
    base = path.parent
    _known(data, _TOP, f"{path}")
    bundles = data.get("bundles", [])
    if isinstance(bundles, str):
        bundles = [bundles]
    if not isinstance(bundles, list):
        raise ConfigError(f"{path}: the key 'bundles' must be a list of folders.")
    datasets = _table(data.get("datasets", {}), "datasets", path)
    _table(data.get("models", {}), "models", path)  # its content belongs to the exporter
    return Config(
        path=path,
        bundles=tuple(_path(item, "bundles", base, path) for item in bundles),
        cache=_path(data["cache"], "cache", base, path) if "cache" in data else None,
        cache_limit=parse_bytes(data["cache_limit"], f"{path}: cache_limit") if "cache_limit" in data else None,
        datasets={name: _dataset(name, value, base, path) for name, value in datasets.items()},
        eval=_eval(_table(data.get("eval", {}), "eval", path), base, path),
    )


def _dataset(name: str, value: object, base: Path, path: Path) -> DatasetConfig:
    where = f"datasets.{name}"
    table = dict(_table(value, where, path))
    if "root" not in table:
        raise ConfigError(f"{path}: [{where}] has no key 'root'; write the folder of the dataset there.")
    root = _path(table.pop("root"), f"{where}.root", base, path)
    reader = _string(table.pop("reader", name), f"{where}.reader", path)
    file, colon, attribute = reader.rpartition(":")
    if colon and file.endswith(".py"):
        reader = f"{base / file}:{attribute}"
    prompts = table.pop("prompts", None)
    if prompts is not None:
        prompts = _string(prompts, f"{where}.prompts", path)
    return DatasetConfig(name, root, reader, prompts, table)


def _eval(table: Mapping[str, Any], base: Path, path: Path) -> EvalConfig:
    _known(table, ("engine", "batch", "threads", "out", "protocol", "build", "tf32"), f"{path}: [eval]")
    config = EvalConfig()
    if "engine" in table:
        config = replace(config, engine=_string(table["engine"], "eval.engine", path))
    if "batch" in table:
        config = replace(config, batch=_positive(table["batch"], "eval.batch", path))
    if "threads" in table:
        config = replace(config, threads=_positive(table["threads"], "eval.threads", path))
    if "out" in table:
        config = replace(config, out=_path(table["out"], "eval.out", base, path))
    if "protocol" in table:
        config = replace(config, protocol=_string(table["protocol"], "eval.protocol", path))
    if "build" in table:
        config = replace(config, build=_boolean(table["build"], "eval.build", path))
    if "tf32" in table:
        config = replace(config, tf32=_boolean(table["tf32"], "eval.tf32", path))
    return config


def _known(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in table:
        if key not in names:
            raise ConfigError(f"{where}: unknown key '{key}': {did_you_mean(key, names)}.")


def _table(value: object, key: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: '{key}' must be a table, written as [{key}].")
    return value


def _string(value: object, key: str, path: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: the key '{key}' must be a text in quotes.")
    return value


def _path(value: object, key: str, base: Path, path: Path) -> Path:
    return base / Path(_string(value, key, path)).expanduser()


def _boolean(value: object, key: str, path: Path) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{path}: the key '{key}' must be true or false.")
    return value


def _positive(value: object, key: str, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{path}: the key '{key}' must be a whole number of at least 1.")
    return value
