"""What a report shows of a run, and how: models and datasets in their order, printed names, numbers, intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...engines.errors import ConfigError
from ...engines.file_names import joined
from ...engines.registry import did_you_mean
from .paper.paper_numbers import NAMES, PrintedModel
from .tables.latex import TEXT_WIDTH
from .tables.metric_names import METRICS
from .tables.table import Intervals

_PAPER: Final = "paper:"
_BESIDE: Final = ("mean", "paper")


@dataclass(frozen=True)
class Presentation:
    """The choices of presentation of a report.

    models, datasets: those shown, in this order; empty: all, in the order of the run. names: a model or dataset -> its
    printed name. They hold for every part of the report: means, ranks and tests are of the models and datasets shown.
    Among the models, "paper:FAMILY" is the row that the paper prints for a model, and "paper" those of all models of
    the paper that the run does not have.

    columns: the numbers in the tables, in this order, keys of `METRICS` or names of `own`, the user's metrics; "mean"
    for means over datasets and "paper" for the paper's numbers beside one's own; empty: all. scorers: the published
    scorers of boxes; empty: all. intervals: where they stand. text_width: of LaTeX, in points. raw_csv: texts in CSV
    files stand as they are (`to_csv`).
    """

    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    intervals: Intervals = "below"
    text_width: float = TEXT_WIDTH
    scorers: tuple[str, ...] = ()
    raw_csv: bool = False
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = [*METRICS, *_BESIDE, *self.own]
        for name in self.columns:
            if name not in known:
                raise ConfigError(f"--column: there is no number '{name}': {did_you_mean(name, known)}.")
        for name in self.models:
            if name.startswith(_PAPER) and name.removeprefix(_PAPER) not in NAMES:
                families = [f"{_PAPER}{family}" for family in NAMES]
                raise ConfigError(f"--model: the paper has no model '{name}': {did_you_mean(name, families)}.")

    def printed(self, data: Mapping[str, Any]) -> tuple[PrintedModel, ...]:
        """The rows of the paper among the models, for a run whose models are chosen already (`of`)."""
        own = {str(entry.get("model_family", "")) for entry in data["cells"].values()}
        found: list[PrintedModel] = []
        above = 0
        for name in self.models:
            families = [name.removeprefix(_PAPER)] if name.startswith(_PAPER) else []
            if name == "paper":
                named = {other.removeprefix(_PAPER) for other in self.models}
                families = [family for family in NAMES if family not in own | named]
            above += not families and name != "paper"
            found += [PrintedModel(f, self.names.get(f"{_PAPER}{f}", NAMES[f]), above) for f in families]
        return tuple(found)

    def of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The content of run.json with these models and datasets alone, under their printed names.

        Raises ConfigError for a model or dataset that the run does not have, and for two models of one name.
        """
        cells = data["cells"].values()
        config = data["config"]
        every = list(dict.fromkeys([*config.get("bundles", ()), *(entry["model"] for entry in cells)]))
        every = [name for name in every if any(entry["model"] == name for entry in cells)]
        wanted = [name for name in self.models if name != "paper" and not name.startswith(_PAPER)]
        models = _chosen("--model", wanted, every, "model")
        datasets = _chosen("--dataset", self.datasets, dict.fromkeys(entry["dataset"] for entry in cells), "dataset")
        for name in self.names:
            shown = [*every, *dict.fromkeys(entry["dataset"] for entry in cells)]
            if name not in (f"{_PAPER}{family}" for family in NAMES):
                _known("--name", name, shown, "model or dataset")
        named = [self.names.get(model, model) for model in models]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"--name gives two models the name '{twice}'; every model needs a name of its own.")
        kept = [entry for entry in cells if entry["model"] in models and entry["dataset"] in datasets]
        absent = [model for model in models if not any(entry["model"] == model for entry in kept)]
        if absent and (wanted or not kept):
            raise ConfigError(
                f"--model: the run has nothing of {', '.join(absent)} on {', '.join(datasets)}; choose others."
            )
        told = config.get("datasets", {})
        if self.datasets:
            kept.sort(key=lambda entry: datasets.index(entry["dataset"]))
            told = {name: told[name] for name in dict.fromkeys([*datasets, *told]) if name in told}
        renamed = [{**entry, "model": self.names.get(entry["model"], entry["model"])} for entry in kept]
        for entry in renamed:
            if entry["dataset"] in self.names:
                entry["title"] = self.names[entry["dataset"]]
        return {
            **data,
            "config": {**config, "bundles": named, "datasets": told},
            "cells": {joined(shown["model"], shown["dataset"]): shown for shown in renamed},
        }

    @property
    def told(self) -> dict[str, str]:
        """Facts for the reader of the report: what was chosen, and which model or dataset has which printed name."""
        shown = [("models", self.models), ("datasets", self.datasets)]
        found = {f"{what} shown": ", ".join(names) for what, names in shown if names}
        named = "; ".join(f"{printed} is {name}" for name, printed in self.names.items())
        found |= {"columns": ", ".join(self.columns)} if self.columns else {}
        return {**found, "printed names": named} if named else found


EVERYTHING = Presentation()
"""All models and datasets of a run, by their own names."""


def parse_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The keys of numbers that are given by their keys, or by their headings: point, dice, iou."""
    titles = {metric.title.lower().replace(" ", "_"): key for key, metric in METRICS.items()}
    words = [item.lower().replace("-", "_").replace(" ", "_") for item in names]
    return tuple(dict.fromkeys(titles.get(word, word) for word in words))


def parse_names(items: Iterable[str]) -> dict[str, str]:
    """Several NAME=PRINTED as a mapping. Raises ConfigError."""
    names = {}
    for item in items:
        name, equals, printed = map(str.strip, item.partition("="))
        if not equals or not name or not printed:
            raise ConfigError(f"--name {item} is not of the form NAME=PRINTED.")
        names[name] = printed
    return names


def _chosen(option: str, wanted: Iterable[str], known: Collection[str], what: str) -> list[str]:
    names = list(wanted)
    for name in names:
        _known(option, name, known, what)
    return names or list(known)


def _known(option: str, name: str, known: Collection[str], what: str) -> None:
    if name not in known:
        raise ConfigError(f"{option}: the run has no {what} '{name}': {did_you_mean(name, list(known))}.")
