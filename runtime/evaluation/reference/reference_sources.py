"""Models without a bundle: baselines and folders of maps. They need no engine, and only the size of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....engines.errors import ImageError
from ..decoded_case import DecodedCase
from ..drawn import DrawnPairs
from ..measure import Measure
from ..scoring import Scored
from .baselines import baseline_grid, baseline_scores, describe_baseline, draw_case
from .map_files import KEPT_CELLS, CaseMaps, MapFolder
from .map_orientation import orientation_check
from .prior import Prior

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case
    from ...results.loaded_dataset import LoadedDataset

ScoredCases = tuple[Sequence[DecodedCase], Sequence[Scored]]
"""Cases, and in parts the scores of the readable ones, as `rows_table` takes them."""


@dataclass(frozen=True)
class Reference:
    """How the rows of a reference model are computed on one dataset.

    prepare: a case -> one input of `score`, in threads, several cases in advance. score: `batch` inputs -> their
    cases and what is said of them. description: what the maps depend on, for the cell's key. facts: for
    its entry in run.json. answers: the rows have the column `answer`, words: of words. remarks: lines for the user.
    warnings: kind -> sentence, which the table of coverage repeats. fault: why the rows, which are made, are hardly of
    use; the command then ends with an error.
    """

    name: str
    findings: Sequence[str]
    prepare: Callable[[Case], Any]
    score: Callable[[Sequence[Any]], ScoredCases]
    batch: int
    description: str
    facts: Mapping[str, Any]
    answers: bool = False
    words: bool = False
    remarks: Sequence[str] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


def baseline_reference(name: str, loaded: LoadedDataset, measure: Measure) -> Reference | str:
    """A baseline on a dataset, or the reason why it has no rows under the protocol."""
    if measure.protocol.sweeping.normalise == "none" and not name.endswith(":ones"):
        return f"the protocol {measure.protocol.name} cuts maps as they are, and this one has no scale of its own"
    findings, grid, description = list(loaded.dataset.classes), baseline_grid(name), describe_baseline(name)
    prior = Prior(loaded.asked, findings, loaded.contents) if name.endswith(":prior") else None
    if prior:  # its maps rest on cases beyond a limit
        description = f"{description} {loaded.regions_digest}"

    def score(batch: Sequence[DecodedCase]) -> ScoredCases:
        for drawn in batch:
            note_size(drawn, loaded)
        return batch, [prior.scores(batch, measure) if prior else baseline_scores(name, batch, findings, measure)]

    return Reference(
        name=name,
        findings=findings,
        prepare=partial(draw_case, findings=findings, contents=loaded.contents),
        score=score,
        batch=32,  # bounds the memory of the maps; the rows do not depend on it
        description=description,
        # `ones` has no single maximum: its pointing is the expected hit, see baselines.
        facts={
            "weights": "baseline",
            "ties": "expected" if name.endswith(":ones") else "first",
            "grid": None if grid is None else list(grid),
            # A class of one patient has no pair then, see prior.
            **({"of": "other patients"} if prior else {}),
        },
    )


def maps_reference(folder: MapFolder, loaded: LoadedDataset, measure: Measure) -> Reference | str:
    """A folder of maps on a dataset, or the reason why it has no rows.

    A case counts as missing or unreadable if the map of one of its regions is missing or damaged. Raises DataError.
    """
    dataset = loaded.dataset
    maps = folder.of(dataset.cases(), dataset.classes)
    findings = maps.findings(loaded.all_cases)
    if not findings:
        return f"{folder.folder} has no map of the first {len(loaded.all_cases)} cases"
    size = maps.size(loaded.all_cases, findings)
    grid = size if size is not None and size[0] * size[1] <= KEPT_CELLS else None
    turned = orientation_check(maps, loaded.all_cases, findings, loaded.contents)
    warnings = {"unused": maps.unused, "orientation": turned}
    return Reference(
        name=folder.name,
        findings=findings,
        prepare=partial(
            _score_maps, loaded=loaded, maps=maps, findings=findings, keep=grid is not None, measure=measure
        ),
        score=lambda batch: batch[0],
        batch=1,
        description=maps.description,
        # `grid` is the size stored in the rows; larger maps still have their size as resolution.
        facts={
            "weights": "maps",
            "grid": None if grid is None else list(grid),
            "map_size": None if size is None else list(size),
        },
        warnings={f"{title} {folder.name}": f"{folder.name}: {text}" for title, text in warnings.items() if text},
    )


def _score_maps(
    case: Case, *, loaded: LoadedDataset, maps: CaseMaps, findings: Sequence[str], keep: bool, measure: Measure
) -> ScoredCases:
    drawn = draw_case(case, findings, loaded.contents)
    note_size(drawn, loaded)
    if drawn.status != "ok":
        return [drawn], []
    pairs, read = DrawnPairs.of([drawn], findings), []
    for at in pairs.of_finding.tolist():
        item = maps.find(case.case_id, findings[at])
        if item is None:
            why = f"there is no map of '{findings[at]}'"
            return [DecodedCase(case, "missing", why, image=drawn.image)], []
        try:
            read.append(item.read())
        except ImageError as error:
            return [DecodedCase(case, "unreadable", str(error), image=drawn.image)], []
    counts, native = measure.count(pairs, read)
    return [drawn], [Scored(pairs, counts, maps=np.stack(read) if keep and read else None, native=native)]


def note_size(drawn: DecodedCase, loaded: LoadedDataset) -> None:
    """Keeps a size that was read from the image file, because the annotation states none."""
    if drawn.size is not None and drawn.case.size is None:
        loaded.file_sizes[drawn.case.case_id] = drawn.size
