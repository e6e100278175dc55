"""The options of a report: choices that can still be made from stored rows, without a new evaluation.

docs/metrics.md §14. Choices that only an evaluation can make (resize of regions, geometry, boxes or union, dataset
options, several prompts) are not here. Upsampling, normalisation and comparison are here, as a protocol, because a run
stores the maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from ...metrics_gpu.grounding.protocols import PROTOCOLS, GroundingOptions, IouAt, Mean, Protocol, Unit, protocol
from ...metrics_gpu.statistics.bootstrap import REPLICATES, SEED
from ...metrics_gpu.statistics.intervals import least_replicates
from ...metrics_gpu.sweep.counts import Ties

__all__ = [
    "DEFAULTS",
    "F1",
    "SCORERS",
    "Auprc",
    "Choices",
    "Constant",
    "Mean",
    "Pairs",
    "split_protocols",
    "too_few_replicates",
]

SCORERS: Final = ("radvlm", "chexagent", "radfact", "radfact_boxes", "afloc", "chex", "acc50", "rodeo", "coco")
"""Names of the published scorers of boxes, `metrics_gpu.detection.published.registry.SCORERS`."""

Auprc = Literal["average_precision", "trapezoid"]
F1 = Literal["fixed", "best"]
Constant = Literal["miss", "skip"]
Pairs = Literal["all", "true_positives"]

_KINDS: Final[Mapping[str, Any]] = {
    "best": Unit,
    "iou_at": IouAt,
    "ties": Ties,
    "auprc": Auprc,
    "f1": F1,
    "mean": Mean,
    "mean_datasets": Mean,
    "constant": Constant,
    "pairs": Pairs,
}


@dataclass(frozen=True)
class Choices:
    """Options of a report; None means the protocol's value, and other defaults are those of docs/metrics.md §14.

    protocol: how maps are swept and counted; None: as the cell was evaluated. A sweep that differs from the
        evaluation's uses the stored maps.
    tau_from, best, iou_at, ties: see `GroundingOptions` (`best` is its unit).
    tolerance_px: radius around a region that still counts as a hit, in pixels of the 224 grid; uses the stored maps.
    constant: a constant or non-finite map is a `miss`, or its pair is left out (`skip`).
    pairs: all pairs with a region count, or only those whose finding the model also predicts (p >= 0.5).
    auprc, f1: which of the two definitions the tables show; `f1` "best" chooses its threshold on the same images.
    mean: over the classes of a dataset: unweighted, or weighted by pairs; mean_datasets: the same over datasets.
    replicates: of the bootstrap, 0 for none; fewer than 40 give no bootstrap interval. seed: its seed.
    """

    protocol: str | None = None
    tau_from: float | None = None
    best: Unit | None = None
    iou_at: IouAt | None = None
    ties: Ties | None = None
    tolerance_px: float = 0.0
    constant: Constant = "miss"
    pairs: Pairs | None = None
    auprc: Auprc = "average_precision"
    f1: F1 = "fixed"
    mean: Mean = "macro"
    mean_datasets: Mean = "macro"
    replicates: int = REPLICATES
    seed: int = SEED

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None and value not in get_args(kind):
                raise ConfigError(f"{_flag(name)} cannot be '{value}': {did_you_mean(str(value), get_args(kind))}.")
        if self.protocol is not None and self.protocol not in PROTOCOLS:
            raise ConfigError(f"Unknown protocol '{self.protocol}': {did_you_mean(str(self.protocol), PROTOCOLS)}.")
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
            return protocol(self.protocol or str(entry.get("protocol", "default")))
        except ValueError as error:
            raise ConfigError(f"{entry.get('model')} on {entry.get('dataset')}: {error}.") from error

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

    @property
    def told(self) -> tuple[str, ...]:
        """One line per choice that is not the default, for the notes of every table."""
        default = Choices()
        found = [
            f"{_flag(field.name)} {_text(getattr(self, field.name))}"
            for field in fields(self)
            if field.name not in ("replicates", "seed") and getattr(self, field.name) != getattr(default, field.name)
        ]
        return (f"made with {', '.join(found)}",) if found else ()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


DEFAULTS: Final = Choices()


def too_few_replicates(replicates: int, level: float = 0.95) -> str:
    """Why so many replicates give no percentile interval at this level; empty if they do (docs/metrics.md §8.2)."""
    least = least_replicates(level)
    if replicates >= least:
        return ""
    return f"no bootstrap intervals: at {100 * level:g} % they need --replicates {least} or more, not {replicates}"


def split_protocols(names: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """The protocol among these names, None if there is none, and the published scorers. Raises ConfigError."""
    every, known = list(dict.fromkeys(names)), [*PROTOCOLS, *SCORERS]
    for name in every:
        if name not in known:
            raise ConfigError(f"Unknown protocol '{name}': {did_you_mean(str(name), known)}.")
    protocols = [name for name in every if name not in SCORERS]
    if len(protocols) > 1:
        raise ConfigError(f"--protocol names {' and '.join(protocols)}; maps are counted by one of them.")
    return (protocols[0] if protocols else None), tuple(name for name in every if name in SCORERS)
