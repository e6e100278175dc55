"""The finished cells of a run, as input of studies: every pair with its patient, and one resampling per dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError, RunError
from ...engines.registry import did_you_mean
from ...metrics_gpu.grounding.folds import patient_folds
from ...metrics_gpu.grounding.grounding_options import GroundingOptions, Unit
from ...metrics_gpu.grounding.pairs import Pairs
from ...metrics_gpu.grounding.scores import Grounding, grounding
from ...metrics_gpu.statistics.bootstrap import Draws
from ...metrics_gpu.sweep.counts import Counts
from ..results.choices import Choices
from ..results.comparability import check_protocols
from ..results.load import CellRows, StoredRun, load_run
from ..results.numbers.sample import Sample, sample_of
from ..results.pairs import ScoredPairs, scored_pairs
from ..results.patients import Patients, Resampling, dataset_patients, unnamed_lines
from ..results.schema import GRID
from ..tables.stamps import stamps

__all__ = ["PIXELS", "Material", "StudyCell", "load_material", "load_materials"]

PIXELS = GRID * GRID
_ONE_PROTOCOL = "evaluate both with the same --protocol, or choose cells of one protocol with --model and --dataset"


@dataclass(frozen=True, eq=False)
class StudyCell:
    """A finished cell: its rows, the pairs that count by its protocol, and the patients of its dataset, who are
    resampled identically for all models. `ambiguous`: another dataset of the run has the same title."""

    rows: CellRows
    pairs: ScoredPairs
    patients: Patients
    ambiguous: bool = False

    @property
    def model(self) -> str:
        return self.rows.model

    @property
    def dataset(self) -> str:
        return self.rows.dataset

    @property
    def title(self) -> str:
        """The dataset's printed name, with its configured name if another dataset of the run has the same title."""
        return f"{self.plain_title} ({self.dataset})" if self.ambiguous else self.plain_title

    @property
    def plain_title(self) -> str:
        """The dataset's own title."""
        return str(self.rows.entry["title"])

    @property
    def digest(self) -> str | None:
        """The hash of the dataset's contents, None if the run does not give it."""
        told = self.rows.entry["ingredients"].get("dataset")
        return str(told[1]) if told else None

    @property
    def weights(self) -> str:
        return str(self.rows.entry["weights"])

    @property
    def family(self) -> str:
        """The model's family, or its own name if the family is not known."""
        return str(self.rows.entry.get("model_family") or self.model)

    @property
    def counts(self) -> Counts:
        return self.pairs.counts

    @property
    def classes(self) -> tuple[str, ...]:
        return self.rows.findings

    @property
    def class_of(self) -> NDArray[np.intp]:
        """intp [P]: index into `classes`."""
        return self.pairs.class_of

    @property
    def n(self) -> int:
        """Number of pairs that count."""
        return len(self.pairs.counts)

    @property
    def draws(self) -> Draws:
        """The resamples of the dataset's patients."""
        assert self.patients.draws is not None  # a study has at least one replicate
        return self.patients.draws

    @property
    def image_patients(self) -> NDArray[np.intp]:
        """intp [N]: the patient of each readable image."""
        return self.patients.of_images(self.rows)

    @property
    def patient_of(self) -> NDArray[np.intp]:
        """intp [P]: the patient of each pair."""
        found: NDArray[np.intp] = self.image_patients[self.pairs.image_of]
        return found

    @property
    def fold_of(self) -> NDArray[np.intp]:
        """intp [R, P]: the fold of each pair in each repeat of cross-fitting."""
        return patient_folds(self.class_of, self.patient_of)

    @property
    def sample(self) -> Sample:
        """What its numbers rest on, by patient."""
        return sample_of(self.rows, self.pairs, self.patients, self.draws.seed)

    @property
    def case_ids(self) -> tuple[str, ...]:
        """The case of each pair."""
        return tuple(self.rows.case_ids[index] for index in self.rows.case_of[self.pairs.image_of])

    @property
    def hits(self) -> NDArray[np.float64]:
        """float64 [P]: pointing hits by the cell's rule for ties."""
        return self.pairs.found_hits

    @property
    def scored(self) -> bool:
        """Whether there are logits for recognition: a baseline has none."""
        return self.weights != "baseline" and bool(np.isfinite(self.rows.logits).all())

    def options(self, unit: Unit | None = None) -> GroundingOptions:
        """The options of the cell's protocol, with another search `unit` if one is given."""
        return self.pairs.options if unit is None else replace(self.pairs.options, unit=unit)

    def scores(self, unit: Unit | None = None) -> Grounding:
        """Grounding per class; `unit` is None for the protocol's, or per_class, per_image, per_dataset or cross_fit."""
        return grounding(replace(self.asked, draws=None), self.options(unit))

    def drawn_scores(self, unit: Unit | None = None) -> Grounding:
        """`scores(unit)` with their replicates."""
        return grounding(self.asked, self.options(unit))

    @property
    def asked(self) -> Pairs:
        """The pairs for scoring grounding, with the draws of their patients."""
        return Pairs(
            self.counts,
            self.class_of,
            self.classes,
            fold_of=self.fold_of,
            hits=self.pairs.hits,
            pixels=self.pairs.pixels,
            draws=self.draws,
            patient_of=self.patient_of,
        )


@dataclass(frozen=True, eq=False)
class Material:
    """The finished cells of a run, in the order of its models and datasets.

    unfinished: why others have no result, and the outcome of later attempts at finished ones.
    """

    run: StoredRun
    cells: tuple[StudyCell, ...]
    unfinished: tuple[str, ...]
    sampling: Resampling

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def models(self) -> tuple[str, ...]:
        """Models with a finished cell."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Datasets with a finished cell, in the run's order."""
        found = {cell.dataset for cell in self.cells}
        return tuple(name for name in self.run.datasets if name in found)

    def title(self, dataset: str) -> str:
        """The dataset's printed name."""
        return next(cell.title for cell in self.cells if cell.dataset == dataset)

    @property
    def paired(self) -> tuple[StudyCell, ...]:
        """Cells that have pairs with a region."""
        return tuple(cell for cell in self.cells if cell.n)

    def of_model(self, model: str) -> tuple[StudyCell, ...]:
        """The cells of a model."""
        return tuple(cell for cell in self.cells if cell.model == model)

    @property
    def searches(self) -> tuple[str, ...]:
        """A line for each protocol whose search for best thresholds is not per class from 0."""
        found = {}
        for cell in self.cells:
            options = cell.options()
            words = ["one for all classes of a dataset"] if options.unit == "per_dataset" else []
            words += [f"from {options.tau_from:g} on"] if options.tau_from else []
            if words:
                found[cell.rows.protocol] = (
                    f"protocol {cell.rows.protocol} searches for best thresholds: {', '.join(words)}"
                )
        return tuple(found.values())

    @property
    def stamps(self) -> tuple[str, ...]:
        """The warnings about the numbers."""
        named = {
            f"{cell.model} on {cell.title}: protocol {cell.rows.protocol}, thresholds are its own range in hundredths"
            for cell in self.cells
            if cell.rows.protocol != "default"
        }
        part = [cell for cell in self.cells if cell.rows.limit is not None]
        limits = {f"{cell.title}: only the first {cell.rows.cases} cases were evaluated" for cell in part}
        unnamed = unnamed_lines((cell.title, cell.rows.unnamed) for cell in self.cells)
        return (*stamps((cell.model, cell.weights) for cell in self.cells), *sorted(limits), *sorted(named), *unnamed)


def load_material(
    path: Path,
    models: Collection[str] = (),
    datasets: Collection[str] = (),
    sampling: Resampling | None = None,
) -> Material:
    """The finished cells of the run at `path`; `models`, `datasets`: only these. Raises as `load_materials`."""
    return load_materials([path], models, datasets, sampling)[0]


def load_materials(
    paths: Sequence[Path],
    models: Collection[str] = (),
    datasets: Collection[str] = (),
    sampling: Resampling | None = None,
) -> list[Material]:
    """The finished cells of several runs; `models`, `datasets`: only these, which need not be in every run.

    Raises RunError when a path is not a run directory, a result cannot be read, no cell is finished, or the cells of a
    run are of several protocols, ConfigError for a model or dataset that no run has.
    """
    runs = [load_run(path) for path in paths]
    where = ", ".join(str(path) for path in paths)
    for kind, wanted in (("model", models), ("dataset", datasets)):
        known = dict.fromkeys(name for run in runs for name in getattr(run, f"{kind}s"))
        for name in wanted:
            if name not in known:
                raise ConfigError(f"{where} has no {kind} '{name}': {did_you_mean(name, known)}.")
    return [_material(run, models, datasets, sampling or Resampling()) for run in runs]


def _material(run: StoredRun, models: Collection[str], datasets: Collection[str], sampling: Resampling) -> Material:
    def asked(model: str, dataset: str) -> bool:
        return (not models or model in models) and (not datasets or dataset in datasets)

    rows = [cell for cell in run.cells() if asked(cell.model, cell.dataset)]
    unfinished = tuple(f"{m} on {d}: {why}" for (m, d), why in run.unfinished.items() if asked(m, d))
    kept = tuple(f"{c.model} on {c.dataset}: the result of before is shown; {c.attempt}" for c in rows if c.attempt)
    if not rows:
        reasons = f" ({'; '.join(unfinished)})" if unfinished else ""
        raise RunError(
            f"{run.path} has no finished result to study{reasons}; run xbench-fast eval --out {run.path} first."
        )
    check_protocols(str(run.path), [(f"{cell.model} on {cell.dataset}", cell) for cell in rows], _ONE_PROTOCOL)
    order = {name: place for place, name in enumerate((*run.models, *run.datasets))}
    rows.sort(key=lambda cell: (order[cell.model], order[cell.dataset]))
    choices = Choices(replicates=sampling.replicates, seed=sampling.seed)
    patients = {
        name: dataset_patients(
            name, [cell for cell in rows if cell.dataset == name], sampling.replicates, sampling.seed
        )
        for name in dict.fromkeys(cell.dataset for cell in rows)
    }
    titles = Counter(title for _, title in {(cell.dataset, str(cell.entry["title"])) for cell in rows})
    cells = tuple(
        StudyCell(
            rows=cell,
            pairs=scored_pairs(run, cell, choices),
            patients=patients[cell.dataset],
            ambiguous=titles[str(cell.entry["title"])] > 1,
        )
        for cell in rows
    )
    return Material(run, cells, (*unfinished, *kept), sampling)
