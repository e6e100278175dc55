"""What the command lines `xbench-fast` and `xbench-export` share: groups that import a command when it is run,
suggestions for a mistyped command or choice, and the option of a dataset."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

import click

from .errors import ConfigError
from .registry import did_you_mean
from .visible_text import visible_text

F = TypeVar("F", bound=Callable[..., Any])

CLOSED_PIPE = 141
"""The exit status where the reader of a pipe went away, as a shell has it for SIGPIPE."""
WRONG_USAGE = click.UsageError.exit_code
"""The exit status of a ConfigError, which click has for an unknown command, option or value."""


def silence(*streams: TextIO) -> None:
    """Has what is still to be written to the streams go nowhere, or Python complains once more at exit."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _closed_pipe() -> Iterator[None]:
    """Ends with CLOSED_PIPE where the reader of a pipe went away; click itself would end with status 1."""
    try:
        yield
    except BrokenPipeError as error:
        silence(sys.stdout, sys.stderr)  # `2>&1 | head` closes both
        raise click.exceptions.Exit(CLOSED_PIPE) from error


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a text, on standard error with `err`, as `click.echo`; signs that a terminal would obey are shown."""
    click.echo(visible_text(text), err=err, nl=nl)


class _VisibleFormatter(logging.Formatter):
    """As Python writes a line of a log and its traceback, with hidden signs shown: both quote names and texts."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_text(super().format(record))


def show_log() -> None:
    """Has what is logged in this process show hidden signs, where it goes to standard error for want of a handler."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_VisibleFormatter())


def limit_blas() -> None:
    """Has the BLAS of NumPy and SciPy use one thread in this process, unless OPENBLAS_NUM_THREADS says another number.

    Its threads wait for work in a loop: loading both libraries costs 0.13 s of processor time for each further core,
    and `study calibration` of the demo took 9.0 s of it on two cores, 4.9 s with one thread. Products that gain from
    more threads are made by ONNX Runtime and PyTorch, which have threads of their own.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def show_usage_error(error: click.ClickException) -> None:
    """Prints what click has to say of wrong usage on standard error, as `echo`."""
    text = io.StringIO()
    error.show(text)
    echo(text.getvalue(), err=True, nl=False)


class Choice(click.Choice[str]):
    """One of a few words, as in click; the error for another word ends with the most similar one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The sentence after the option's name."""
        return f"'{value}' is unknown: {did_you_mean(str(value), self.choices)}."


class Names(Choice):
    """A choice among names that are looked up when they are needed, such as those that installed packages add."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self._names())

    @choices.setter
    def choices(self, names: tuple[str, ...]) -> None:
        """Those that click sets are none."""


class LazyGroup(click.Group):
    """`targets` maps the name of a command to ("module:object", summary), relative to the package `package`; other
    commands are added as in click.

    The list of commands shows the summaries and imports no command."""

    def __init__(
        self,
        *arguments: Any,
        targets: Mapping[str, tuple[str, str]] | None = None,
        package: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.targets, self._package = targets or {}, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return [*self.targets, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in self.targets:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.targets[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module, self._package), attribute)
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """As in click, and with the status of a closed pipe: --help and --version print here."""
        with _closed_pipe():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """As in click, and with the status of a closed pipe."""
        with _closed_pipe():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names and their summaries, without importing anything."""
        if not self.targets:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.targets.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click; the error for an unknown name ends with the most similar command."""
        asked = not args[0].startswith("-") and not ctx.resilient_parsing
        if asked and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"There is no command '{args[0]}': {did_you_mean(args[0], self.list_commands(ctx))}.")
        return super().resolve_command(ctx, args)


def data_option(name: str) -> Callable[[F], F]:
    """--data-option NAME.KEY=VALUE, handed over as `name`; `read_data_option` reads each."""
    return click.option(
        "--data-option",
        name,
        metavar="NAME.KEY=VALUE",
        multiple=True,
        help="Option of a dataset: reader, prompts, attributes, part (true: only a part of its images is expected), or "
        "an option of its reader, whose paths are relative to the dataset's folder. Can be repeated.",
    )


def read_data_option(item: str) -> tuple[str, str, Any]:
    """Dataset, key and value of one --data-option: a text for the keys of every dataset, else a number, truth value or
    list as TOML writes it, or a text. Raises ConfigError."""
    where, equals, text = item.partition("=")
    name, dot, key = where.rpartition(".")
    if not equals or not dot or not name or not key:
        raise ConfigError(f"--data-option {item} is not of the form NAME.KEY=VALUE.")
    return name, key, text if key in ("root", "reader", "prompts", "attributes") else _value(text)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # ValueError also for a number of thousands of digits
        return text
