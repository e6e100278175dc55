"""A registry of lazy names: it maps a name to a "module:Attribute" string, which is imported on first use."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from .errors import ConfigError


def did_you_mean(name: str, valid: Iterable[str], written: Mapping[str, str] | None = None) -> str:
    """The end of a message about an unknown `name`: the known name that is meant, if any, then each of them once.

    written: other names, as `plain_name` has them, and the known one that each of them means. Without one of them the
    most similar of the `valid` names is meant; upper and lower case do not count. Where none is similar, a single name
    that contains the unknown one is meant ("cpu" for "onnxruntime-cpu").
    """
    names = list(dict.fromkeys(valid))
    if (meant := (written or {}).get(plain_name(name))) in names:
        return f"did you mean '{meant}'? known are {', '.join(names)}"
    folded = {candidate.casefold(): candidate for candidate in reversed(names)}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    if not close and len(within := [candidate for candidate in folded if name and name.casefold() in candidate]) == 1:
        close = within
    return (f"did you mean '{folded[close[0]]}'? " if close else "") + f"known are {', '.join(names) or 'none'}"


def plain_name(name: str) -> str:
    """A name without what people vary in it: its letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def is_file(target: str) -> bool:
    """Whether a target is "path/to/file.py:Attribute"."""
    return target.rpartition(":")[0].endswith(".py")


def code_line(config: str, target: str, use: str) -> str:
    """The message that `config`, a file of the working directory that the user did not name, runs the code of `target`.

    Raises ConfigError for a Python file outside the working directory, after links are followed.
    """
    name = target.rpartition(":")[0]
    if is_file(target) and not Path(name).resolve().is_relative_to(Path().resolve()):
        raise ConfigError(f"{config} names code outside its folder, {name}; if you trust it, give --config {config}.")
    return f"{config}: runs the code of {name}, which {use}"


class Registry:
    """An immutable table of names to lazy targets.

    `title` is the word used in messages ("model", "dataset"). A target is "package.module:Attribute", or
    "path/to/file.py:Attribute" for code that is not installed. `group` is an entry point group through which
    installed third-party packages add names.
    """

    def __init__(self, title: str, entries: Mapping[str, str], group: str | None = None) -> None:
        self.title = title
        self._entries = dict(entries)
        self._group = group

    def names(self) -> list[str]:
        """All known names, sorted. Raises ConfigError if an installed package repeats a name."""
        return sorted(self._table())

    def target(self, name: str) -> str:
        """The target of a known name."""
        return self._table()[name]

    def load(self, name: str) -> Any:
        """The object behind `name`, which is a known name or a target itself. Raises ConfigError."""
        table = self._table()
        if name not in table and ":" not in name:
            raise ConfigError(f"Unknown {self.title} '{name}': {did_you_mean(name, sorted(table))}.")
        target = table.get(name, name)
        module_name, _, attribute = target.rpartition(":")
        try:
            module = (
                _from_file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
            )
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # of foreign code: any can come
            what = "" if isinstance(error, ImportError | SyntaxError) else f"{type(error).__name__}: "
            said = " ".join(f"{what}{error}".split())
            raise ConfigError(f"The {self.title} '{target}' cannot be imported: {said}.") from error
        try:
            target_object = module
            for part in attribute.split("."):
                target_object = getattr(target_object, part)
        except AttributeError as error:
            raise ConfigError(
                f"The {self.title} '{target}' does not exist: {module_name} has no '{attribute}'."
            ) from error
        return target_object

    def _table(self) -> dict[str, str]:
        table = dict(self._entries)
        for name, target in added_targets(self._group) if self._group else ():
            if name in table:
                raise ConfigError(
                    f"The {self.title} '{name}' is defined twice, as {table[name]} and as {target}; "
                    "remove one of the two packages."
                )
            table[name] = target
        return table


def added_targets(group: str) -> tuple[tuple[str, str], ...]:
    """Names and targets that installed packages add by this entry point group, in the order of the packages."""
    return _added(group, tuple(sys.path))


@cache
def _added(group: str, path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The same; the search reads a file of every package on the path."""
    return tuple((point.name, point.value) for point in entry_points(group=group))


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"The file {path} does not exist; write it as path/to/file.py:Class.")
    name = f"xbench_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"The file {path} is not Python code that can be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
