"""The probe `deletion`, and what it shares with `region`: an image with its fills, and which pairs can say something
(docs/trust-probes.md §3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.statistics.bootstrap import patient_index
from ....metrics_gpu.trust.faithfulness import (
    FILLS,
    LEAST_SCORE,
    MOST_FILL,
    RANDOM_ORDERS,
    cell_order,
    curve_area,
    fill_of,
    inner_stages,
    random_orders,
    steps_of,
)
from ....metrics_gpu.trust.reference_maps import prior_maps
from ....metrics_gpu.trust.similarity import degenerate_maps
from ....metrics_gpu.trust.verdicts import MARGINS, Criterion
from .asking import ask_pairs
from .effects import mean_of, number_beside
from .probe import Judgement, ProbeOptions, Question, SurveyProbe
from .probe_images import pair_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from .asking import AskedModel, VariantScores
    from .probe_images import PreparedImage, Row

Grey = NDArray[np.uint8]
Float = NDArray[np.float64]

_ABOVE: Final = Criterion(MARGINS["probability"])
_LOW: Final = f"p of the image is below {LEAST_SCORE:g}"
_VOID: Final = f"the filled image keeps more than {100 * MOST_FILL:.0f} % of p"
_ALONE: Final = "no other patient has the finding"
_MODES: Final = {"deletion": "random order - order of the map", "insertion": "order of the map - random order"}
_TO_PRIOR: Final = {
    "deletion": "order of the prior map - order of the map",
    "insertion": "order of the map - order of the prior map",
}
FILLED_COLUMNS: Final[Mapping[str, str]] = {
    "fill": "string",
    "score": "float64",
    "logit": "float64",
    "filled_score": "float64",
    "degenerate": "bool",
}
"""Columns of both probes, which have a row for each pair and fill: p of the image and of the filled image."""


@dataclass(frozen=True, eq=False)
class FilledImage:
    """An image with its fills, and what the model says of them: the image first, then each of `FILLS`."""

    image: PreparedImage
    fills: Sequence[Grey]
    said: VariantScores

    @staticmethod
    def of(image: PreparedImage, model: AskedModel) -> FilledImage:
        fills = [fill_of(image.pixels[0], name) for name in FILLS]
        return FilledImage(image, fills, model.ask(np.stack([image.pixels[0], *fills])[:, None], image.findings))

    def rows(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Fill and place of the pair -> the row, with the columns `FILLED_COLUMNS`."""
        said, flat = self.said, degenerate_maps(self.said.maps[0])
        return {
            (fill, place): {
                **pair,
                "fill": name,
                "score": said.probabilities[0, place],
                "logit": float(said.logits[0, place]),
                "filled_score": said.probabilities[1 + fill, place],
                "degenerate": flat[place],
            }
            for fill, name in enumerate(FILLS)
            for place, pair in enumerate(self.image.pairs)
        }


@dataclass(frozen=True, eq=False)
class _Curve:
    """A curve of a fill. order: `own`, `prior` or `random`; place: of the pair whose map, or prior map, has ordered the
    cells `cells`; None: a random order, for all pairs."""

    fill: int
    order: str
    place: int | None
    mode: str
    cells: NDArray[np.intp]

    def stages(self, filled: FilledImage, grid: tuple[int, int]) -> Grey:
        """The images between both ends, uint8 [n, S, S]."""
        start, end = (filled.image.pixels[0], filled.fills[self.fill])[:: 1 if self.mode == "deletion" else -1]
        return inner_stages(start, end, self.cells, grid, steps_of(grid))


class DeletionProbe(SurveyProbe):
    """Deletion and insertion in the order of the map, of the prior map and in random orders, with each fill.

    The prior map of a pair is the mean of the maps of its finding in the other patients of the run, which `survey` asks
    for before the first image is filled.
    """

    name = "deletion"
    columns: Mapping[str, str] = {
        **FILLED_COLUMNS,
        **{
            f"{order}_{mode}{unit}": "float64"
            for order in ("own", "random", "prior")
            for mode in _MODES
            for unit in ("", "_logit")
        },
        "map": "binary",
    }

    def __init__(
        self,
        options: ProbeOptions,
        orders: int = RANDOM_ORDERS,
        priors: Mapping[tuple[str, str], NDArray[np.float32]] | None = None,
    ) -> None:
        super().__init__(options)
        self._orders = orders
        self.priors = priors or {}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"seed": self.options.seed, "random_orders": self._orders, "fills": list(FILLS)}

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        """Forward passes of an image, at most: of a pair and fill that can say nothing, no curve is made."""
        return 1 + len(FILLS) * (1 + len(_MODES) * (steps_of(grid) - 1) * (2 * pairs + self._orders))

    def survey(self, images: Sequence[PreparedImage], model: AskedModel) -> Sequence[Row]:
        """The map of each pair, row by row in float32."""
        maps, _ = ask_pairs(images, model, max(1, len(images)))
        pairs = [pair for image in images for pair in image.pairs]
        return pair_rows(pairs, {}, {"map": [saliency.astype("<f4").tobytes() for saliency in maps]})

    def surveyed(self, rows: Sequence[Row], grid: tuple[int, int]) -> DeletionProbe:
        """The probe with the prior maps of these pairs."""
        pairs = [row for row in rows if row.get("map") is not None]
        maps = np.array([np.frombuffer(row["map"], "<f4") for row in pairs], np.float32).reshape(-1, *grid)
        class_of, patient_of = (patient_index([row[name] for row in pairs])[0] for name in ("finding", "patient_id"))
        priors, known = prior_maps(maps, class_of, patient_of)
        with_prior = ((pairs[at], priors[at]) for at in np.flatnonzero(known))
        prior_of = {(pair["case_id"], pair["finding"]): prior for pair, prior in with_prior}
        return DeletionProbe(self.options, self._orders, prior_of)

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """The areas of the curves, of probabilities and of logits; random orders: the mean of theirs."""
        filled = FilledImage.of(image, model)
        rows = filled.rows()
        curves = list(self._curves(filled, rows, model.grid))
        if not curves:
            return list(rows.values())
        said = model.ask_logits((curve.stages(filled, model.grid) for curve in curves), image.findings)
        units: list[tuple[str, NDArray[Any], NDArray[Any]]] = [
            ("", filled.said.probabilities, said.probabilities),
            ("_logit", filled.said.logits, said.logits),
        ]
        for unit, ends, inner in units:
            random = defaultdict[tuple[int, str], list[Float]](list)
            for curve, scores in zip(curves, inner.reshape(len(curves), -1, len(image.findings)), strict=True):
                # Insertion ends where deletion begins; both ends count alike.
                areas = curve_area(np.vstack([ends[0], scores, ends[1 + curve.fill]]).T.astype(np.float64))
                if curve.place is None:
                    random[curve.fill, curve.mode].append(areas)
                else:
                    rows[curve.fill, curve.place][f"{curve.order}_{curve.mode}{unit}"] = areas[curve.place]
            for (fill, place), row in rows.items():
                for mode in _MODES:
                    if f"own_{mode}{unit}" in row:
                        row[f"random_{mode}{unit}"] = np.mean([areas[place] for areas in random[fill, mode]])
        return list(rows.values())

    def _curves(
        self, filled: FilledImage, rows: Mapping[tuple[int, int], Row], grid: tuple[int, int]
    ) -> Iterator[_Curve]:
        """The curves of the pairs that can say something, and of random orders for each fill that has one."""
        image, maps = filled.image, filled.said.maps[0]
        random = random_orders(f"{self.options.seed} {image.case_id}", grid[0] * grid[1], self._orders)
        for fill in range(len(filled.fills)):
            useful = [place for place in range(len(maps)) if useful_pairs(rows[fill, place])]
            orders: list[tuple[str, int | None, NDArray[np.intp]]] = []
            for place in useful:
                orders.append(("own", place, cell_order(maps[place])))
                prior = self.priors.get((image.case_id, image.findings[place]))
                orders += [] if prior is None else [("prior", place, cell_order(prior))]
            orders += [("random", None, order) for order in random if useful]
            yield from (_Curve(fill, kind, pair, mode, order) for kind, pair, order in orders for mode in _MODES)

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """Both gaps under both fills (line 5 of the card), and beside them those to the order of the prior map."""
        questions, notes, facts = list[Question](), list[str](), dict[str, Any]()
        for fill, held in by_fill(rows):
            notes.append(f"deletion, {fill_note(fill, held)}")
            for mode, words in _MODES.items():
                sign = 1.0 if mode == "deletion" else -1.0
                own, random = held[f"own_{mode}"], held[f"random_{mode}"]
                text = f"{mode}, fill {fill}: {words}"
                questions.append(gap_question((f"{mode}_{fill}", text), 5, held, sign * (random - own)))
                in_logits = mean_of(sign * (held[f"random_{mode}_logit"] - held[f"own_{mode}_logit"]))
                prior = held[f"prior_{mode}"]
                beside = gap_question(("", ""), 5, held, sign * (prior - own), {_ALONE: prior.isna()})
                fact, told = number_beside(beside)
                alone = beside.left_out[_ALONE]
                facts[f"{mode}_{fill}"] = {
                    "own": mean_of(own),
                    "random": mean_of(random),
                    "gap_in_logits": in_logits,
                    "gap_to_prior": fact,
                }
                without = f"; {alone} left out, {_ALONE}" if alone else ""
                notes.append(f"{mode}, fill {fill}, {_TO_PRIOR[mode]}: {told}{without}")
                if np.median(held["score"]) > 0.99 and in_logits is not None:
                    notes.append(
                        f"{mode}, fill {fill}: p is above 0.99 in most pairs, which hides drops; the mean gap of the "
                        f"logits is {in_logits:+.2f}"
                    )
        return Judgement(questions, notes, facts)


def by_fill(rows: pa.Table) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each fill that has rows, with these."""
    held = rows.to_pandas()
    for fill in FILLS:
        if not (of_fill := held[held["fill"] == fill]).empty:
            yield fill, of_fill


def useful_pairs(held: Any) -> Any:
    """Whether a pair can say something under a fill: its score has far to fall, and falls when all is filled. held: a
    row -> bool, or a data frame -> bool [P]."""
    return (held["score"] >= LEAST_SCORE) & (held["filled_score"] <= MOST_FILL * held["score"])


def gap_question(
    name: tuple[str, str],
    line: int,
    held: pd.DataFrame,
    values: pd.Series[float],
    more: Mapping[str, pd.Series[bool]] | None = None,
) -> Question:
    """The question of one fill, without the pairs that can say nothing. name: key and text. more: other reasons ->
    pairs, bool; a pair counts under its first reason."""
    low = held["score"] < LEAST_SCORE
    taken, left_out = low & False, dict[str, int]()
    for why, pairs in {_LOW: low, _VOID: ~low & ~useful_pairs(held), **(more or {})}.items():
        left_out[why] = int((pairs & ~taken).sum())
        taken |= pairs
    return Question(*name, line, held, np.asarray(values.mask(taken), np.float64), _ABOVE, left_out)


def fill_note(fill: str, held: pd.DataFrame) -> str:
    """How a fill changes the scores."""
    image, filled = held["score"].mean(), held["filled_score"].mean()
    return f"fill {fill}: the mean p is {image:.2f}, and {filled:.2f} of filled images ({len(held)} pairs)"
