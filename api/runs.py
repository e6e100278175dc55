"""A run directory as data frames: numbers with intervals, and the rows they come from."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from .engines.errors import ConfigError
from .engines.registry import did_you_mean
from .options import FilePath, ReportOptions, check_options
from .runtime.reporting.presentation import Presentation
from .runtime.reporting.report import Report, make_report, write_report
from .runtime.reporting.tables.stamps import cell_stamps
from .runtime.results.choices import Choices, split_protocols
from .runtime.results.load_rows import StoredRun
from .runtime.results.load_rows import load_run as open_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "load_run", "report"]

TableName = Literal["grounding", "classes", "recognition", "differences", "coverage", "words", "cards"]


class Run:
    """A finished or interrupted evaluation in the run directory `path`. `load_run` and `evaluate` return one.

    No inference is run: numbers are computed from the stored counts on demand.
    """

    def __init__(self, stored: StoredRun) -> None:
        self.path = stored.path
        self.models = tuple(stored.models)
        self.datasets = tuple(stored.datasets)
        self._stored = stored
        self._reports: dict[tuple[Choices, tuple[str, ...]], Report] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, models={list(self.models)}, datasets={list(self.datasets)})"

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the numbers, such as stand-in weights, a limit, or a model without a bundle."""
        results = self._report("notes", {"replicates": 0}).results
        return cell_stamps(results.finished)

    def table(
        self,
        name: TableName = "grounding",
        *,
        trust: FilePath | Sequence[FilePath] = (),
        **choices: Unpack[ReportOptions],
    ) -> pd.DataFrame:
        """One of the tables of the report, a row for each number.

        Columns: model, dataset, finding, metric, value, low, high, n, protocol. Values are fractions (0.25 is 25 %),
        low and high the ends of the 95 % interval, NaN if there is none; an empty `finding` means the mean over
        findings, an empty `dataset` the mean over datasets. Means and differences are of one protocol: a run with
        results of several has rows of each.

        "grounding": pointing, Dice and IoU of each model on each dataset, n pairs with a region. "classes": the same
        and recognition for each finding. "recognition": AUC, AUPRC, F1 and accuracy, n known labels. "differences":
        `model` minus `other` on the n pairs or labels both have, with p and p_holm, corrected. "coverage": numbers of
        images and pairs (counts, not fractions), of n images, with engine, protocol and state. "words": scores of
        answers in words, their ceilings and floors, and shares of pairs (docs/words.md §6, §7). "cards": the numbers of
        trust cards, see docs/python.md; a line without one has a row without a metric.

        choices: how counts are scored, see `ReportOptions`. trust: trust directories whose results stand on the cards;
        a warning names what is not used of them. Raises ConfigError for a name or choice that does not exist and a
        trust directory of something else, RunError for results that cannot be read.
        """
        from . import frames

        if name not in get_args(TableName):
            raise ConfigError(f"There is no table '{name}': {did_you_mean(str(name), get_args(TableName))}.")
        if trust and name != "cards":
            raise ConfigError(f"The table '{name}' has nothing of trust directories; 'cards' has, or leave trust out.")
        run_report = self._report("table", dict(choices))
        if name == "cards":
            from .runtime.trust.card.making import make_cards

            cards = make_cards(run_report, _folders(trust), pictures=False, say=_warn)
            return frames.frame(name, frames.cards(cards))
        make = getattr(frames, name)
        if name == "coverage":
            return frames.frame(name, make(run_report.results, run_report.boxes))
        if name == "words":
            return frames.frame(name, make(run_report.words))
        parts = (differences if name == "differences" else results for results, differences in run_report.blocks)
        rows: Iterator[dict[str, Any]] = chain.from_iterable(make(part) for part in parts if part is not None)
        return frames.frame(name, rows)

    def rows(self) -> pd.DataFrame:
        """One row for each (image, finding) of every finished result: status, score and counts.

        The columns are as in the result files (docs/run-directory.md) without maps and regions: `logit` is the
        score, `area` and `overlap` are int32 [101], the pixels of the thresholded map and the ones inside the
        region, None for a pair without a region. Raises RunError for a file that is damaged.
        """
        from . import frames

        return frames.stored_rows(self._stored)

    def _report(self, function: str, choices: dict[str, Any]) -> Report:
        check_options(function, ReportOptions, choices)
        names = choices.pop("protocol", None) or ()
        protocol, scorers = split_protocols([names] if isinstance(names, str) else names)
        metrics = Choices.metrics_of(choices.pop("metrics", {}))
        key = (Choices(**choices, metrics=metrics, protocol=protocol), scorers)
        if key not in self._reports:
            self._reports[key] = make_report(self.path, key[0], Presentation(scorers=scorers))
        return self._reports[key]


def _folders(given: FilePath | Sequence[FilePath]) -> list[Path]:
    return [Path(given)] if isinstance(given, str | os.PathLike) else [Path(folder) for folder in given]


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=3)


def load_run(path: FilePath) -> Run:
    """The run directory `path`, made by `evaluate` or `xbench-fast eval`. Raises RunError when it is not one."""
    return Run(open_run(Path(path)))


def report(
    run: Run | FilePath,
    out: FilePath | None = None,
    *,
    page: bool = True,
    trust: FilePath | Sequence[FilePath] = (),
    card: bool = False,
    **choices: Unpack[ReportOptions],
) -> Path:
    """Writes the report of a run into the folder `out` (RUN/report/) and returns the folder.

    It holds tables as Markdown, LaTeX, CSV and JSON, and unless `page` is false figures as SVG and PNG and index.html,
    which opens offline. A warning names what cannot be drawn.

    card: adds a trust card for each model on each dataset in cards/, as JSON, and unless `page` is false as a page and
    a figure (docs/trust-card.md §8). trust: trust directories with results for the cards; they imply `card`. Raises
    ConfigError for invalid choices and a trust directory of something else, RunError when results cannot be read or
    files cannot be written.
    """
    opened = run if isinstance(run, Run) else load_run(run)
    folder = opened.path / "report" if out is None else Path(out)
    made = opened._report("report", dict(choices))

    folders = _folders(trust)
    if card or folders:
        from .runtime.trust.card.making import with_cards

        made = with_cards(made, folders, page=page, say=_warn)
    write_report(made, out=None if out is None else folder, page=page, say=_warn)
    return folder
