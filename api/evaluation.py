"""Models x datasets -> a run directory: `xbench-fast eval` as a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from .cases import Radiographs
from .engines.errors import ConfigError, RunError
from .engines.registry import did_you_mean
from .options import EvaluateOptions, FilePath, check_options
from .runs import Run, load_run
from .runtime.data.answers.box_file import ReadOptions
from .runtime.data.answers.words.thorax_frames import WordOptions
from .runtime.evaluation.live_model import LiveFunction, LiveModel
from .runtime.evaluation.progress import Progress, SilentProgress, progress_for
from .runtime.evaluation.reference.box_models import PREFIX as BOXES
from .runtime.evaluation.reference.box_models import BoxOptions
from .runtime.evaluation.run_evaluation import Asked, Evaluation
from .runtime.host.config import Config, load_config
from .runtime.host.options import MAX_THREADS, EvaluationOptions, words_of
from .runtime.host.sizes import parse_bytes
from .runtime.reporting.tables.console import make_console
from .runtime.results.run_outcome import RunOutcome

__all__ = ["evaluate"]

Model = FilePath | LiveFunction
_LIVE = ("geometry", "name", "version")


def evaluate(
    models: Model | Sequence[Model] | None = None,
    dataset: str | Radiographs | Sequence[str | Radiographs] | None = None,
    data: FilePath | Sequence[FilePath] | None = None,
    *,
    config: FilePath | None = None,
    out: FilePath | None = None,
    **options: Unpack[EvaluateOptions],
) -> Run:
    """Evaluates models on datasets and returns the run. Finished results in `out` are kept and not computed again.

    models: the path of a bundle, a name (of a bundle, or of a model in the folders of bundles), "baseline:ones",
        ":center", ":chance" or ":prior", "maps:FOLDER", "boxes:FILE", "moved:FILE",
        "mirrored:FILE", "words:bilateral", "words:prior", "reader:second", "reader:radiologist", or a callable; one of
        them or a list. None: all bundles found, or with the option `boxes` its files alone.
    dataset, data: the name of a dataset and its folder, or lists of equal length; an object from `load_dataset`
        replaces both. A dataset of the configuration needs no folder. None: all datasets of the configuration.
    config: the configuration file, by default ./xbench.toml if it exists. Arguments override it.
    out: the run directory (default: the configured one, else "run").
    options: see `EvaluateOptions`.

    A callable is a live model: (pixels uint8 [B, 1, S, S], list of Q findings) -> (logits [B, Q], saliency
    [B, Q, h, w]), floating point, NumPy arrays or tensors on any device; the maps on the model's own grid, not
    normalised. It is called in this thread, first with one black image; of a dataset that asks phrases it gets the
    phrases of a batch. It needs `geometry`, a `Geometry`: how pixels
    are prepared. `name`: its name in tables, by default the name of the callable. `version`: names the state of the
    model, such as "epoch-3"; results are reused only if it is given and unchanged.

    Raises ConfigError for unknown names and invalid options, and RunError, after all others are done, for a model and
    dataset that could not be evaluated, of which half of the images or maps are missing
    (unless the dataset has the option `part`), or of which most are unreadable.
    """
    check_options("evaluate", EvaluateOptions, options)
    named, live = _models(models, options)
    settings, names = _datasets(load_config(None if config is None else Path(config)), dataset, data, options)
    settings = _settings(settings, out, options)
    asked = Asked(
        models=named,
        datasets=names,
        live=live,
        limit=_at_least(1, "limit", options.get("limit")),
        chunk=_at_least(1, "chunk", options.get("chunk")) or Asked.chunk,
        decoder=options.get("decoder", Asked.decoder),
        verify=options.get("verify", Asked.verify),
        boxes=_box_options(options),
    )
    evaluation, progress = Evaluation.of(settings, asked), _progress(options.get("progress", True))
    for line in settings.own_code():
        progress.say(line)
    _raise_failures(evaluation.run(progress))
    return load_run(settings.eval.out)


def _models(models: Any, options: EvaluateOptions) -> tuple[list[str], LiveModel | None]:
    several = [] if models is None else list(models) if isinstance(models, Sequence) and not _path(models) else [models]
    named = [os.fspath(model) for model in several if _path(model)] + _boxes(options)
    live: list[Callable[..., Any]] = [model for model in several if not _path(model)]
    if not live:
        if given := [key for key in _LIVE if options.get(key) is not None]:
            raise ConfigError(f"The option '{given[0]}' is for a live model, and no callable was given.")
        if models is not None and not named:
            raise ConfigError("The list of models is empty; leave it out for all bundles found.")
        return named, None
    if len(live) > 1:
        raise ConfigError("Two callables were given; evaluate live models one after the other.")
    geometry = options.get("geometry")
    if geometry is None:
        raise ConfigError(
            "A live model needs the option geometry, which says how its pixels are prepared, such as "
            "geometry=Geometry('squash', 224, 224, 'bicubic')."
        )
    label = str(getattr(live[0], "__name__", type(live[0]).__name__))
    name = options.get("name") or ("live" if label == "<lambda>" else label)
    return named, LiveModel(live[0], geometry, name, options.get("version"))


def _boxes(options: EvaluateOptions) -> list[str]:
    """The files of boxes as models."""
    given = options.get("boxes") or []
    if isinstance(given, Mapping):
        return [f"{BOXES}{name}={os.fspath(path)}" for name, path in given.items()]
    return [f"{BOXES}{os.fspath(path)}" for path in ([given] if isinstance(given, str | os.PathLike) else given)]


def _box_options(options: EvaluateOptions) -> BoxOptions:
    missing = options.get("missing", EvaluationOptions.missing)
    bad_lines = options.get("bad_lines", EvaluationOptions.bad_lines)
    words = words_of(EvaluationOptions)
    thorax = options.get("thorax", EvaluationOptions.thorax)
    uncertain = options.get("uncertain", EvaluationOptions.uncertain)
    for name, value in (
        ("missing", missing), ("bad_lines", bad_lines), ("thorax", thorax), ("uncertain", uncertain),
    ):  # fmt: skip
        if value not in words[name]:
            raise ConfigError(f"The option '{name}' cannot be '{value}': {did_you_mean(value, words[name])}.")
    files = (options.get("coco"), options.get("mapping"), options.get("lungs"))
    coco, mapping, lungs = (None if file is None else Path(file) for file in files)
    drawing = WordOptions(thorax, lungs, uncertain)
    return BoxOptions(missing, ReadOptions(bad_lines == "count", coco, mapping, drawing))


def _datasets(config: Config, dataset: Any, data: Any, options: EvaluateOptions) -> tuple[Config, list[str]]:
    """The configuration with the given datasets added, and the names of those to evaluate."""
    given = [] if dataset is None else [dataset] if isinstance(dataset, str | Radiographs) else list(dataset)
    folders = [] if data is None else [data] if _path(data) else list(data)
    if folders and len(folders) != len(given):
        raise ConfigError(f"{len(given)} datasets and {len(folders)} folders were given; give one folder for each.")
    for index, item in enumerate(given):
        if isinstance(item, Radiographs):
            config = config.with_dataset(item._config)
        elif folders:
            config = config.with_dataset(config.dataset(item, Path(folders[index]).expanduser()))
    for name, keys in (options.get("data_options") or {}).items():
        if name not in config.datasets:
            raise ConfigError(
                f"data_options: there is no dataset '{name}'; give its folder with data=, and its options by its "
                "name, as data_options={'rsna': {'list': 'test.csv'}}."
            )
        for key, value in keys.items():
            config = config.with_dataset(config.datasets[name].with_option(key, value))
    return config, [item.name if isinstance(item, Radiographs) else item for item in given]


def _settings(config: Config, out: FilePath | None, options: EvaluateOptions) -> Config:
    run = config.eval.out if out is None else Path(out)
    cache, limit, bundles = options.get("cache"), options.get("cache_limit"), options.get("bundles")
    if cache is False:
        config = replace(config, cache=None)
    elif cache is not None:
        config = replace(config, cache=Path(cache))
    elif config.cache is None:
        config = replace(config, cache=run / "prepared")
    if limit is not None:
        config = replace(config, cache_limit=parse_bytes(str(limit), "cache_limit"))
    if bundles is not None:
        folders = [bundles] if isinstance(bundles, str | os.PathLike) else bundles
        config = replace(config, bundles=tuple(map(Path, folders)))
    prompts = options.get("prompts") or ()
    config = config.with_prompts([prompts] if isinstance(prompts, str) else prompts)
    return config.with_settings(
        out=run,
        batch=_at_least(1, "batch", options.get("batch")),
        threads=_at_least(1, "threads", options.get("threads"), MAX_THREADS),
        gpu=_at_least(0, "gpu", options.get("gpu")),
        **{key: options.get(key) for key in ("engine", "protocol", "build", "tf32", "tiles", "tile_score")},
    )


def _at_least(least: int, name: str, value: int | None, most: int | None = None) -> int | None:
    if value is not None and value < least:
        raise ConfigError(f"The option '{name}' of evaluate must be at least {least}, not {value}.")
    if value is not None and most is not None and value > most:
        raise ConfigError(f"The option '{name}' of evaluate must be at most {most}, not {value}.")
    return value


def _progress(wanted: bool) -> Progress:
    return progress_for(make_console(stderr=True)) if wanted else SilentProgress()


def _raise_failures(outcome: RunOutcome) -> None:
    failures = [f"{model} on {dataset}: {reason}" for model, dataset, reason in outcome.problems]
    if failures:
        raise RunError("; ".join(text.rstrip(".") for text in failures) + ".")
    if not outcome.finished:
        skipped = "; ".join(f"{model} on {dataset}: {reason}" for model, dataset, reason in outcome.skipped)
        raise RunError(f"Nothing was evaluated, because every pair was skipped: {skipped}.")


def _path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)
