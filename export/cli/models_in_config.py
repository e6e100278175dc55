"""The table `[models]` of `xbench.toml`: the user's own models, and settings of known ones.

    [models.mine]
    family = "open_clip"                    # or "transformers": a model that needs no class
    arch = "ViT-B-16"
    checkpoint = "weights.pt"

    [models.other]
    class = "my_package.my_model:MyModel"   # or "path/to/file.py:Class", or a known model; default: the table's name
    checkpoint = "weights.pt"
    tokenizer = "vocabulary"                # every other key is an option of xbench-export
    prompts = "prompts.yaml"

    [models.other.options]                  # keyword arguments of the class's own `load`
    depth = 3

Relative paths are relative to the file, and modules beside it can be imported. An option on the command line takes
precedence. `xbench-fast` reads the rest of the file.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError
from ...engines.registry import code_line, did_you_mean
from ..models import MODELS
from ..models.families import FAMILIES

__all__ = ["BUNDLE_NAME", "DEFAULT_FILE", "ModelEntry", "ModelTable", "importable", "of_family", "read_models"]

DEFAULT_FILE = "xbench.toml"
_PATHS = ("checkpoint", "tokenizer", "text_encoder")
_DATA = ("parity_data", "calibration")
_TEXTS = ("weights", "source", "variant", "saliency", "precision", "int8_for")
_NUMBERS = ("resolution", "seed")
_FRACTIONS = ("accept", "percentile")
_LISTS = ("data_option", "keep_float")
_SETTINGS = (*_PATHS, *_DATA, "prompts", *_TEXTS, *_NUMBERS, *_FRACTIONS, *_LISTS)
_KEYS = ("class", "family", "arch", *_SETTINGS, "options")
BUNDLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # of one folder, wherever it is written


@dataclass(frozen=True)
class ModelEntry:
    """One model: `target` is what the registry of models resolves, `settings` are options of the command by name,
    `options` keyword arguments of the class; `family` the name of the family whose class it is."""

    name: str
    target: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""


@dataclass(frozen=True)
class ModelTable:
    """The models of a file, the first of its folders of bundles, where exports go, and the names of its datasets;
    `path` is None without one."""

    path: Path | None = None
    entries: Mapping[str, ModelEntry] = field(default_factory=dict)
    out: Path | None = None
    named: bool = True
    datasets: tuple[str, ...] = ()

    def own_code(self, entry: ModelEntry) -> list[str]:
        """The lines on the code of an `entry` of ./xbench.toml that no --config names. Raises ConfigError for a file
        outside its folder."""
        if self.named or entry.name not in self.entries or ":" not in entry.target or entry.family:
            return []
        return [code_line(DEFAULT_FILE, entry.target, f"is model '{entry.name}'")]

    def find(self, name: str) -> ModelEntry:
        """The entry `name`, or one without settings. Raises ConfigError for an unknown name."""
        if name in self.entries:
            return self.entries[name]
        if ":" not in name and name not in MODELS.names():
            raise ConfigError(f"Unknown model '{name}': {did_you_mean(name, [*self.entries, *MODELS.names()])}.")
        return ModelEntry(name, name)


def read_models(path: Path | None = None) -> ModelTable:
    """Reads `path`, or ./xbench.toml where there is one; an empty table without a file.

    Raises ConfigError when the file is not there, is not TOML, or has an unknown key or a value of the wrong kind
    under [models].
    """
    found = Path(DEFAULT_FILE) if path is None else path
    if not found.is_file():
        if path is not None:
            raise ConfigError(f"The configuration file {path} does not exist; check --config.")
        return ModelTable()
    try:
        data = tomllib.loads(found.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{found} is not a TOML file: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{found} cannot be read: {error.strerror}.") from error
    table = _table(data.get("models", {}), "models", found)
    entries = {name: _entry(name, value, found) for name, value in table.items()}
    bundles = data.get("bundles")
    first = bundles[0] if isinstance(bundles, list) and bundles else bundles
    out = found.parent / Path(first).expanduser() if isinstance(first, str) else None
    free = None if out is not None and (out / "bundle.json").exists() else out
    datasets = tuple(_table(data.get("datasets", {}), "datasets", found))
    return ModelTable(found, entries, free, named=path is not None, datasets=datasets)


def of_family(family: str, name: str) -> ModelEntry:
    """The entry of a model called `name` of that family. Raises ConfigError for an unknown family or a bad name."""
    if family not in FAMILIES.names():
        raise ConfigError(f"Unknown family '{family}': {did_you_mean(family, FAMILIES.names())}.")
    if name in MODELS.names():
        raise ConfigError(f"'{name}' is a model already, and not of the family {family}; choose another name.")
    if not BUNDLE_NAME.fullmatch(name):
        raise ConfigError(f"'{name}' cannot name a bundle; use letters, digits, '_', '.' and '-'.")
    return ModelEntry(name, FAMILIES.target(family), family=family)


@contextmanager
def importable(path: Path | None) -> Iterator[None]:
    """While it lasts, modules beside the file `path` can be imported, without a file those of the working directory;
    installed ones of the same name come first."""
    folder = str((Path() if path is None else path.parent).resolve())
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _entry(name: str, value: object, path: Path) -> ModelEntry:
    where = f"models.{name}"
    table = _table(value, where, path)
    if not BUNDLE_NAME.fullmatch(name):
        raise ConfigError(f"{path}: '{name}' in [{where}] cannot name a bundle; use letters, digits, '_', '.' and '-'.")
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{path}: [{where}]: unknown key '{key}': {did_you_mean(key, _KEYS)}.")
    families = "family" in table
    try:
        target = of_family(_text(table["family"], f"{where}.family", path), name).target if families else ""
    except ConfigError as error:
        raise ConfigError(f"{path}: [{where}]: {str(error).removeprefix(f'{path}: ')}") from error
    if families and "class" in table:
        raise ConfigError(f"{path}: [{where}] has a 'family' and a 'class'; write one of them.")
    if "arch" in table and not families:
        raise ConfigError(f"{path}: [{where}] has an 'arch' but no family; write family = \"open_clip\".")
    target = target or _target(name, table, path)
    settings = {key: _setting(key, table[key], f"{where}.{key}", path) for key in table if key in _SETTINGS}
    options = dict(_table(table.get("options", {}), f"{where}.options", path))
    if mistaken := sorted(set(options) & {*_KEYS, "name", "force"}):
        raise ConfigError(f"{path}: '{mistaken[0]}' is no option of a class; write it in [{where}] itself.")
    if "arch" in table:
        options["arch"] = _arch(_text(table["arch"], f"{where}.arch", path), path)
    return ModelEntry(name, target, settings, options, table["family"] if families else "")


def _arch(value: str, path: Path) -> str:
    """A name (also "ViT-B/16"), or a path, relative to the TOML file, of a configuration or its folder."""
    place = path.parent / Path(value).expanduser()
    return str(place) if value.endswith(".json") or place.is_dir() else value


def _target(name: str, table: Mapping[str, Any], path: Path) -> str:
    """A path becomes relative to the TOML file; the name of a known model cannot be used for another class."""
    target = _text(table.get("class", name), f"models.{name}.class", path)
    if target != name and name in MODELS.names():
        raise ConfigError(f"{path}: [models.{name}]: '{name}' is a model already, not {target}; choose another name.")
    if ":" not in target and target not in MODELS.names():
        raise ConfigError(
            f"{path}: [models.{name}] has no 'class' that can be found: write class = \"module:Class\", "
            f'"path/to/file.py:Class" or one of {", ".join(MODELS.names())}.'
        )
    file, colon, attribute = target.rpartition(":")
    return f"{path.parent / Path(file).expanduser()}:{attribute}" if colon and file.endswith(".py") else target


def _setting(key: str, value: object, where: str, path: Path) -> Any:
    if key in _NUMBERS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"{path}: the key '{where}' must be a whole number.")
        return value
    if key in _FRACTIONS:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(f"{path}: the key '{where}' must be a number.")
        return value
    if key in _TEXTS:
        return _text(value, where, path)
    if key in _DATA:  # a folder beside the file, or the name of a dataset
        place = _path(value, where, path)
        return str(place) if place.is_dir() else value
    if key in _LISTS:
        return [_text(item, where, path) for item in (value if isinstance(value, list) else [value])]
    if key == "prompts":
        return [_path(item, where, path) for item in (value if isinstance(value, list) else [value])]
    return _path(value, where, path)


def _table(value: object, key: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: '{key}' must be a table, written as [{key}].")
    return value


def _text(value: object, key: str, path: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: the key '{key}' must be a text in quotes.")
    return value


def _path(value: object, key: str, path: Path) -> Path:
    return path.parent / Path(_text(value, key, path)).expanduser()
