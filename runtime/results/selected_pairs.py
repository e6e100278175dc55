"""Selects and scores the pairs of a cell for a report (other thresholds, ties or tolerance, pairs left out), and draws
and folds a dataset's patients, the same for all models, so that differences between models are paired."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...metrics_gpu.grounding.best_thresholds import pair_folds, patient_folds
from ...metrics_gpu.grounding.pairs import Pairs
from ...metrics_gpu.grounding.protocols import GroundingOptions, Protocol, protocol
from ...metrics_gpu.statistics.bootstrap import REPLICATES, SEED, Draws, draw_patients
from ...metrics_gpu.sweep.counts import Counts
from ...metrics_gpu.sweep.pointing import pointing_hits
from ...metrics_gpu.sweep.sweep_options import Sweeping
from ..host.protocols import find_protocol, stored_protocol
from .choices import Choices, too_few_replicates
from .load_rows import CellRows, StoredRun
from .own_metrics import Drawn, own_scores
from .schema import GRID, WITHOUT_MODEL
from .stored_maps import MapRows, load_maps

_DEFAULT = protocol("default")


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredPairs(Pairs):
    """The pairs of a cell that count, with the way they are scored. Patients are added by `resampled`.

    image_of: intp [P]. places: intp [P], of the pairs among those of the cell's rows. protocol: its `fixed_tau` can be
    None.
    """

    class_of: NDArray[np.intp]
    names: tuple[str, ...]
    hits: NDArray[np.float64]
    image_of: NDArray[np.intp]
    places: NDArray[np.intp]
    options: GroundingOptions
    protocol: Protocol

    def take(self, pairs: NDArray[np.intp]) -> ScoredPairs:
        """The pairs at these positions, which have no patients yet."""
        return replace(
            self,
            counts=self.counts.take(pairs),
            image_of=self.image_of[pairs],
            class_of=self.class_of[pairs],
            places=self.places[pairs],
            hits=self.hits[pairs],
            own={name: values[pairs] for name, values in self.own.items()},
        )

    def resampled(self, patients: Patients, patient_of_image: NDArray[np.intp]) -> ScoredPairs:
        """The same with their patients, draws and folds. patient_of_image: `Patients.of_images` of the cell."""
        patient_of = patient_of_image[self.image_of]
        fold_of = pair_folds(patients.folds, self.class_of, patient_of)
        return replace(self, patient_of=patient_of, fold_of=fold_of, draws=patients.draws)


def why_left_out(cell: CellRows, choices: Choices) -> str:
    """Why a finished cell has no numbers under `choices`; empty if it has. An evaluation by the protocol skips it too.

    Raises ConfigError for an unknown protocol.
    """
    wanted = choices.protocol_of(cell.entry)
    if _other_images(cell, wanted):
        return f"left out: {_why_other_images(cell, wanted)}"
    if wanted.sweeping.normalise != "none" or _everywhere(cell):
        return ""
    if cell.boxed:
        return f"left out: the protocol {wanted.name} cuts maps as they are, and boxes are no map"
    if cell.entry["weights"] != "baseline":
        return ""
    return f"left out: the protocol {wanted.name} cuts maps as they are, and this one has no scale of its own"


def scored_pairs(run: StoredRun, cell: CellRows, choices: Choices) -> ScoredPairs:
    """The pairs of `cell` under `choices`.

    Maps are read from `run` only if the rows do not hold the requested values: a sweep that differs from the
    evaluation's, or a tolerance. Raises ConfigError for an unknown protocol, and RunError if maps are needed but were
    not stored, such as maps of more than 64 x 64 cells or of several sizes, or are of images of another intensity.
    """
    wanted, options = choices.protocol_of(cell.entry), choices.scoring_of(cell.entry)
    if _other_images(cell, wanted):
        raise RunError(f"{cell.model} on {cell.dataset} has no numbers: {_why_other_images(cell, wanted)}.")
    stored, everywhere = stored_protocol(cell.entry), _everywhere(cell)
    # Boxes have one level: every way of cutting gives the same counts.
    other_sweep = wanted.sweeping != stored.sweeping and not (everywhere or cell.boxed)
    other_ties = stored.pointing_from_default and options.ties != stored.options.ties and not everywhere
    needed = choices.tolerance_px or other_sweep or other_ties
    maps = load_maps(run, cell.model, cell.dataset) if needed else None
    counts = cell.counts
    if maps is not None and other_sweep:
        counts = _sweep(cell, maps, wanted, f"evaluate again with --protocol {wanted.name}")
    if maps is not None and choices.tolerance_px:
        hits = _tolerant(cell, counts, maps, choices.tolerance_px)
    elif wanted.pointing_from_default:
        hits = _default_hits(cell, wanted, options, maps)
    else:
        hits = pointing_hits(counts, options.ties)
    scored = ScoredPairs(
        counts=counts,
        class_of=cell.class_of,
        names=cell.findings,
        image_of=cell.image_of,
        places=np.arange(len(counts)),
        hits=hits,
        pixels=None if wanted.sweeping == _DEFAULT.sweeping and not cell.boxed else GRID * GRID,
        masks=cell.boxed,
        options=options,
        protocol=wanted,
        own={
            metric.name: own_scores(metric, replace(cell, counts=counts), lambda: _drawn(run, cell, wanted))
            for metric in choices.metrics
        },
    )
    keep = np.ones(len(counts), np.bool_)
    if choices.constant == "skip":
        keep &= ~counts.degenerate
    only_true = wanted.true_positives_only if choices.pairs is None else choices.pairs == "true_positives"
    if only_true and cell.scored:  # a baseline has no predictions
        keep &= cell.logits[cell.image_of, cell.class_of] >= 0
    return scored if keep.all() else scored.take(np.flatnonzero(keep))


def _other_images(cell: CellRows, wanted: Protocol) -> bool:
    """Whether the protocol equalises the images of this dataset and the evaluation did not, or the other way round."""
    if cell.entry["weights"] in WITHOUT_MODEL:
        return False
    return cell.equalised != (cell.entry.get("reader") in wanted.equalises)


def _why_other_images(cell: CellRows, wanted: Protocol) -> str:
    does, was = "does not equalise", "equalised"
    if cell.entry.get("reader") in wanted.equalises:
        does, was = "equalises", "not equalised"
    return (
        f"the protocol {wanted.name} {does} the histogram of these images, and they were {was} when the model read "
        f"them; evaluate again with --protocol {wanted.name}"
    )


def _everywhere(cell: CellRows) -> bool:
    """Whether the map covers the whole image at every threshold: its counts are the same under every protocol."""
    return cell.entry["weights"] == "baseline" and cell.entry.get("ties") == "expected"


def _sweep(cell: CellRows, maps: MapRows, wanted: Protocol, advice: str) -> Counts:
    """Counts of the stored maps by a protocol. Raises RunError, which ends with `advice`, if no maps were stored."""
    from ...metrics_gpu.sweep.sweep import sweep

    if not len(maps):
        return cell.counts
    if maps.saliency is None:
        raise RunError(
            f"The run kept no maps of {cell.model} on {cell.dataset}, so they cannot be counted in another way than "
            f"they were; {advice}."
        )
    return sweep(maps.saliency, maps.masks, size=(GRID, GRID), frames=maps.frames, sweeping=wanted.sweeping)


def _drawn(run: StoredRun, cell: CellRows, wanted: Protocol) -> Drawn | None:
    """The map, as the sweep sees it, and the region of each pair, one pair at a time; None if none were stored."""
    from ...metrics_gpu.sweep.maps import scaled_map
    from ...metrics_gpu.sweep.masks import unpack_masks

    if not cell.entry.get("grid"):
        return None
    maps = load_maps(run, cell.model, cell.dataset)
    assert maps.saliency is not None
    frames = [(float(y0), float(x0), float(y1), float(x1)) for y0, x0, y1, x1 in maps.frames]
    return (
        (scaled_map(saliency, frame=frame, sweeping=wanted.sweeping), unpack_masks(mask, GRID))
        for saliency, mask, frame in zip(maps.saliency, maps.masks, frames, strict=True)
    )


def _default_hits(
    cell: CellRows, wanted: Protocol, options: GroundingOptions, maps: MapRows | None
) -> NDArray[np.float64]:
    """Hits of a protocol whose counts do not show which maxima tie."""
    own = find_protocol(cell.protocol)
    upsample = wanted.sweeping.upsample
    default = replace(_DEFAULT, sweeping=Sweeping(upsample))
    if own.pointing_from_default and (own.sweeping.upsample, own.options.ties) == (upsample, options.ties):
        return cell.counts.hit.astype(np.float64)  # the evaluation stored the hits of this rule
    if own.sweeping == default.sweeping or _everywhere(cell) or maps is None:
        return pointing_hits(cell.counts, options.ties)
    same = own.name == wanted.name
    advice = f"leave out --ties {options.ties}" if same else f"evaluate again with --protocol {wanted.name}"
    return pointing_hits(_sweep(cell, maps, default, advice), options.ties)


def _tolerant(cell: CellRows, counts: Counts, maps: MapRows, tolerance_px: float) -> NDArray[np.float64]:
    """Hits within a tolerance; for a map that covers the whole image, the expected hits of a random pixel."""
    from ...metrics_gpu.grounding.tolerance import region_distance, tolerant_hits, tolerant_share

    if _everywhere(cell):
        return tolerant_share(maps.masks, GRID, tolerance_px)
    hits = tolerant_hits(region_distance(counts, maps.masks, GRID), tolerance_px)
    return np.where(counts.area[:, -1] > 0, hits, 0.0) if cell.boxed else hits  # no box points nowhere


@dataclass(frozen=True)
class Resampling:
    """How intervals are made: bootstrap replicates over patients (0 for none), the generator's seed, the level."""

    replicates: int = REPLICATES
    seed: int = SEED
    level: float = 0.95

    @property
    def fact(self) -> str:
        """A line that describes the intervals."""
        drawn = f"[{100 * self.level:g} % intervals]: {self.replicates} bootstrap draws of patients, seed {self.seed}"
        return too_few_replicates(self.replicates, self.level) or drawn

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Patients:
    """dataset: its name; number: patient's name -> 0..G-1; draws: None for no resampling; folds: intp [R, G], of each
    patient in each repeat of cross-fitting."""

    dataset: str
    number: Mapping[str, int]
    draws: Draws | None
    folds: NDArray[np.intp]

    def of_images(self, cell: CellRows) -> NDArray[np.intp]:
        """intp [N]: the patient of each readable image."""
        return np.array([self.number[cell.patients[case]] for case in cell.case_of], np.intp)


def unnamed_lines(datasets: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """A line about datasets of which images stand for patients; `datasets`: titles, and cases without a patient."""
    titles = dict.fromkeys(title for title, unnamed in datasets if unnamed)
    if not titles:
        return ()
    return (
        f"{', '.join(titles)}: no patient IDs: each image is treated as one patient. Intervals and p values are too "
        "small if patients have several images; the reader option patients=FILE names them",
    )


def dataset_patients(dataset: str, cells: Sequence[CellRows], replicates: int, seed: int) -> Patients:
    """Patients of all `cells` of a dataset, in the order of their names: draws and folds are the same for any models.

    cells: those of `image_identity.agreed_images`, so that an image has one patient.

    Each dataset has its own seed, made from `seed` and its name: datasets are resampled independently. The folds follow
    the truth of all cases, whether their images were read or not, and have a seed of their own.
    """
    names = sorted({name for cell in cells for name in cell.patients})
    dataset_seed = int.from_bytes(hashlib.sha256(f"{seed} {dataset}".encode()).digest()[:8], "big")
    draws = draw_patients(len(names), replicates, dataset_seed) if replicates and names else None
    number = {name: index for index, name in enumerate(names)}
    findings = sorted({name for cell in cells for name in cell.findings})
    has = np.zeros((len(names), len(findings)), np.bool_)
    for cell in cells:
        cases, columns = np.nonzero(cell.positive)
        of_case = np.array([number[name] for name in cell.patients], np.intp)
        has[of_case[cases], np.searchsorted(findings, cell.findings)[columns]] = True
    return Patients(dataset, number, draws, patient_folds(has))
