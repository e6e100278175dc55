"""The top of the command line: its commands by name, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from ...engines.commands import LazyGroup
from ...engines.errors import XBenchError

__all__ = ["COMMANDS", "app", "main"]

INTERRUPTED = 130

COMMANDS = {
    "eval": ".evaluate:evaluate",
    "merge": ".merge:merge",
    "report": ".report:report",
    "serve": ".serve:serve",
    "compare": ".compare:compare",
    "study": ".study:study",
    "prepare": ".prepare:prepare",
    "cache": ".cache:cache",
    "models": ".models:models",
    "prompts": ".prompts:prompts",
    "datasets": ".datasets:datasets",
    "bench": ".bench:bench",
    "doctor": ".doctor:doctor",
}
"""Command name -> "module:object", relative to this package."""


@click.group(
    cls=LazyGroup, targets=COMMANDS, package=__package__, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="xbench-fast", prog_name="xbench-fast")
def app() -> None:
    """Do medical vision-language models look where they should? Evaluate exported models on grounding datasets."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 fine, 1 something to act on, 2 wrong usage, 130 interrupted."""
    sys.exit(_run(arguments))


def _silence(stream: TextIO) -> None:
    """Has what is still to be written go nowhere, or Python complains once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result: Any = app.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except XBenchError as error:
        click.echo(f"Error: {error}", err=True)
        return 1
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away; without this Python would complain once more at exit.
        _silence(sys.stdout)
        return 1
    except OSError as error:
        # Files of one's own that may not be read, a full disk behind the output: a user's matter, wherever it shows.
        if error.filename is None:
            _silence(sys.stdout)
        what = f"{error.filename} cannot be used" if error.filename is not None else "The output cannot be written"
        click.echo(
            f"Error: {what}: {error.strerror or error}; check its permissions and the room on its disk.", err=True
        )
        return 1
    return result if isinstance(result, int) else 0
