"""A run -> all numbers of its report, a few cells at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ....engines.errors import ConfigError
from ....metrics_gpu.grounding.search import model_levels
from ...host.machine import usable_cores
from ..basis import find_bases
from ..choices import DEFAULTS, Choices
from ..load import CellRows, StoredRun
from ..pairs import ScoredPairs, scored_pairs, why_left_out
from ..patients import dataset_patients
from .cell_values import CellValues, cell_values
from .run_numbers import Results

__all__ = ["make_results"]

Key = tuple[str, str]


def make_results(run: StoredRun, choices: Choices = DEFAULTS) -> Results:
    """All numbers of a run.

    Raises RunError when a result file cannot be read or lacks the maps that `choices` ask for, ConfigError for choices
    that do not fit the run.
    """
    rows = {(cell.model, cell.dataset): cell for cell in run.cells()}
    left_out = {key: reason for key, cell in rows.items() if (reason := why_left_out(cell, choices))}
    rows = {key: cell for key, cell in rows.items() if key not in left_out}
    pairs = {key: scored_pairs(run, cell, choices) for key, cell in rows.items()}
    patients = {
        dataset: dataset_patients(dataset, _column(rows, dataset), choices.replicates, choices.seed)
        for dataset in run.datasets
    }
    levels = {model: _levels(pairs, model) for model in run.models}
    from ....metrics_gpu.recognition import walk  # compiled or loaded once, before the threads ask for it

    del walk

    def compute(key: Key) -> CellValues:
        model, dataset = key
        return cell_values(rows[key], pairs[key], patients[dataset], choices, levels[model], run.reader(dataset))

    # The walks and matrix products leave the interpreter to other threads.
    with ThreadPoolExecutor(usable_cores()) as pool:
        cells = dict(zip(rows, pool.map(compute, rows), strict=True))
    return Results(
        models=tuple(run.models),
        datasets=tuple(run.datasets),
        cells=cells,
        unfinished={**run.unfinished, **left_out},
        choices=choices,
        left_out=left_out,
        rows=rows,
        pairs=pairs,
        bases=find_bases(rows, pairs),
        levels=levels,
        patients=patients,
    )


def _column(rows: Mapping[Key, CellRows], dataset: str) -> Sequence[CellRows]:
    return [cell for (_, name), cell in rows.items() if name == dataset]


def _levels(pairs: Mapping[Key, ScoredPairs], model: str) -> tuple[int, int] | None:
    """The one threshold of a model, if that is what is asked.

    Raises ConfigError when its datasets were evaluated so differently that one threshold means nothing.
    """
    own = [scored for (name, _), scored in pairs.items() if name == model]
    if not own or own[0].options.unit != "per_model":
        return None
    searches = {(scored.protocol.sweeping, scored.options.tau_from) for scored in own}
    if len(searches) > 1:
        names = " and ".join(dict.fromkeys(scored.protocol.name for scored in own))
        raise ConfigError(
            f"--best per_model seeks one threshold for all datasets of {model}, but they were evaluated by the "
            f"protocols {names}; name one with --protocol, or choose another --best."
        )
    return model_levels([(scored.counts, scored.class_of) for scored in own], own[0].options) or (0, 0)
