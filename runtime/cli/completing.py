"""What a shell completes: names that are found here. Nothing heavy is imported, and a fault completes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from ...engines.errors import XBenchError
from ..host.config import Config, load_config

__all__ = ["bundles", "completed", "dataset_folders", "datasets", "engines", "models", "protocols", "run_names"]

# Importing them takes longer than a completion may.
_BASELINES = ("baseline:ones", "baseline:center", "baseline:chance", "baseline:prior")
_FILES = ("maps:", "boxes:", "moved:", "reader:second")

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def completed(names: Callable[[click.Context], Iterable[str]]) -> Completion:
    """The callback `shell_complete` of an option with one of the `names`, or several joined by commas."""

    def complete(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        try:
            return [f"{before}{comma}{name}" for name in dict.fromkeys(names(context)) if name.startswith(last)]
        except (XBenchError, OSError, ValueError, LookupError, TypeError):
            return []

    return complete


def bundles(context: click.Context) -> list[str]:
    """The bundles found, as `find_bundles`, whose module takes longer to import than a completion may."""
    folders = context.params.get("bundle_folders") or _config(context).bundles
    files = [file for folder in folders for file in (folder / "bundle.json", *folder.glob("*/bundle.json"))]
    return sorted(file.resolve().parent.name for file in files if file.is_file())


def models(context: click.Context) -> list[str]:
    """What `eval` takes as a model: bundles, baselines, folders of maps, files of boxes and a second reader."""
    return [*bundles(context), *_BASELINES, *_FILES]


def datasets(context: click.Context) -> list[str]:
    """The configured datasets, those of --data, and the built-in ones."""
    from ..datasets.registry import DATASETS

    given = [item.partition("=")[0] for item in context.params.get("data") or ()]
    return [*given, *_config(context).datasets, *DATASETS.names()]


def dataset_folders(context: click.Context) -> list[str]:
    """The start of NAME=PATH."""
    return [f"{name}=" for name in datasets(context)]


def engines(context: click.Context) -> list[str]:
    """All engines, whether they run here or not."""
    from ...engines.select import ENGINES

    return ["auto", *ENGINES.names()]


def protocols(context: click.Context) -> list[str]:
    """The evaluation protocols."""
    from ...metrics_gpu.grounding.protocols import PROTOCOLS

    return list(PROTOCOLS)


def run_names(kind: str) -> Callable[[click.Context], list[str]]:
    """The names of a kind, "model" or "dataset", in the run that is named so far, else in that of the configuration."""

    def names(context: click.Context) -> list[str]:
        # Where the value of an option is missing, as here, click leaves the arguments before it in `args`.
        run = Path(context.args[0]) if context.args else _config(context).eval.out
        cells = json.loads((run / "run.json").read_text(encoding="utf-8"))["cells"]
        return [cell[kind] for cell in cells.values()]

    return names


def _config(context: click.Context) -> Config:
    return load_config(context.params.get("config_file"))
