"""Keyword options of the public functions, and one check for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

from .engines.errors import ConfigError
from .engines.geometry import Geometry
from .engines.registry import did_you_mean

__all__ = ["AskKeywords", "EvaluateOptions", "FilePath", "ReportOptions", "check_options"]

FilePath = str | os.PathLike[str]


class EvaluateOptions(TypedDict, total=False):
    """Further options of `evaluate`; an absent option or None means the configuration's value, then the default.

    An option means what the option of that name of `xbench-fast eval` means, with - for _ (docs/reference.md). Python
    alone has these:

    prompts: a list of prompt sets, or the name of one; each gives a result of the model MODEL@SET.
    cache: also False, for no prepared images.
    boxes: box files to score, one, several, or name -> file, together with `models` or alone.
    data_options: dataset -> keys of its table in xbench.toml, such as {"mine": {"reader": "coco"}}.
    progress: False for no bars and lines.
    geometry, name, version: of a live model, see `evaluate`.
    """

    engine: str | None
    build: bool | None
    tf32: bool | None
    gpu: int | None
    batch: int | None
    threads: int | None
    limit: int | None
    chunk: int | None
    protocol: str | None
    prompts: str | Sequence[str] | None
    tiles: str | None
    tile_score: Literal["whole", "largest"] | None
    cache: FilePath | Literal[False] | None
    cache_limit: str | int | None
    decoder: Literal["auto", "cpu", "dali"]
    verify: bool
    boxes: FilePath | Sequence[FilePath] | Mapping[str, FilePath] | None
    missing: Literal["count", "leave-out"]
    bad_lines: Literal["stop", "count"]
    coco: FilePath | None
    mapping: FilePath | None
    thorax: Literal["fixed", "image"]
    lungs: FilePath | None
    uncertain: Literal["present", "absent"]
    bundles: FilePath | Sequence[FilePath] | None
    data_options: Mapping[str, Mapping[str, Any]] | None
    progress: bool
    geometry: Geometry | None
    name: str | None
    version: str | None


class ReportOptions(TypedDict, total=False):
    """How stored counts are scored; None means the protocol's value.

    An option means what the option of that name of `xbench-fast report` means, with - for _ (docs/reference.md).
    protocol: also a list of names. metrics: name -> "file.py:function" of a metric of one's own, or {"function":
    ..., "maps": True, "levels": True} (docs/metrics.md §19).
    """

    protocol: str | Sequence[str] | None
    tau_from: float | None
    best: Literal["per_class", "per_dataset", "per_model", "per_image", "cross_fit"] | None
    iou_at: Literal["joint", "independent"] | None
    ties: Literal["first", "any", "expected"] | None
    tolerance_px: float
    constant: Literal["miss", "skip"]
    pairs: Literal["all", "true_positives"] | None
    auprc: Literal["average_precision", "trapezoid"]
    f1: Literal["fixed", "best"]
    mean: Literal["macro", "micro"]
    mean_datasets: Literal["macro", "micro"]
    metrics: Mapping[str, str | Mapping[str, Any]]
    replicates: int
    seed: int


class CompareOptions(TypedDict, total=False):
    """How two runs are compared; None means the default.

    An option means what the option of that name of `xbench-fast compare` means. metrics: as in `ReportOptions`.
    """

    metrics: Mapping[str, str | Mapping[str, Any]]
    replicates: int | None
    seed: int | None


class AskKeywords(TypedDict, total=False):
    """Further options of `ask`, with the meaning of the options of that name of `xbench-fast ask` (docs/reference.md).

    set: field of the request -> value. data_options: keys of the dataset's table in xbench.toml. config: the
    configuration file, by default ./xbench.toml if it exists. progress: False for no bars and lines.
    """

    findings: str | Sequence[str]
    limit: int | None
    shuffle_seed: int | None
    negatives: str | int
    words: FilePath | None
    prompt_file: FilePath | None
    attempts: int
    temperature: float
    seed: int
    sampling: Literal["greedy", "official"]
    max_tokens: int | None
    set: Mapping[str, Any]
    unset: str | Sequence[str]
    guided: FilePath | None
    frame: str | None
    order: Literal["xyxy", "yxyx", "xywh", "cxcywh"]
    key: str
    view: str | None
    encoding: str
    view_unproved: bool
    grid_lines: bool
    server: Literal["auto", "vllm", "sglang", "llamacpp", "ollama", "openai", "plain"]
    concurrency: int
    timeout: float
    retries: int
    go_on: bool
    model_alias: str | Sequence[str]
    allow_host: str | Sequence[str]
    key_env: str | None
    ca: FilePath | None
    prices: str | None
    dry_run: bool
    write: bool
    recheck: bool
    data_options: Mapping[str, Any]
    config: FilePath | None
    progress: bool


def check_options(function: str, kinds: type, given: Mapping[str, Any]) -> None:
    """Raises ConfigError for a name that `kinds`, one of the classes above, does not have, or a value of another type.

    The content of a text is checked where it is used, with the same message as on the command line.
    """
    types = get_type_hints(kinds)
    for name, value in given.items():
        if name not in types:
            raise ConfigError(f"{function} has no option '{name}': {did_you_mean(name, types)}.")
        if not any(_fits(value, annotation) for annotation in _alternatives(types[name])):
            words = dict.fromkeys(_word(annotation) for annotation in _alternatives(types[name]))
            raise ConfigError(f"The option '{name}' of {function} is {' or '.join(words)}, not {value!r}.")


_WORDS: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    os.PathLike: "a path",
    Path: "a path",
    type(None): "None",
    Mapping: "a dictionary",
    Sequence: "a list",
    Geometry: "a Geometry",
}


def _alternatives(annotation: Any) -> list[Any]:
    """The types in a union; literals of texts become `str`, Literal[False] stays."""
    if get_origin(annotation) in (Union, UnionType):
        return [part for argument in get_args(annotation) for part in _alternatives(argument)]
    if get_origin(annotation) is Literal:
        return [annotation] if get_args(annotation) == (False,) else [str]
    origin = get_origin(annotation) or annotation
    return [annotation] if origin is Sequence else [getattr(origin, "__origin__", origin)]


def _fits(value: object, annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return value is False
    if get_origin(annotation) is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(
            any(_fits(item, kind) for kind in _alternatives(get_args(annotation)[0])) for item in value
        )  # fmt: skip
    if annotation in (int, float):
        return isinstance(value, int if annotation is int else int | float) and not isinstance(value, bool)
    return isinstance(value, annotation)


def _word(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "False"
    if get_origin(annotation) is Sequence:
        return "a list of texts" if get_args(annotation) == (str,) else "a list of paths"
    return _WORDS[annotation]
