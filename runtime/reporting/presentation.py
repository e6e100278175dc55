"""What a report shows of a run, and how: its models and datasets in their order, their printed names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean

__all__ = ["EVERYTHING", "Presentation", "parse_list", "parse_names"]

_ITEM = re.compile(r'(?:[^,"]|"[^"]*")+')


@dataclass(frozen=True)
class Presentation:
    """The choices of presentation of a report.

    models, datasets: those shown, in this order; empty: all, in the order of the run. names: a model or dataset -> its
    printed name. They hold for every part of the report: means, ranks and tests are of the models and datasets shown.
    """

    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The content of run.json with these models and datasets alone, under their printed names.

        Raises ConfigError for a model or dataset that the run does not have, and for two models of one name.
        """
        cells = data["cells"].values()
        config = data["config"]
        every = list(dict.fromkeys([*config.get("bundles", ()), *(entry["model"] for entry in cells)]))
        every = [name for name in every if any(entry["model"] == name for entry in cells)]
        models = _chosen("--models", self.models, every, "model")
        datasets = _chosen("--datasets", self.datasets, dict.fromkeys(entry["dataset"] for entry in cells), "dataset")
        for name in self.names:
            _known("--names", name, [*every, *dict.fromkeys(entry["dataset"] for entry in cells)], "model or dataset")
        named = [self.names.get(model, model) for model in models]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"--names gives two models the name '{twice}'; every model needs a name of its own.")
        kept = [entry for entry in cells if entry["model"] in models and entry["dataset"] in datasets]
        told = config.get("datasets", {})
        if self.datasets:
            kept.sort(key=lambda entry: datasets.index(entry["dataset"]))
            told = {name: told[name] for name in dict.fromkeys([*datasets, *told]) if name in told}
        return {
            **data,
            "config": {**config, "bundles": named, "datasets": told},
            "cells": {f"{shown['model']}--{shown['dataset']}": shown for shown in map(self._renamed, kept)},
        }

    @property
    def told(self) -> dict[str, str]:
        """Facts for the reader of the report: what was chosen, and which model or dataset has which printed name."""
        shown = [("models", self.models), ("datasets", self.datasets)]
        found = {f"{what} shown": ", ".join(names) for what, names in shown if names}
        named = "; ".join(f"{printed} is {name}" for name, printed in self.names.items())
        return {**found, "printed names": named} if named else found

    def _renamed(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        model, dataset = entry["model"], entry["dataset"]
        title = {"title": self.names[dataset]} if dataset in self.names else {}
        return {**entry, "model": self.names.get(model, model), **title}


EVERYTHING = Presentation()
"""All models and datasets of a run, by their own names."""


def parse_list(text: str | None) -> tuple[str, ...]:
    """The items of a list with commas, each once."""
    return tuple(dict.fromkeys(item.strip() for item in (text or "").split(",") if item.strip()))


def parse_names(text: str | None) -> dict[str, str]:
    """NAME=PRINTED,... as a mapping; a printed name that holds a comma stands in quotes. Raises ConfigError."""
    found = {}
    for item in _ITEM.findall(text or ""):
        name, equals, printed = item.partition("=")
        printed = printed.replace('"', "").strip()
        if not equals or not name.strip() or not printed:
            raise ConfigError(f"--names {item} is not of the form NAME=PRINTED.")
        found[name.strip()] = printed
    return found


def _chosen(option: str, wanted: Iterable[str], known: Collection[str], what: str) -> list[str]:
    names = list(wanted)
    for name in names:
        _known(option, name, known, what)
    return names or list(known)


def _known(option: str, name: str, known: Collection[str], what: str) -> None:
    if name not in known:
        raise ConfigError(f"{option}: the run has no {what} '{name}': {did_you_mean(name, list(known))}.")
