"""Counts -> numbers per class, per dataset and per model, by the definitions of metrics_gpu.

Values are fractions; only `delta_dice` is in percentage points. None where a value does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.manifest import OFFICIAL_MAP
from ....metrics_gpu.grounding.scores import Grounding, groundings
from ....metrics_gpu.recognition.scores import Recognition, recognition
from ....metrics_gpu.statistics.intervals import Shares
from ....metrics_gpu.statistics.measured_numbers import Measured
from ....metrics_gpu.sweep.counts import dice_curves
from ..choices import DEFAULTS, Choices
from ..load_rows import CellRows
from ..own_metrics import OwnName
from ..selected_pairs import ScoredPairs
from .fields import BEST, FIELDS, RECOGNITION, Sample, number_of, sample_of

if TYPE_CHECKING:
    from ..selected_pairs import Patients

_OF_FIXED: Final = ("dice_fixed", "iou_fixed", "delta_dice")
_OF_BEST: Final = ("dice_best", "iou_best", "best_tau", "iou_tau", "delta_dice")
"""Values at threshold 0.5, and at a best one."""
_VARIANTS: Final = {("auprc", "trapezoid"): "auprc_trapezoid", ("f1", "best"): "f1_best"}
"""A field of recognition and the choice for it -> the field that is taken instead."""


@dataclass(frozen=True)
class CellValues:
    """All numbers of one cell.

    `rows`: its stored rows; `scored`: the pairs that count. `lost`: images that are missing or unreadable; `names`:
    the classes, in the dataset's order; `n`: pairs with a region that count. `grounding`: by the report's choices;
    `cross_fitted`: the same with each threshold found on other patients, under any choices. `recognition` uses p =
    sigmoid(logit); `pair` p = softmax over the positive and the negative prompt, for the classes that have a
    negative prompt (docs/metrics.md §7). `shard`: the evaluated part of the dataset, "2 of 4", empty when it was
    not divided. `sub_pixel`: regions per class that meet no pixel of the grid and are represented by their
    centroid. `dice_curve`: Dice at each of the 101 thresholds, mean over pairs, then over the classes that have
    pairs; empty if there is none. `family`: the model's, empty for a baseline; `reader`: the dataset's, empty if
    the run does not store it. `prompt_status`: class -> where the words of its prompts come from (docs/parity.md
    §7), empty if the run does not store it. `weights_source`: why published weights are known to be; `activation`:
    of weights that do not state their GELU, which one was computed and why; `decoder`: what decoded the images,
    `cpu` for the exact one, and its version, empty if the run does not store it; `saliency_map`: the map that was
    exported, `OFFICIAL_MAP` for the authors' own. `tau_scale`: a best threshold times this factor is in the
    protocol's unit. `skipped`: pairs with a region that the choices leave out. `resampled`: whether there are
    bootstrap replicates. `sample`: what the numbers rest on. `boxes`: what run.json tells of a file of boxes.
    `uncertain`: the `policy` for the `labels`, so many, that the annotators were not sure of; empty if there are
    none. `supervised`: the model reads no text. `uncompared_texts`, `resized`: as in `Manifest`.
    """

    model: str
    dataset: str
    title: str
    weights: str
    engine: str
    shard: str
    cases: int
    lost: int
    names: tuple[str, ...]
    n: int
    grounding: Grounding
    cross_fitted: Grounding
    recognition: Recognition
    pair: Recognition
    sub_pixel: tuple[int, ...]
    rows: CellRows = field(repr=False, compare=False)
    scored: ScoredPairs = field(repr=False, compare=False)
    dice_curve: tuple[float, ...] = ()
    family: str = ""
    reader: str = ""
    prompt_status: Mapping[str, str] = field(default_factory=dict)
    weights_source: str = ""
    activation: str = ""
    decoder: str = ""
    saliency_map: str = OFFICIAL_MAP
    protocol: str = "default"
    tau_scale: float = 1.0
    skipped: int = 0
    patients: int = 0
    choices: Choices = DEFAULTS
    resampled: bool = False
    sample: Sample | None = field(default=None, repr=False, compare=False)
    boxes: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    uncertain: Mapping[str, Any] = field(default_factory=dict)
    supervised: bool = False
    uncompared_texts: bool = False
    resized: str = ""
    _asked: dict[tuple[str, str, float], Measured] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def competes(self) -> bool:
        """Whether this is the cell of a model, not of a baseline."""
        return self.weights != "baseline"

    @property
    def ranked(self) -> bool:
        """Whether tables rank this cell: it competes, and is neither a control, a reader, supervised nor a view, nor in
        words, which are ranked among words alone."""
        plain = not self.supervised and not self.rows.view
        return self.competes and plain and not self.in_words and not self.boxes.keys() & {"moved", "reader"}

    @property
    def in_words(self) -> bool:
        """Whether the answers are words, or floors of words."""
        return "words" in self.boxes

    def count(self, field: str, name: str = "") -> int:
        """The size of a number's basis, for a class or the dataset: pairs, or for recognition known labels."""
        return (self.recognition if field in RECOGNITION else self.grounding).count("n", name)

    def number(self, field: str, name: str = "", level: float = 0.95) -> Measured:
        """A number of `numbers.FIELDS`, for a class or for the dataset (no name), with its interval at this level.

        n: `count`. It is made when it is first asked for: intervals are most of the work, and comparisons need few.
        """
        asked = field, name, level
        if asked not in self._asked:
            scores, key, best = self._source(field)
            # A mean over only some classes is not comparable with the others.
            partial = scores is self.pair and not name and len(self.pair.names) != len(self.recognition.names)
            number = Measured()
            if self._without_maps(field):
                number = Measured(missing="no maps")
            elif isinstance(scores, Grounding) and best and self.weights != "boxes" and name in scores.unfitted:
                number = Measured(missing="1 patient")
            elif self.sample is not None and not partial:
                number = number_of(scores, key, name, self.sample, level)
            self._asked[asked] = replace(number, n=self.count(field, name))
        return self._asked[asked]

    def _source(self, field: str) -> tuple[Grounding | Recognition, str, bool]:
        """Where a number comes from, its field there by the choices, and whether that rests on a best threshold."""
        own = self._own(field)
        source, key = own.source if own else FIELDS[field]
        best = own.part in ("best", "cross_fitted") if own else key in BEST
        return getattr(self, source), _VARIANTS.get((key, getattr(self.choices, key, "")), key), best

    def _own(self, field: str) -> OwnName | None:
        return None if field in FIELDS else next(name for name in self.choices.own if name == field)

    def _without_maps(self, field: str) -> bool:
        """Whether a number is of a user's metric whose maps were not stored: it has a value of no pair."""
        own = self._own(field)
        return own is not None and bool(np.isnan(self.scored.own[own.metric][:1]).any())

    def out_of_sample(self, field: str) -> bool:
        """Whether a mean over pairs uses no threshold that was chosen on the same pairs."""
        scores, _, best = self._source(field)
        return scores is self.cross_fitted or not best or self.grounding.options.label == "cross_fitted"

    def auc_parts(self, name: str = "") -> NDArray[np.float64] | None:
        """What patients add to the deviation of the AUC of a class, or of the mean over classes; None without test."""
        names = [item for item in self.recognition.names if name in ("", item)]
        defined = [item for item in names if self.recognition.value("auc", item) is not None]
        return self.sample.auc_parts(defined) if self.sample else None

    def shares(self, field: str, name: str = "") -> Shares | None:
        """What patients add to a mean over pairs; None for recognition."""
        scores, key, _ = self._source(field)
        if self.sample is None or not isinstance(scores, Grounding):
            return None
        return self.sample.shares(scores.each[key], name)


def cell_values(
    cell: CellRows,
    pairs: ScoredPairs,
    patients: Patients,
    choices: Choices = DEFAULTS,
    levels: tuple[int, ...] | None = None,
    reader: str = "",
) -> CellValues:
    """All numbers of one cell.

    pairs: those that count. patients: of the dataset. levels: of one threshold per model for Dice, IoU and
    `pairs.swept`, from all its datasets.
    """
    shard = cell.entry.get("shard")
    scored = cell.findings if cell.scored else ()  # no recognition without a score
    paired = np.flatnonzero(~np.isnan(cell.negatives).any(axis=0)) if len(cell.negatives) else np.zeros(0, np.intp)
    of_image = patients.of_images(cell)
    drawn = pairs.resampled(patients, of_image)
    logits, negatives, labels = cell.logits, cell.negatives[:, paired], cell.labels
    named = tuple(cell.findings[index] for index in paired)
    searches = [(pairs.options, levels), (replace(pairs.options, unit="cross_fit"), None)]
    grounding, cross_fitted = groundings(drawn, searches)
    # Boxes have no best threshold, and some protocols have no fixed one.
    fixed, best = (tuple(f"{name}_{of}" for name in pairs.swept) for of in ("fixed", "best"))
    lost = ((*_OF_FIXED, *fixed) if pairs.protocol.fixed_tau is None else ()) + (*_OF_BEST, *best) * cell.boxed
    if lost:
        grounding, cross_fitted = _without(grounding, lost), _without(cross_fitted, lost)
    return CellValues(
        model=cell.model,
        dataset=cell.dataset,
        title=str(cell.entry["title"]),
        weights=str(cell.entry["weights"]),
        engine=str(cell.entry["ingredients"]["engine"]),
        shard="{index} of {of}".format(**shard) if shard else "",
        cases=cell.cases,
        lost=cell.missing + cell.unreadable,
        names=cell.findings,
        n=len(pairs.counts),
        rows=cell,
        scored=pairs,
        grounding=grounding,
        cross_fitted=cross_fitted,
        recognition=recognition(logits[:, : len(scored)], labels[:, : len(scored)], scored, patients.draws, of_image),
        pair=recognition(
            logits[:, paired].astype(np.float64) - negatives, labels[:, paired], named, patients.draws, of_image
        ),
        sub_pixel=tuple(int(cell.sub_pixel[cell.class_of == index].sum()) for index in range(len(cell.findings))),
        dice_curve=() if cell.boxed else _mean_dice_curve(pairs),
        family=str(cell.entry.get("model_family", "")),
        reader=reader,
        prompt_status=cell.entry.get("prompts", {}).get("status", {}),
        weights_source=str(cell.entry.get("weights_source", "")),
        activation=str(cell.entry.get("activation", "")),
        decoder=str(cell.entry["ingredients"].get("decoder", "")),
        saliency_map=str(cell.entry.get("saliency_map", OFFICIAL_MAP)),
        protocol=pairs.protocol.name,
        tau_scale=pairs.protocol.sweeping.tau_scale,
        skipped=len(cell.counts) - len(pairs.counts),
        patients=len(set(cell.patients)),
        choices=choices,
        resampled=patients.draws is not None,
        sample=sample_of(cell, drawn, patients, choices.seed, pooled=choices.mean == "micro"),
        boxes=cell.entry.get("boxes", {}),
        uncertain=cell.entry.get("uncertain", {}),
        supervised=bool(cell.entry.get("supervised")),
        uncompared_texts=bool(cell.entry.get("uncompared_texts")),
        resized=str(cell.entry.get("resized", "")),
    )


def _without(scores: Grounding, fields: Sequence[str]) -> Grounding:
    """The scores without these values."""
    return replace(scores, rows={**scores.rows, **{key: np.full_like(scores.rows[key], np.nan) for key in fields}})


def _mean_dice_curve(pairs: ScoredPairs) -> tuple[float, ...]:
    """Dice at each of the 101 thresholds, mean over pairs, then over classes that have pairs; () without a pair."""
    used = np.unique(pairs.class_of)
    if not len(used):
        return ()
    dice = dice_curves(pairs.counts)
    return tuple(np.mean([dice[pairs.class_of == index].mean(axis=0) for index in used], axis=0).tolist())
