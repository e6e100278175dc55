"""`xbench-fast ask`: ask a multimodal model behind an endpoint about a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...engines.commands import echo
from ...engines.errors import ConfigError
from ..asking.ask_options import AskOptions
from .options.completing import DATASETS
from .options.declared_options import options_of
from .options.shared_options import Output, config_option, data_options, json_option, resolve_config


@click.command()
@click.option(
    "--endpoint",
    metavar="URL",
    help="Address of the server, up to the part before /chat/completions, e.g. http://127.0.0.1:8000/v1.",
)
@click.option("--model", metavar="NAME", help="Id of the model to ask.  [default: the only one that the server lists]")
@click.option("--dialect", metavar="NAME", help="Dialect in which the model is asked and writes boxes, e.g. qwen25vl.")
@click.option("--dataset", metavar="NAME", shell_complete=DATASETS, help="Dataset to ask about.")
@click.option(
    "--out",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="File of answers, for eval --model boxes:FILE. Plan and log are kept in the folder FILE.asked.",
)
@options_of(AskOptions)
@data_options
@config_option
@json_option
def ask(
    endpoint: str | None,
    model: str | None,
    dialect: str | None,
    dataset: str | None,
    out: Path,
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
    **options: Any,
) -> int:
    """Ask a model behind an OpenAI-compatible endpoint where findings are, and write the file that eval scores.

    Each dialect has its authors' prompt. The image is sent in a size that the server keeps, so the frame of the answer
    is known; where tokens are counted, that is proved before the first patient's image is sent. The plan is printed
    first. Images are sent to this machine only, unless --allow-host names another one. An interrupted run continues
    with the same command. The exit status is 1 if pairs are left without an answer.
    """
    from ..asking.ask_dataset import ask_dataset
    from ..asking.ask_rules import AskRequest
    from ..evaluation.progress import progress_for

    request = AskRequest(out, endpoint or "", dialect or "", dataset or "", model, AskOptions(**options))
    chosen = None
    if not request.options.write:
        for name, value in (("endpoint", endpoint), ("dialect", dialect), ("dataset", dataset)):
            if not value:
                raise ConfigError(f"--{name} is missing; give it.")
        chosen = resolve_config(config_file, (), data, data_options).dataset(request.dataset)
    counts = ask_dataset(request, chosen, progress_for(output.console()))
    output.write(counts)
    if counts["stopped"]:
        echo(f"Error: {counts['stopped']}.", err=True)
    left = counts["failed"] > counts.get("skipped", 0)
    return 1 if counts["stopped"] or left or counts.get("many_unreadable") else 0
