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

__all__ = ["EvaluateOptions", "FilePath", "ReportOptions", "check_options"]

FilePath = str | os.PathLike[str]


class EvaluateOptions(TypedDict, total=False):
    """Further options of `evaluate`; an absent option or None means the configuration's value, then the default.

    engine: "auto" (default), "tensorrt", "tensorrt-rtx", "onnxruntime-cuda" or "onnxruntime-cpu". build: whether a
        TensorRT plan may be built (True). tf32: whether float32 products on a GPU may round their inputs (False).
    batch: images per batch (16). threads: of the engine and of decoding (all cores). limit: only the first cases of
        each dataset. chunk: cases per part file, the most that a killed run repeats (512).
    protocol: "default", "paper", "chexlocalize", "medklip" or "mavl".
    cache: folder of prepared images, False for none (prepared/ in the run directory). cache_limit: the most they may
        take, such as "20 GB". decoder: "auto", "cpu" or "dali".
    verify: True reads every image again before a result or a prepared image of it is reused (False).
    boxes: files of predicted boxes, one, several, or name -> file; beside `models`, or alone.
    missing: a pair without a line in a file of boxes is scored as silent ("count") or left out ("leave-out").
    bad_lines: an invalid line of it stops ("stop"), or is counted and its pair scored as missing ("count").
    coco: the COCO file with the images and categories of a file of boxes that is COCO results. mapping: a JSON file
        {text: finding or phrase} for one that is RadFact's grounded phrases.
    bundles: a folder that holds bundles, or several, for models given by name. data_options: dataset -> keys of its
        table in xbench.toml, such as {"mine": {"reader": "coco"}}.
    progress: False for no bars and lines.
    geometry, name, version: of a live model, see `evaluate`.
    """

    engine: str | None
    build: bool | None
    tf32: bool | None
    batch: int | None
    threads: int | None
    limit: int | None
    chunk: int | None
    protocol: str | None
    cache: FilePath | Literal[False] | None
    cache_limit: str | int | None
    decoder: Literal["auto", "cpu", "dali"]
    verify: bool
    boxes: FilePath | Sequence[FilePath] | Mapping[str, FilePath] | None
    missing: Literal["count", "leave-out"]
    bad_lines: Literal["stop", "count"]
    coco: FilePath | None
    mapping: FilePath | None
    bundles: FilePath | Sequence[FilePath] | None
    data_options: Mapping[str, Mapping[str, Any]] | None
    progress: bool
    geometry: Geometry | None
    name: str | None
    version: str | None


class ReportOptions(TypedDict, total=False):
    """How stored counts are scored, as the options of `xbench-fast report`; None means the protocol's value.

    protocol: how maps are cut and counted, as evaluated by default; or a published scorer of boxes that is shown, such
        as "radvlm", every one by default; one name or a list. tau_from: first threshold of the search, 0 or 0.01.
    best: what a best threshold is chosen for, "per_class" (default), "per_dataset", "per_model", "per_image" or
        "cross_fit". iou_at: IoU at the threshold found for Dice ("joint") or at its own ("independent").
    ties: "first", "any" or "expected". tolerance_px: a miss this near to a region is a hit, in pixels of the 224 grid.
    constant: a constant map is a "miss", or its pair is left out ("skip"). pairs: "all" or "true_positives".
    auprc: "average_precision" or "trapezoid". f1: at p >= 0.5 ("fixed") or at the best threshold ("best").
    mean, mean_datasets: over classes and over datasets, unweighted ("macro") or by pairs ("micro").
    replicates: resamples of the patients, 0 for no intervals (1000). seed: of the resampling.
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
    replicates: int
    seed: int


def check_options(function: str, kinds: type, given: Mapping[str, Any]) -> None:
    """Raises ConfigError for a name that `kinds`, one of the classes above, does not have, or a value of another type.

    The content of a text is checked where it is used, with the same message as on the command line.
    """
    known = get_type_hints(kinds)
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{function} has no option '{name}': {did_you_mean(name, known)}.")
        if not any(_fits(value, kind) for kind in _alternatives(known[name])):
            words = dict.fromkeys(_word(kind) for kind in _alternatives(known[name]))
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


def _alternatives(kind: Any) -> list[Any]:
    """The types in a union; literals of texts become `str`, Literal[False] stays."""
    if get_origin(kind) in (Union, UnionType):
        return [part for each in get_args(kind) for part in _alternatives(each)]
    if get_origin(kind) is Literal:
        return [kind] if get_args(kind) == (False,) else [str]
    origin = get_origin(kind) or kind
    return [getattr(origin, "__origin__", origin)]


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value is False
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if kind not in (str, os.PathLike) and isinstance(value, str):
        return False  # a text is a sequence too
    return isinstance(value, kind)


def _word(kind: Any) -> str:
    import collections.abc

    if get_origin(kind) is Literal:
        return "False"
    same = {collections.abc.Mapping: Mapping, collections.abc.Sequence: Sequence}
    return _WORDS[same.get(kind, kind)]
