"""What a shell completes: names that are found here. Nothing heavy is imported, and a fault completes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import click

from ....engines.errors import XBenchError
from ....engines.user_files import entries
from ...host.config import Config, load_config

Completion = Callable[[click.Context, click.Parameter, str], list[str]]

# Importing them takes longer than a completion may.
_BASELINES = ("baseline:ones", "baseline:center", "baseline:chance", "baseline:prior")
_FILES = (
    "maps:", "boxes:", "moved:", "mirrored:", "words:bilateral", "words:prior", "reader:second", "reader:radiologist",
)  # fmt: skip


def _complete(
    names: Callable[[click.Context], Iterable[str]], context: click.Context, option: click.Parameter, incomplete: str
) -> list[str]:
    """The callback `shell_complete` of an option with one of the `names`."""
    try:
        return [name for name in dict.fromkeys(names(context)) if name.startswith(incomplete)]
    except (XBenchError, OSError, ValueError, LookupError, TypeError):
        return []


def _bundles(context: click.Context) -> list[str]:
    """The bundles found, as `find_bundles`, whose module takes longer to import than a completion may."""
    folders = context.params.get("bundles") or _config(context).bundles
    files = [
        file
        for folder in folders
        for file in (folder / "bundle.json", *(subfolder / "bundle.json" for subfolder in entries(folder)))
    ]
    return sorted(file.resolve().parent.name for file in files if file.is_file())


def _models(context: click.Context) -> list[str]:
    """What `eval` takes as a model: bundles, baselines, folders of maps, files of boxes and readers."""
    return [*_bundles(context), *_BASELINES, *_FILES]


def _datasets(context: click.Context) -> list[str]:
    """The configured datasets, the datasets of --data, and the built-in ones."""
    from ...data.datasets.dataset_registry import DATASETS

    given = [item.partition("=")[0] for item in context.params.get("data") or ()]
    return [*given, *_config(context).datasets, *DATASETS.names()]


def _dataset_folders(context: click.Context) -> list[str]:
    """The start of NAME=PATH."""
    return [f"{name}=" for name in _datasets(context)]


def _engines(context: click.Context) -> list[str]:
    """All engines, whether they run here or not."""
    from ....engines.select import ENGINES

    return ["auto", *ENGINES.names()]


def _probes(context: click.Context) -> list[str]:
    """The probes of the command trust."""
    from ...trust.probes.probe import PROBES

    return PROBES.names()


def _protocols(context: click.Context) -> list[str]:
    """The evaluation protocols."""
    from ...host.protocols import PROTOCOLS

    return list(PROTOCOLS)


def _run_names(key: str, context: click.Context) -> list[str]:
    """The names of models or datasets, by `key`, in the run that is named so far, else in the configured one."""
    # Where the value of an option is missing, as here, click leaves the arguments before it in `args`.
    run = Path(context.args[0]) if context.args else _config(context).eval.out
    cells = json.loads((run / "run.json").read_text(encoding="utf-8"))["cells"]
    return [cell[key] for cell in cells.values()]


def _config(context: click.Context) -> Config:
    return load_config(context.params.get("config_file"))


BUNDLES: Final = partial(_complete, _bundles)
MODELS: Final = partial(_complete, _models)
DATASETS: Final = partial(_complete, _datasets)
DATASET_FOLDERS: Final = partial(_complete, _dataset_folders)
ENGINES: Final = partial(_complete, _engines)
PROBES: Final = partial(_complete, _probes)
PROTOCOLS: Final = partial(_complete, _protocols)
RUN_MODELS: Final = partial(_complete, partial(_run_names, "model"))
RUN_DATASETS: Final = partial(_complete, partial(_run_names, "dataset"))
"""Callbacks `shell_complete`: what an option or argument names."""
