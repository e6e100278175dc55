"""Asks a multimodal model about a dataset: `xbench-fast ask` as a function."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack, get_origin, get_type_hints

from .engines.errors import ConfigError
from .options import AskKeywords, FilePath, check_options
from .runtime.asking.ask_dataset import ask_dataset
from .runtime.asking.ask_options import AskOptions
from .runtime.asking.ask_rules import AskRequest
from .runtime.evaluation.progress import SilentProgress, progress_for
from .runtime.host.config import load_config
from .runtime.host.options import words_of
from .runtime.reporting.tables.console import make_console

__all__ = ["ask"]


def ask(
    endpoint: str,
    dialect: str,
    dataset: str,
    out: FilePath,
    *,
    data: FilePath | None = None,
    model: str | None = None,
    **options: Unpack[AskKeywords],
) -> dict[str, Any]:
    """Asks a model behind an endpoint about a dataset, writes the file of answers, and returns the counts.

    endpoint: address of the server, such as "http://127.0.0.1:8000/v1". dialect: how the model is asked and writes
        boxes (docs/ask.md §2). dataset, data: the name of a dataset and its folder; one of the configuration needs no
        folder. out: the file, which `evaluate(boxes=...)` scores. model: None for the only one of the server.
    options: see `AskKeywords`.

    The counts are those of `--json` (docs/ask.md §6): `answers`, `failed`, `kinds`, `tokens`, `latency_ms` and others.
    `stopped` says why the run ended early and is empty if it did not; the same call continues it.

    Raises ConfigError for options that do not fit and hosts that are not allowed, DataError for the dataset, and
    RunError for a server that cannot be asked.
    """
    check_options("ask", AskKeywords, options)
    config = load_config(None if options.get("config") is None else Path(str(options["config"])))
    if data is not None:
        config = config.with_dataset(config.dataset(dataset, Path(data).expanduser()))
    chosen = config.dataset(dataset)
    for key, value in options.get("data_options", {}).items():
        chosen = chosen.with_option(key, value)
    progress = progress_for(make_console()) if options.get("progress", True) else SilentProgress()
    request = AskRequest(Path(out), endpoint, dialect, dataset, model, _options(options))
    return ask_dataset(request, chosen, progress)


def _options(given: Mapping[str, Any]) -> AskOptions:
    """The options as the command line has them. Raises ConfigError."""
    kinds, words = get_type_hints(AskOptions), words_of(AskOptions)
    values: dict[str, Any] = {}
    for item in fields(AskOptions):
        value = given.get(item.name)
        if value is None:
            continue
        if item.name in words and value not in words[item.name]:
            raise ConfigError(f"The option '{item.name}' is one of {', '.join(words[item.name])}, not {value!r}.")
        if isinstance(value, Mapping):
            value = tuple(f"{key}={json.dumps(part)}" for key, part in value.items())
        elif get_origin(kinds[item.name]) is tuple:
            value = (value,) if isinstance(value, str) else tuple(value)
        elif isinstance(item.default, str) and not isinstance(value, str):
            value = str(value)
        elif item.name in ("words", "prompt_file", "guided", "ca"):
            value = Path(os.fspath(value))
        values[item.name] = value
    return AskOptions(**values)
