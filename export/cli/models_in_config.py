"""The table `[models]` of `xbench.toml`: the user's own models, and settings of known ones.

    [models.mine]
    family = "open_clip"                    # or "transformers", "dual", "classifier": a model that needs no class
    arch = "ViT-B-16"
    checkpoint = "weights.pt"

    [models.other]
    class = "my_package.my_model:MyModel"   # or "path/to/file.py:Class", or a known model; default: the table's name
    checkpoint = "weights.pt"
    tokenizer = "vocabulary"                # every other key is an option of xbench-export
    prompts = "prompts.yaml"

    [models.other.options]                  # keyword arguments of the class's own `load`
    depth = 3

Relative paths are relative to the file, and modules in its folder can be imported. An option on the command line takes
precedence. `xbench-fast` reads the rest of the file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...engines.errors import ConfigError
from ...engines.registry import code_line, did_you_mean
from ...engines.toml_values import Text, convert, read_toml
from ..models.families import FAMILIES
from ..models.model_registry import MODELS

DEFAULT_FILE = "xbench.toml"
BUNDLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # of one folder, wherever it is written


class _Model(msgspec.Struct, rename={"target": "class"}):
    """A table [models.NAME]: its own keys, and options of xbench-export, which keep their names."""

    target: Text = ""
    family: Text = ""
    arch: Text = ""
    checkpoint: Path = Path()
    tokenizer: Path = Path()
    text_encoder: Path = Path()
    parity_data: Text = ""
    calibration: Text = ""
    prompts: list[Path] = []
    weights: Text = ""
    source: Text = ""
    variant: Text = ""
    saliency: Text = ""
    precision: Text = ""
    int8_for: Text = ""
    resolution: int = 0
    seed: int = 0
    accept: int | float = 0
    percentile: int | float = 0
    data_option: list[Text] = []
    keep_float: list[Text] = []
    options: dict[str, Any] = {}


_KEYS = _Model.__struct_encode_fields__
_OWN = ("class", "family", "arch", "options")
_LISTS = ("prompts", "data_option", "keep_float")  # one value means a list of one
_DATA = ("parity_data", "calibration")


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
    file = Path(DEFAULT_FILE) if path is None else path
    if not file.is_file():
        if path is not None:
            raise ConfigError(f"The configuration file {path} does not exist; check --config.")
        return ModelTable()
    data = read_toml(file)
    table = convert(data.get("models", {}), dict[str, Any], "models", file)
    entries = {name: _entry(name, value, file) for name, value in table.items()}
    bundles = data.get("bundles")
    first = bundles[0] if isinstance(bundles, list) and bundles else bundles
    out = file.parent / Path(first).expanduser() if isinstance(first, str) else None
    free = None if out is not None and (out / "bundle.json").exists() else out
    datasets = tuple(convert(data.get("datasets", {}), dict[str, Any], "datasets", file))
    return ModelTable(file, entries, free, named=path is not None, datasets=datasets)


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
    """While it lasts, modules next to the file `path` can be imported, without a file modules of the working directory;
    installed ones of the same name come first."""
    folder = str((Path() if path is None else path.parent).resolve())
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _entry(name: str, value: object, path: Path) -> ModelEntry:
    where = f"models.{name}"
    table = convert(value, dict[str, Any], where, path)
    if not BUNDLE_NAME.fullmatch(name):
        raise ConfigError(f"{path}: '{name}' in [{where}] cannot name a bundle; use letters, digits, '_', '.' and '-'.")
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{path}: [{where}]: unknown key '{key}': {did_you_mean(key, _KEYS)}.")
    single = {key: [table[key]] for key in _LISTS if key in table and not isinstance(table[key], list)}
    model: _Model = convert({**table, **single}, _Model, where, path)
    try:
        target = of_family(model.family, name).target if model.family else ""
    except ConfigError as error:
        raise ConfigError(f"{path}: [{where}]: {error}") from error
    if model.family and model.target:
        raise ConfigError(f"{path}: [{where}] has a 'family' and a 'class'; write one of them.")
    if model.arch and not model.family:
        raise ConfigError(f"{path}: [{where}] has an 'arch' but no family; write family = \"open_clip\".")
    target = target or _target(name, model.target or name, path)
    settings = {key: getattr(model, key) for key in table if key not in _OWN}
    for key in settings.keys() & set(_DATA):  # a path relative to the file, or the name of a dataset
        folder = path.parent / Path(settings[key]).expanduser()
        settings[key] = str(folder) if folder.is_dir() else settings[key]
    if mistaken := sorted(model.options.keys() & {*_KEYS, "name", "force"}):
        raise ConfigError(f"{path}: '{mistaken[0]}' is not an option of a class; write it in [{where}] itself.")
    options = {**model.options, **({"arch": _arch(model.arch, path)} if model.arch else {})}
    return ModelEntry(name, target, settings, options, model.family)


def _arch(value: str, path: Path) -> str:
    """A name (also "ViT-B/16"), or a path, relative to the TOML file, of a configuration or its folder."""
    configuration = path.parent / Path(value).expanduser()
    return str(configuration) if value.endswith(".json") or configuration.is_dir() else value


def _target(name: str, target: str, path: Path) -> str:
    """A path becomes relative to the TOML file; the name of a known model cannot be used for another class."""
    if target != name and name in MODELS.names():
        raise ConfigError(f"{path}: [models.{name}]: '{name}' is a model already, not {target}; choose another name.")
    if ":" not in target and target not in MODELS.names():
        raise ConfigError(
            f"{path}: [models.{name}] has no 'class' that can be found: write class = \"module:Class\", "
            f'"path/to/file.py:Class" or one of {", ".join(MODELS.names())}.'
        )
    file, colon, attribute = target.rpartition(":")
    return f"{path.parent / Path(file).expanduser()}:{attribute}" if colon and file.endswith(".py") else target
