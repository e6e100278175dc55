"""Flags shared by commands. Every key of xbench.toml is one of them, and a flag wins over the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ....engines.commands import data_option, echo, read_data_option
from ....engines.errors import ConfigError
from ...host.config import Config, DatasetConfig, load_config
from ...host.paths import has_folder
from ...host.sizes import parse_bytes
from .completing import DATASET_FOLDERS, Completion
from .declared_options import repeated

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])


def setting(*names: str, default: object, help: str, **rest: Any) -> Callable[[F], F]:
    """An option whose default belongs to the configuration or to an options class: the help shows it, and the option is
    None where the user gave none, so that it does not hide what xbench.toml says."""
    return click.option(*names, default=None, help=f"{help}  [default: {default}]", **rest)


def models_option(help: str, complete: Completion, default: str = "", **rest: Any) -> Callable[[F], F]:
    """--model NAME, of every command that chooses models, handed over as `models`"""
    return repeated("--model", "models", metavar="NAME", shell_complete=complete, help=help, default=default, **rest)


def datasets_option(help: str, complete: Completion, default: str = "", **rest: Any) -> Callable[[F], F]:
    """--dataset NAME, of every command that chooses datasets, handed over as `datasets`"""
    return repeated(
        "--dataset", "datasets", metavar="NAME", shell_complete=complete, help=help, default=default, **rest
    )


def config_option(function: F) -> F:
    """--config FILE"""
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Configuration file.  [default: ./xbench.toml if it exists]",
    )(function)


def data_options(function: F) -> F:
    """--data NAME=PATH and --data-option NAME.KEY=VALUE"""
    function = data_option("data_options")(function)
    return repeated(
        "--data",
        metavar="NAME=PATH",
        shell_complete=DATASET_FOLDERS,
        help="Name of a dataset and its folder.",
    )(function)


@dataclass(frozen=True)
class Output:
    """Where a command prints, by its --json FILE; None without it. With `-` standard output has the JSON alone: lines
    go to standard error, and tables are not printed (`piped`)."""

    path: Path | None = None

    @property
    def piped(self) -> bool:
        """Whether standard output is for the JSON alone."""
        return self.path == Path("-")

    def or_else(self, earlier: Output) -> Output:
        """This one, or the `earlier` one if the option was given there alone: it may stand before a subcommand."""
        return earlier if self.path is None else self

    def say(self, line: str) -> None:
        """Prints a line."""
        echo(line, err=self.piped)

    def console(self) -> Console:
        """The console of lines and progress."""
        from ...reporting.tables.console import make_console

        return make_console(stderr=self.piped)

    def keep(self, data: object) -> None:
        """Writes what is there of `data` to the file of the option, if it is one. Raises RunError."""
        from ...results.storage import write_json

        if self.path is not None and not self.piped:
            write_json(self.path, data, "--json")

    def write(self, data: object) -> None:
        """Writes `data` as JSON where the option says. Raises RunError."""
        from ...results.storage import json_text, write_json

        if self.piped:
            echo(json_text(data), nl=False)
        elif self.path is not None:
            write_json(self.path, data, "--json")
            self.say(f"written: {self.path}")


def json_option(function: F) -> F:
    """--json FILE, handed over as `output`"""
    return click.option(
        "--json",
        "output",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        callback=lambda context, option, path: Output(path),
        help="File for all results as JSON. - means standard output, which then has nothing else.",
    )(function)


def raw_csv_option(function: F) -> F:
    """--raw-csv"""
    return click.option(
        "--raw-csv",
        is_flag=True,
        help="Write texts to CSV files unchanged, even those that a spreadsheet would run as a formula.",
    )(function)


def resolve_config(
    config_file: Path | None,
    bundles: Sequence[Path] = (),
    data: Sequence[str] | None = None,
    data_options: Sequence[str] = (),
    cache_limit: str | None = None,
) -> Config:
    """The configuration file with the flags applied; `data` is None for a command that reads no dataset, and others say
    which Python files of ./xbench.toml they run. Raises ConfigError."""
    config = load_config(config_file)
    if cache_limit is not None:
        config = replace(config, cache_limit=parse_bytes(cache_limit, "--cache-limit"))
    for folder in bundles:
        if not has_folder(folder):
            raise ConfigError(f"--bundles {folder} is not a folder; give the folder that holds bundles, or a bundle.")
    if bundles:
        config = replace(config, bundles=tuple(bundles))
    for item in data or ():
        name, equals, path = item.partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"--data {item} is not of the form NAME=PATH.")
        config = config.with_dataset(config.dataset(name, Path(path).expanduser()))
    for item in data_options:
        config = config.with_dataset(_with_option(config, item))
    for line in () if data is None else config.own_code():
        echo(line, err=True)
    return config


def _with_option(config: Config, item: str) -> DatasetConfig:
    name, key, value = read_data_option(item)
    dataset = config.datasets.get(name)
    if dataset is None:
        raise ConfigError(
            f"--data-option {item}: there is no dataset '{name}'; give its folder with --data {name}=PATH."
        )
    return dataset.with_option(key, value)
