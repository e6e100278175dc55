"""The probe `prompts`: does a map answer its prompt, or does the map of any other finding do as well (docs/trust.md
§1.4)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.sweep.maps import scaled_map
from ....metrics_gpu.sweep.masks import GRID
from ....metrics_gpu.trust.localisation import localise
from ....metrics_gpu.trust.similarity import degenerate_maps, spearman
from ....metrics_gpu.trust.stability import distances
from ....metrics_gpu.trust.verdicts import MARGINS, Criterion
from .effects import macro_of, number_beside
from .probe import ImageProbe, Judgement, Question
from .probe_images import pair_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from ....engines.prompts.prompt_set import PromptSet
    from .asking import AskedModel
    from .probe_images import PreparedImage, Row

Maps = NDArray[np.float32]
Float = NDArray[np.float64]

_SCORES: Final = {"average_precision": "average precision", "roc_auc": "ROC AUC", "pointing": "pointing"}
_LINE: Final = 3


class PromptsProbe(ImageProbe):
    """Scores the maps of all findings on the region of each pair: its own, and every other, present or absent."""

    name = "prompts"
    columns: Mapping[str, str] = {
        **dict.fromkeys(_SCORES, "float64"),
        **{f"other_{name}": "float64" for name in _SCORES},
        "others": "int32",
        "other_prompts": "string",
        "spearman": "float64",
        "degenerate": "bool",
        "alone_spearman": "float64",
        "alone_distance": "float64",
    }

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        """Forward passes of an image, at most: findings are asked alone where queries see one another."""
        return 1 + (pairs if findings > 1 else 1)

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """The scores of a pair's own map and the means over the maps of all other findings."""
        whole, source = model.with_prompts(model.prompts), model.prompts
        names, others = list(whole.findings), list[str]()
        if len(names) == 1:
            source, others = other_prompts(model.engine.bundle, names[0])
        meet = len(names) > 1 and model.queries_meet
        # Encoded, the part of the graph that sees only the image runs once for all sets.
        batch = model.engine.encode(image.pixels[None]) if others or meet else image.pixels[None]
        maps = whole.ask(batch, names).maps[0]
        own = np.array([names.index(model.asked[finding]) for finding in image.findings], np.intp)
        if others:
            maps = np.concatenate([maps, model.with_prompts(source).ask(batch, others).maps[0]])
        scores = _scored(maps, own, image)
        if meet:
            sets = [model.with_prompts(model.prompts.only(model.asked[finding])) for finding in image.findings]
            scores |= _moved(maps[own], np.stack([alone.ask(batch, alone.findings).maps[0, 0] for alone in sets]))
        return pair_rows(image.pairs, {"others": len(maps) - 1, "other_prompts": source.name}, scores)

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """Whether maps answer the prompt (line 3 of the card)."""
        held = rows.to_pandas()
        if held.empty:
            return Judgement()
        counts = held["others"]
        facts: dict[str, Any] = {"others": int(counts.min()), "other_prompts": sorted(set(held["other_prompts"]))}
        if not counts.any():
            return Judgement(notes=["prompts: no prompt set of the bundle has another finding"], facts=facts)
        asked = {name: _question(held, name, held[name] - held[f"other_{name}"]) for name in _SCORES}
        main, *beside = asked
        notes = []
        for name, words in _SCORES.items():
            facts[name] = {side: macro_of(held, column) for side, column in (("own", name), ("other", f"other_{name}"))}
            if name in beside:
                fact, told = number_beside(asked[name])
                facts[name] |= fact
                notes.append(f"prompts, {words}, own - other findings: {told}")
        facts["spearman"], told = number_beside(_question(held, "spearman", held["spearman"]), tested=False)
        notes.append(f"prompts, rank correlation of the map with those of other findings: {told}")
        facts["alone"], more = _alone_facts(held)
        return Judgement([asked[main]], notes + more, facts)


def other_prompts(bundle: Bundle, finding: str) -> tuple[PromptSet, list[str]]:
    """The prompt set of the bundle with the most findings of another name than `finding`, and these; of several the
    first by name."""
    sets = bundle.manifest.prompt_sets

    def others(name: str) -> list[str]:
        return [each for each in sets[name].findings if each.casefold() != finding.casefold()]

    largest = max(sorted(sets), key=lambda name: len(others(name)))
    return bundle.prompt_set(largest), others(largest)


def _scored(maps: Maps, own: NDArray[np.intp], image: PreparedImage) -> dict[str, NDArray[Any]]:
    """For each pair the scores of its own map, at `own` of M maps, and the means over the others."""
    pairs, count = len(own), len(maps)
    localised = localise(
        maps,
        image.regions,
        frames=np.array([image.frame] * count),
        pairs=(np.tile(np.arange(count), pairs), np.repeat(np.arange(pairs), count)),
    )
    rest = np.arange(count) != own[:, None]
    columns: dict[str, NDArray[Any]] = {}
    for name in _SCORES:
        scores = getattr(localised, name).reshape(pairs, count)
        columns[name] = scores[np.arange(pairs), own]
        # As a difference from the own score, so that equal maps differ by 0 exactly.
        columns[f"other_{name}"] = columns[name] + _mean(scores - columns[name][:, None], rest)
    first = np.repeat(own, count)
    alike = spearman(maps[first], maps[np.tile(np.arange(count), pairs)]).reshape(pairs, count)
    flat = degenerate_maps(maps)
    return columns | {"spearman": _mean(alike, rest), "degenerate": np.full(pairs, flat.any())}


def _moved(within: Maps, alone: Maps) -> dict[str, NDArray[Any]]:
    """What changes when each finding of the pairs is asked without the others. within: their maps in the set."""
    moved = distances(_maxima(within), _maxima(alone))
    moved[degenerate_maps(within) | degenerate_maps(alone)] = np.nan
    return {"alone_spearman": spearman(within, alone), "alone_distance": moved}


def _mean(values: Float, chosen: NDArray[np.bool_]) -> Float:
    """The mean of each row over what is chosen and defined; NaN where nothing is."""
    chosen = chosen & ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(chosen, values, 0).sum(axis=1) / chosen.sum(axis=1))


def _maxima(maps: Maps) -> NDArray[np.intp]:
    """Row and column of the first maximum of each map on the 224 grid, intp [n, 2]."""
    places = [int(scaled_map(each).argmax()) for each in maps]
    return np.column_stack(np.divmod(places, GRID[1]))


def _question(held: pd.DataFrame, name: str, values: pd.Series[float]) -> Question:
    """The question of a column. Regions of all pixels have no ROC AUC, degenerate maps no rank correlation."""
    text = "answers the prompt: average precision, own - all other findings"
    criterion = Criterion(MARGINS[name]) if name == "average_precision" else None
    undefined = int(values.isna().sum())
    left_out = {"undefined": undefined} if undefined else {}
    return Question(f"prompts_{name}", text, _LINE, held, np.asarray(values, np.float64), criterion, left_out)


def _alone_facts(held: pd.DataFrame) -> tuple[dict[str, Any], list[str]]:
    """How maps change when a finding is asked alone, and the same in words."""
    asked_alone = held.dropna(subset=["alone_distance"])
    fact: dict[str, Any] = {"pairs": len(asked_alone), "moved": None, "distance": None, "spearman": None}
    if asked_alone.empty:
        return fact, []
    moved = asked_alone["alone_distance"] > 0
    distance = asked_alone["alone_distance"][moved].median()
    fact |= {
        "moved": float(moved.mean()),
        "distance": float(distance) if moved.any() else None,
        "spearman": macro_of(asked_alone, "alone_spearman"),
    }
    how_far = f", by {distance:.0f} px of 224 (median)" if moved.any() else ""
    return fact, [
        f"prompts: asked alone, the maximum of the map moves in {100 * moved.mean():.0f} % of {len(asked_alone)} pairs"
        f"{how_far}; rank correlation {fact['spearman']:.2f}. Queries see one another: maps are a property of the "
        "prompt set"
    ]
