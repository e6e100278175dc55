"""The top of the command line: its commands by name, and how errors become messages and exit codes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

import click

from ...engines.commands import (
    CLOSED_PIPE,
    WRONG_USAGE,
    LazyGroup,
    echo,
    limit_blas,
    show_log,
    show_usage_error,
    silence,
)
from ...engines.errors import ConfigError, XBenchError

INTERRUPTED = 130  # as shells report SIGINT: 128 + 2

_COLLECTING = 50_000, 20, 50
"""Thresholds of Python's garbage collector. With its own, 700, 10 and 10, it looked again and again at the many rows,
cells and texts that a command keeps: 5 to 12 % of the processor time of `report` of the demo."""

COMMANDS = {
    "demo": (".demo_command:demo", "Evaluate and report a small model on data of the package."),
    "eval": (".evaluate_command:evaluate", "Evaluate models on datasets."),
    "merge": (".run_command:merge", "Put the shards of an evaluation together."),
    "report": (".report_command:report", "Tables, figures and a page of a run, with intervals."),
    "serve": (".serve_command:serve", "Answer requests for exported models over HTTP and gRPC."),
    "dicom": (
        ".archive.dicom_command:dicom",
        "Write answers about films as DICOM objects for an archive.",
    ),
    "pacs": (".archive.pacs_command:pacs", "Ask about the films of an archive, and store the answers there."),
    "compare": (".compare_command:compare", "Compare two runs or two models; a regression gate."),
    "study": (".study_command:study", "Answer one question about a run from its stored counts and maps."),
    "trust": (".trust_command:trust", "Test whether maps can be believed, with changed weights, images or prompts."),
    "prepare": (".prepare_command:prepare", "Decode images once, for all models."),
    "cache": (".cache_command:cache", "List or delete prepared images."),
    "run": (".run_command:run", "Remove cells from a run directory."),
    "models": (".models_command:models", "List the bundles found."),
    "prompts": (".prompts_command:prompts", "Make prompt sets and add them to bundles."),
    "datasets": (".datasets_command:datasets", "List datasets, or audit one."),
    "ask": (".ask_command:ask", "Ask a multimodal model behind an endpoint where findings are."),
    "boxes": (".boxes_command:boxes", "Check files of predicted boxes."),
    "bench": (".bench_command:bench", "Measure throughput and latency on this machine."),
    "doctor": (".doctor_command:doctor", "Show what works on this machine, and why the rest does not."),
}
"""Command name -> ("module:object" relative to this package, its line in the list of commands)."""


@click.group(
    cls=LazyGroup,
    targets=COMMANDS,
    package=__package__,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 something to act on (the reason is on standard error), 2 wrong usage, 130 "
    "interrupted, 141 the reader of a pipe went away. README.md and docs/ of the repository have examples.",
)
@click.version_option(package_name="xbench-fast", prog_name="xbench-fast")
def app() -> None:
    """Do medical vision-language models look where they should? Evaluate exported models on grounding datasets."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with a status of docs/command-line.md §1."""
    limit_blas()
    gc.set_threshold(*_COLLECTING)
    show_log()
    try:
        status = _run(arguments)
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away before the last line, or before the message of an error.
        silence(sys.stdout, sys.stderr)
        status = CLOSED_PIPE
    sys.exit(status)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result: Any = app.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        show_usage_error(error)
        return error.exit_code
    except XBenchError as error:
        echo(f"Error: {error}", err=True)
        return WRONG_USAGE if isinstance(error, ConfigError) else 1
    except (KeyboardInterrupt, click.Abort):
        echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        # Files of one's own that may not be read, a full disk behind the output: a user's matter, wherever it shows.
        if error.filename is None:
            silence(sys.stdout)
        what = f"{error.filename} cannot be used" if error.filename is not None else "The output cannot be written"
        echo(f"Error: {what}: {error.strerror or error}; check its permissions and the room on its disk.", err=True)
        return 1
    return result if isinstance(result, int) else 0
