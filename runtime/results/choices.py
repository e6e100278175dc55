"""The options of a report: choices that can still be made from stored rows, without a new evaluation.

docs/metrics.md §14. Choices that only an evaluation can make (resize of regions, geometry, boxes or union, dataset
options, several prompts) are not here. Upsampling, normalisation and comparison are here, as a protocol, because a run
stores the maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from ...metrics_gpu.grounding.protocols import GroundingOptions, IouAt, Mean, Protocol, Unit
from ...metrics_gpu.statistics.bootstrap import REPLICATES, SEED
from ...metrics_gpu.statistics.intervals import least_replicates
from ...metrics_gpu.sweep.pointing import Ties
from ..host.declaring import described
from ..host.options import Natural, words_of
from ..host.protocols import PROTOCOLS, SCORERS, find_protocol
from .own_metrics import OwnMetric, OwnName

__all__ = [
    "DEFAULTS",
    "F1",
    "Auprc",
    "Choices",
    "Constant",
    "Mean",
    "Pairs",
    "split_protocols",
    "too_few_replicates",
]

Auprc = Literal["average_precision", "trapezoid"]
F1 = Literal["fixed", "best"]
Constant = Literal["miss", "skip"]
Pairs = Literal["all", "true_positives"]

_PROTOCOL: Final = GroundingOptions()


@dataclass(frozen=True)
class Choices:
    """Options of a report; None means the protocol's value, and other defaults are those of docs/metrics.md §14.

    `protocol` None: as the cell was evaluated. A sweep that differs from the evaluation's, and a tolerance, use the
    stored maps. `best` is the unit of `GroundingOptions`; tau_from, iou_at and ties are its fields. `constant` is about
    maps that are not finite too. `metrics`: a user's, of `[metrics.NAME]`.
    """

    protocol: str | None = None
    tau_from: float | None = field(
        default=None,
        metadata=described(
            "First threshold of the search for a best one: 0, or 0.01 as in the paper.", shown=f"{_PROTOCOL.tau_from:g}"
        ),
    )
    best: Unit | None = field(
        default=None,
        metadata=described(
            "Pairs that share a best threshold. All but cross_fit are in-sample: the threshold is chosen on the pairs "
            "that it scores.",
            shown=_PROTOCOL.unit,
        ),
    )
    iou_at: IouAt | None = field(
        default=None,
        metadata=described(
            "Threshold of the best IoU: the one found for Dice (joint), or its own (independent).",
            shown=_PROTOCOL.iou_at,
        ),
    )
    ties: Ties | None = field(
        default=None,
        metadata=described(
            "Pointing where several pixels are the maximum: the first of them, any of them, or the expected value.",
            shown=_PROTOCOL.ties,
        ),
    )
    tolerance_px: float = field(
        default=0.0,
        metadata=described(
            "Distance to a region at which a maximum still counts as a hit, in pixels of the 224 grid.",
            metavar="PIXELS",
        ),
    )
    constant: Constant = field(
        default="miss", metadata=described("What to do with a constant map: count a miss, or skip its pair.")
    )
    pairs: Pairs | None = field(
        default=None,
        metadata=described(
            "Pairs to count: all, or those whose finding the model predicts too (true_positives).", shown="all"
        ),
    )
    auprc: Auprc = field(default="average_precision", metadata=described("Area under the precision-recall curve."))
    f1: F1 = field(
        default="fixed", metadata=described("Threshold of F1: p >= 0.5 (fixed), or the best one for these images.")
    )
    mean: Mean = field(
        default="macro", metadata=described("Mean over classes: unweighted (macro), or weighted by pairs (micro).")
    )
    mean_datasets: Mean = field(
        default="macro", metadata=described("Mean over datasets: unweighted (macro), or weighted by pairs (micro).")
    )
    replicates: Natural = field(
        default=REPLICATES,
        metadata=described(
            "Bootstrap resamples of the patients. 95 % intervals need 40 or more; 0 means no intervals."
        ),
    )
    metrics: tuple[OwnMetric, ...] = ()
    seed: Natural = field(default=SEED, metadata=described("Seed of the resampling."))

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            value = getattr(self, name)
            if value is not None and value not in words:
                raise ConfigError(f"{_flag(name)} cannot be '{value}': {did_you_mean(str(value), words)}.")
        if self.protocol is not None:
            find_protocol(str(self.protocol))
        if self.tau_from not in (None, 0.0, 0.01):
            raise ConfigError(f"--tau-from is 0 or 0.01, not {self.tau_from}.")
        if not 0 <= self.tolerance_px <= 224:
            raise ConfigError(f"--tolerance-px lies between 0 and 224, not at {self.tolerance_px}.")
        if self.replicates < 0 or self.seed < 0:
            raise ConfigError("--replicates and --seed are not negative.")
        if self.tolerance_px and self.ties not in (None, "first"):
            raise ConfigError(
                f"--tolerance-px measures from the first maximum; it does not go with --ties {self.ties}."
            )

    def protocol_of(self, entry: Mapping[str, Any]) -> Protocol:
        """The protocol a cell is scored by; `entry` is its entry in run.json. Raises ConfigError for an unknown one."""
        try:
            return find_protocol(self.protocol or str(entry.get("protocol", "default")))
        except ConfigError as error:
            raise ConfigError(f"{entry.get('model')} on {entry.get('dataset')}: {error}") from error

    def scoring_of(self, entry: Mapping[str, Any]) -> GroundingOptions:
        """How a cell's counts are scored: the protocol's options, overridden by these choices.

        A baseline can have its own rule for ties: all pixels of a full mask are maxima. Boxes have no maxima that tie.
        """
        told, boxed = self.protocol_of(entry).options, entry.get("weights") == "boxes"
        return GroundingOptions(
            tau_from=told.tau_from if self.tau_from is None else self.tau_from,
            ties="expected" if entry.get("ties") == "expected" else "first" if boxed else self.ties or told.ties,
            unit=self.best or told.unit,
            iou_at=self.iou_at or told.iou_at,
            mean=self.mean,
            mean_datasets=self.mean_datasets,
        )

    @staticmethod
    def metrics_of(tables: Mapping[str, str | Mapping[str, Any]]) -> tuple[OwnMetric, ...]:
        """The metrics of these functions or tables, by name. Raises ConfigError."""
        return tuple(OwnMetric.of(name, table) for name, table in tables.items())

    @property
    def own(self) -> tuple[OwnName, ...]:
        """The names of the numbers of the user's metrics."""
        return tuple(name for metric in self.metrics for name in metric.numbers)

    @property
    def told(self) -> tuple[str, ...]:
        """One line per choice that is not the default, for the notes of every table."""
        default = Choices()
        found = [
            f"{_flag(field.name)} {f'{value:g}' if isinstance(value, float) else value}"
            for field in fields(self)
            if field.name not in ("replicates", "seed", "metrics")
            and (value := getattr(self, field.name)) != getattr(default, field.name)
        ]
        own = tuple(metric.fact for metric in self.metrics)
        return ((f"made with {', '.join(found)}",) if found else ()) + own


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_WORDS: Final = words_of(Choices)
DEFAULTS: Final = Choices()


def too_few_replicates(replicates: int, level: float = 0.95) -> str:
    """Why so many replicates give no percentile interval at this level; empty if they do (docs/metrics.md §8.2)."""
    least = least_replicates(level)
    if replicates >= least:
        return ""
    return f"no bootstrap intervals: at {100 * level:g} % they need --replicates {least} or more, not {replicates}"


def split_protocols(names: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """The protocol among these names, None if there is none, and the published scorers. Raises ConfigError."""
    every = list(dict.fromkeys(names))
    for name in every:
        if name not in PROTOCOLS and name not in SCORERS:
            raise ConfigError(f"Unknown protocol '{name}': {did_you_mean(str(name), [*PROTOCOLS, *SCORERS])}.")
    protocols = [name for name in every if name in PROTOCOLS]
    if len(protocols) > 1:
        raise ConfigError(f"--protocol names {' and '.join(protocols)}; maps are counted by one of them.")
    return (protocols[0] if protocols else None), tuple(name for name in every if name not in PROTOCOLS)
