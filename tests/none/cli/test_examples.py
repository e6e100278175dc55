"""The examples in --help are lines that the command takes."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner
from xbench_fast.runtime.cli.app import app
from xbench_fast.runtime.cli.options.examples import EXAMPLES


@pytest.mark.parametrize("name", ["eval", "report", "compare", "study"])
def test_the_help_has_examples_that_are_read(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], terminal_width=60).output
    after = shown.partition("Examples:")[2].splitlines()
    for line in EXAMPLES[name]:
        assert line in map(str.strip, after), "each on a line of its own"
        program, *words = shlex.split(line)
        assert program == "xbench-fast"
        group: click.Command = app
        context = click.Context(app)
        while isinstance(group, click.Group):
            found, command, words = group.resolve_command(context, words)
            assert command is not None
            group, context = command, click.Context(command, parent=context, info_name=found)
        group.make_context(name, list(words))  # raises for an option or a value that does not exist
