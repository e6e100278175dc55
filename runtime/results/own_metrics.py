"""Metrics of a user: a function of the counts, or the map and region, of one pair, named in `[metrics.NAME]`
(docs/metrics.md §19)."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError, RunError
from ...engines.registry import Registry, did_you_mean, is_file
from ...metrics_gpu.sweep.sweep_options import LEVELS
from ..host.paths import has_file
from ..host.source_code import code_digest

if TYPE_CHECKING:
    from .load_rows import CellRows

FUNCTIONS: Final = Registry("metric", {}, group="xbench_fast.metrics")
"""Metrics of installed packages; a file.py:function needs no package."""

_ARGUMENTS: Final = ("area", "overlap", "region", "hit", "argmax", "degenerate", "logit")
_OF_MAPS: Final = ("map", "mask")

Drawn = Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]
"""The map and the region of each pair, float32 and bool [224, 224]."""


class OwnName(str):
    """The name of a number of a user's metric, which tables can tell from a mistyped name of the project's.

    metric: its name; part: what of it, at 0.5 ("fixed"), at its "best" threshold or "cross_fitted"; empty for a metric
    that has no levels.
    """

    __slots__ = ("metric", "part")
    metric: str
    part: str

    def __new__(cls, metric: str, part: str = "") -> OwnName:
        name = super().__new__(cls, f"{metric}_{part}" if part else metric)
        name.metric, name.part = metric, part
        return name

    @property
    def source(self) -> tuple[str, str]:
        """As in `numbers.FIELDS`."""
        if self.part == "cross_fitted":
            return "cross_fitted", f"{self.metric}_best"
        return "grounding", str(self)


_KEYS: Final = ("function", "maps", "levels")


@dataclass(frozen=True)
class OwnMetric:
    """A metric of a user. name: its key in every table; target: "module:function" or "file.py:function". code: the
    start of the SHA-256 of its file, or of the hash of its module and what that imports, so that no result of another
    text is reused. maps: it takes the map and the region; levels: it answers a score at each of the 101 thresholds.
    Raises ConfigError for a name that cannot be used."""

    name: str
    target: str
    code: str = ""
    maps: bool = False
    levels: bool = False

    @classmethod
    def of(cls, name: str, given: str | Mapping[str, Any]) -> OwnMetric:
        """The metric with the present text of its file. given: its function, or the keys of its table: `function`,
        `maps` and `levels`. Raises ConfigError."""
        table = {"function": given} if isinstance(given, str) else given
        for key in table:
            if key not in _KEYS:
                raise ConfigError(f"[metrics.{name}]: {did_you_mean(str(key), _KEYS)}, not '{key}'.")
        target, maps, levels = table.get("function", name), table.get("maps", False), table.get("levels", False)
        if not isinstance(target, str) or not isinstance(maps, bool) or not isinstance(levels, bool):
            raise ConfigError(f"[metrics.{name}]: function is a text, maps and levels are true or false; correct them.")
        if ":" not in target and target in FUNCTIONS.names():
            target = FUNCTIONS.target(target)
        module = target.rpartition(":")[0]
        if not is_file(target):
            code = code_digest([module])[:12] if module else ""
        else:
            code = hashlib.sha256(Path(module).read_bytes()).hexdigest()[:12] if has_file(Path(module)) else ""
        return cls(name, target, code, maps, levels)

    @property
    def fact(self) -> str:
        """A line for the notes of every table."""
        searched = ", at its own best threshold and at 0.5" * self.levels
        code = f", {'SHA-256' if is_file(self.target) else 'code'} {self.code}" if self.code else ""
        return f"metric {self.name}{searched}: {self.target}{code}"

    @property
    def numbers(self) -> tuple[OwnName, ...]:
        """The names of its numbers."""
        return tuple(OwnName(self.name, part) for part in (("best", "cross_fitted", "fixed") if self.levels else ("",)))

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", self.name):
            raise ConfigError(
                f"[metrics.{self.name}]: the name of a metric has at most 40 small letters, digits and underscores, "
                "the first a letter; choose another."
            )

    @property
    def keys(self) -> tuple[str, ...]:
        """All names that it takes."""
        return (self.name, *self.numbers, *[f"{self.name}_tau"] * self.levels)


def check_names(metrics: Iterable[OwnMetric], known: Iterable[str]) -> None:
    """Raises ConfigError if a metric has the name of another one's number, or of the project's: `known` and others."""
    taken = {*known, *_TAKEN}
    for metric in metrics:
        for name in metric.keys:
            if name in taken:
                raise ConfigError(f"[metrics.{metric.name}]: there is a number '{name}' already; choose another name.")
        taken.update(metric.keys)


_TAKEN: Final = {"best_tau", "iou_tau", "best_threshold", "n", "name", "degenerate", "mean", "paper"}


def own_scores(metric: OwnMetric, cell: CellRows, draw: Callable[[], Drawn | None]) -> NDArray[np.float64]:
    """float64 [P], or [P, 101] of one with levels: the metric of each pair of a cell; NaN of all if it takes maps and
    `draw` has none.

    The function takes any of these by name, of one pair: area and overlap int64 [101], region, argmax int; hit,
    degenerate bool; logit float; where the metric has maps, map and mask too. It answers a number between 0 and 1, or
    with levels 101 of them; what it prints goes to standard error. Raises ConfigError for a function that cannot be
    found or takes something else, RunError for one that raises or answers something else.
    """
    with redirect_stdout(sys.stderr):
        return _scores(metric, cell, draw)


def _scores(metric: OwnMetric, cell: CellRows, draw: Callable[[], Drawn | None]) -> NDArray[np.float64]:
    function, where = FUNCTIONS.load(metric.target), f"[metrics.{metric.name}]: {metric.target}"
    names = _arguments(function, where, metric.maps)
    counts = cell.counts
    logits = cell.logits[cell.image_of, cell.class_of] if cell.logits.shape[1] else np.full(len(counts), np.nan)
    columns: dict[str, Sequence[Any]] = {
        "area": [*counts.area.astype(np.int64)] if "area" in names else (),
        "overlap": [*counts.overlap.astype(np.int64)] if "overlap" in names else (),
        **{name: getattr(counts, name).tolist() for name in ("region", "hit", "argmax", "degenerate")},
        "logit": logits.tolist(),
    }
    plain = [name for name in names if name not in _OF_MAPS]
    drawn = iter(()) if len(plain) == len(names) else draw()
    scores = np.full((len(counts), LEVELS) if metric.levels else len(counts), np.nan)
    if drawn is None:
        return scores
    for pair in range(len(counts)):
        values = {name: columns[name][pair] for name in plain}
        if len(plain) < len(names):
            both = dict(zip(_OF_MAPS, next(drawn), strict=True))
            values |= {name: both[name] for name in names if name in both}
        answer, fault = _answer(function, values, metric.levels)
        if fault:
            case = cell.case_ids[cell.case_of[cell.image_of[pair]]]
            place = f"{cell.findings[cell.class_of[pair]]} in {case} of {cell.dataset}, model {cell.model}"
            raise RunError(f"{where} {fault} for {place}; correct the function.")
        scores[pair] = answer
    return scores


def _answer(function: Callable[..., Any], values: dict[str, Any], levels: bool) -> tuple[Any, str]:
    """The answer for one pair, and what is wrong with it."""
    try:
        answer = function(**values)
    except (Exception, SystemExit) as error:  # of a user's code: any can come
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())
        return math.nan, f"raised {type(error).__name__} ({said}) in {frame.filename}, line {frame.lineno},"
    if levels:
        return _curve(answer)
    if not isinstance(answer, Real | np.bool_):
        return math.nan, f"answered {answer!r:.60}, which is no number,"
    value = float(answer)
    return value, "" if 0 <= value <= 1 else f"answered {value:g}, not a number between 0 and 1,"


def _curve(answer: Any) -> tuple[Any, str]:
    """The answer of a metric with levels, and what is wrong with it."""
    try:
        curve = np.asarray(answer)
    except ValueError:  # lists of several lengths
        curve = np.zeros(0)
    if curve.shape != (LEVELS,) or curve.dtype.kind not in "biuf":
        said = " ".join(f"{answer!r:.60}".split())
        return math.nan, f"answered {said}, not one number for each of the {LEVELS} thresholds,"
    wrong = np.flatnonzero(~((curve >= 0) & (curve <= 1)))
    first = f"answered {curve[wrong[0]]:g} at threshold {wrong[0] / 100:g}, not a number" if len(wrong) else ""
    return curve, f"{first} between 0 and 1," if first else ""


def _arguments(function: Any, where: str, maps: bool) -> tuple[str, ...]:
    """The names of the arguments. Raises ConfigError for a function that cannot be called with them."""
    if not callable(function):
        raise ConfigError(f"{where} is no function; name one.")
    known = _ARGUMENTS + _OF_MAPS * maps
    parameters = inspect.signature(function).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = tuple(item.name for item in parameters if item.default is item.empty)
    for item in parameters:
        if item.name in _OF_MAPS and item.default is item.empty and not maps:
            raise ConfigError(f"{where} takes an argument '{item.name}', which needs maps = true in its table.")
        if item.default is item.empty and (item.name not in known or item.kind not in plain):
            raise ConfigError(f"{where} takes an argument '{item.name}': {did_you_mean(item.name, known)}.")
    if not names:
        raise ConfigError(f"{where} takes no argument; it can take {', '.join(known)}.")
    return names
