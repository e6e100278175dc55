"""The finished cells of a run, as input of studies: every pair with its patient, and one resampling per dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....engines.errors import ConfigError, RunError
from ....engines.registry import did_you_mean
from ...results.choices import DEFAULTS, Choices
from ...results.comparability import other_protocols, protocols_in
from ...results.image_identity import on_agreed_images
from ...results.load_rows import StoredRun, load_run
from ...results.numbers.fields import FIELDS
from ...results.numbers.reference_rows import rest_on_models
from ...results.own_metrics import OwnMetric, check_names
from ...results.selected_pairs import Resampling, dataset_patients, scored_pairs, unnamed_lines
from ...results.studied import basis_of
from ..tables.stamps import entry_stamp, stamps, uncertain_stamps
from ..tables.table import Table
from .columns import StudyTable
from .study_cell import StudyCell


@dataclass(frozen=True, eq=False)
class Material:
    """The finished cells of a run, in the order of its models and datasets.

    unfinished: why others have no result, whether an evaluation is writing them now, which baselines are cut to the
    pairs of the models, where models have other images, and the outcome of later attempts at finished cells. protocol:
    that of the cells, and elsewhere: the cells of other protocols, if the run has several (`blocks_of`). metrics: of
    the user, whose scores the pairs have.
    """

    run: StoredRun
    cells: tuple[StudyCell, ...]
    unfinished: tuple[str, ...]
    sampling: Resampling
    protocol: str = ""
    elsewhere: tuple[StudyCell, ...] = ()
    metrics: tuple[OwnMetric, ...] = ()

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
        finished = {cell.dataset for cell in self.cells}
        return tuple(name for name in self.run.datasets if name in finished)

    def title(self, dataset: str) -> str:
        """The dataset's printed name."""
        return next(cell.title for cell in self.cells if cell.dataset == dataset)

    def table(self, shown: StudyTable, rows: Iterable[Mapping[str, Any]]) -> Table:
        """A table of rows about these cells, with the printed names of datasets and the warnings about the numbers."""
        return shown.table(rows, self.stamps, {cell.dataset: cell.title for cell in self.cells})

    @property
    def paired(self) -> tuple[StudyCell, ...]:
        """Cells that have pairs with a region."""
        return tuple(cell for cell in self.cells if cell.n)

    def of_maps(self) -> Material:
        """Without boxes from files, for questions about thresholds; `unfinished` names what is left out.

        Raises RunError when nothing remains.
        """
        boxes = tuple(dict.fromkeys(cell.model for cell in self.cells if not cell.has_thresholds))
        if not boxes:
            return self
        left = f"{', '.join(boxes)}: left out, because boxes have no threshold"
        if len(boxes) == len(self.models):
            raise RunError(f"{left}; evaluate a model with saliency maps into the run.")
        maps = tuple(cell for cell in self.cells if cell.has_thresholds)
        return replace(self, cells=maps, unfinished=(left, *self.unfinished))

    def basis(self, studied: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """What each of these results is known by (`basis_of`), once, with a hash of its pairs that count. Raises
        RunError."""
        pairs = {(cell.model, cell.dataset): cell.pairs_digest for cell in self.cells}
        return [
            {**basis_of(self.run, *name), **({"pairs": pairs[name]} if name in pairs else {})}
            for name in dict.fromkeys(studied)
        ]

    def of_dataset(self, dataset: str) -> Material:
        """The cells of a dataset alone, whose tables need no warnings about others."""
        return replace(self, cells=tuple(cell for cell in self.cells if cell.dataset == dataset))

    def of_model(self, model: str) -> tuple[StudyCell, ...]:
        """The cells of a model."""
        return tuple(cell for cell in self.cells if cell.model == model)

    def no_mean(self, model: str) -> str:
        """A sentence on a model that lacks pairs on a dataset where another has some: it has no mean. Else empty."""
        all_datasets = {cell.dataset for cell in (*self.paired, *self.elsewhere) if cell.n}
        datasets = {cell.dataset for cell in self.paired if cell.model == model}
        if not datasets or datasets == all_datasets:
            return ""
        return f"{model} has no mean over datasets: it has {len(datasets)} of {len(all_datasets)} datasets."

    @property
    def searches(self) -> tuple[str, ...]:
        """A line for each protocol whose search for best thresholds is not per class from 0."""
        lines = {}
        for cell in self.cells:
            options = cell.options()
            words = ["one for all classes of a dataset"] if options.unit == "per_dataset" else []
            words += [f"from {options.tau_from:g} on"] if options.tau_from else []
            if words:
                lines[cell.rows.protocol] = (
                    f"protocol {cell.rows.protocol} searches for best thresholds: {', '.join(words)}"
                )
        return tuple(lines.values())

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
        block = [f"protocol {self.protocol}"] if self.protocol else []
        worth = stamps(map(entry_stamp, (cell.rows.entry for cell in self.cells)))
        unsure = uncertain_stamps((c.title, c.model, c.rows.entry.get("uncertain", {})) for c in self.cells)
        return (*block, *worth, *sorted(limits), *unsure, *sorted(named), *unnamed)


def blocks_of(material: Material) -> tuple[Material, ...]:
    """A part for each protocol by which its cells were evaluated; the given one if there is only one."""
    cells = material.cells
    names = protocols_in(cell.rows.protocol for cell in cells)
    if len(names) == 1:
        return (material,)
    return tuple(
        replace(
            material,
            cells=tuple(cell for cell in cells if cell.rows.protocol == name),
            elsewhere=tuple(cell for cell in cells if cell.rows.protocol != name),
            unfinished=(*other_protocols(name, names), *material.unfinished),
            protocol=name,
        )
        for name in names
    )


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
    metrics: tuple[OwnMetric, ...] = (),
) -> list[Material]:
    """The finished cells of several runs; `models`, `datasets`: only these, which need not be in every run; `metrics`:
    of the user.

    Raises RunError when a path is not a run directory, a result cannot be read, or no cell is finished,
    ConfigError for a model or dataset that no run has, and for a metric that cannot be used.
    """
    check_names(metrics, FIELDS)
    runs = [load_run(path) for path in paths]
    where = ", ".join(str(path) for path in paths)
    for what, wanted in (("model", models), ("dataset", datasets)):
        names = dict.fromkeys(name for run in runs for name in getattr(run, f"{what}s"))
        for name in wanted:
            if name not in names:
                raise ConfigError(f"{where} has no {what} '{name}': {did_you_mean(name, names)}.")
    choices = Choices(metrics=metrics)
    return [material_of(run, sampling or Resampling(), models, datasets, choices) for run in runs]


def material_of(
    run: StoredRun,
    sampling: Resampling,
    models: Collection[str] = (),
    datasets: Collection[str] = (),
    choices: Choices = DEFAULTS,
) -> Material:
    """The finished cells of an open run; `models`, `datasets`: only these; `choices`: which pairs count and how. Raises
    RunError when there is none."""

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
    unfinished = (*([run.running] if run.running else []), *unfinished)
    order = {name: place for place, name in enumerate((*run.models, *run.datasets))}
    rows.sort(key=lambda cell: (order[cell.model], order[cell.dataset]))
    rows, conflicts = on_agreed_images(rows)
    selected = rest_on_models(
        {(cell.model, cell.dataset): cell for cell in rows},
        {(cell.model, cell.dataset): scored_pairs(run, cell, choices) for cell in rows},
    )
    rows = [cell for cell in rows if (cell.model, cell.dataset) not in selected.left_out]
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
            pairs=selected.pairs[cell.model, cell.dataset],
            patients=patients[cell.dataset],
            ambiguous=titles[str(cell.entry["title"])] > 1,
        )
        for cell in rows
    )
    left_out = (f"{m} on {d}: {why}" for (m, d), why in selected.left_out.items())
    unfinished = (*unfinished, *left_out, *selected.notes, *conflicts, *kept)
    return Material(run, cells, unfinished, sampling, metrics=choices.metrics)
