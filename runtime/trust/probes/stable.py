"""The probes `stability` and `repeat`: are maps stable under small changes of the image (docs/trust-probes.md §4), and
if the image is the same? The spread of `repeat` bounds every other number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.statistics.bootstrap import draw_patients, patient_index
from ....metrics_gpu.statistics.intervals import Interval
from ....metrics_gpu.sweep.maps import scaled_map
from ....metrics_gpu.sweep.masks import GRID, masks_in_view
from ....metrics_gpu.trust.perturbations import LEVELS, POOLED, jpeg_coder
from ....metrics_gpu.trust.similarity import degenerate_maps, spearman, ssim
from ....metrics_gpu.trust.stability import STILL, change_correlation, distances, rank_changes
from ....metrics_gpu.trust.verdicts import Judged, effects_of, share_interval
from .effects import pair_groups
from .probe import FLIPS, ImageProbe, Judgement, ProbeOptions, Question
from .probe_images import pair_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from .asking import AskedModel
    from .probe_images import PreparedImage, Row

_MEANS: Final = ("flip", "spearman", "ssim", "score_change", "rank_change")
"""What has a mean over pairs for each change."""


class RepeatProbe(ImageProbe):
    """Asks the model about each image in two batches, alone and behind a copy of itself."""

    name = "repeat"
    columns: Mapping[str, str] = {"logit": "float64", "logit_change": "float64", "map_change": "float64"}

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        return 3

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """The largest change of each map, as a share of its range, and the change of its logit."""
        once = model.ask(image.pixels[None], image.findings)
        again = model.ask(np.stack([image.pixels] * 2), image.findings)
        first = once.maps[0].astype(np.float64)
        span, change = np.ptp(first, axis=(1, 2)), np.abs(first - again.maps[1]).max(axis=(1, 2))
        logits = once.logits[0].astype(np.float64)
        columns = {
            "logit": logits,
            "logit_change": np.abs(logits - again.logits[1]),
            "map_change": change / np.where(span > 0, span, 1),
        }
        return pair_rows(image.pairs, {}, columns)

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """The largest changes."""
        import pyarrow.compute as pc

        largest = {name: pc.max(rows[name]).as_py() for name in ("logit_change", "map_change")}
        if not any(largest.values()):
            return Judgement(notes=["repeat: the same image gave the same bits twice"], facts=largest)
        told = f"{largest['logit_change']:.2g} in the logit and {largest['map_change']:.2g} of the range of the map"
        return Judgement(
            notes=[f"repeat: the same image gave other values twice, by up to {told}; no smaller change can be told"],
            facts=largest,
        )


class StabilityProbe(ImageProbe):
    """Each image as it is and with every change, all as one batch."""

    name = "stability"
    columns: Mapping[str, str] = {
        "change": "string",
        "hit": "bool",
        "changed_hit": "bool",
        "distance": "float64",
        "spearman": "float64",
        "ssim": "float64",
        "score": "float64",
        "changed_score": "float64",
        "degenerate": "bool",
    }

    def __init__(self, options: ProbeOptions) -> None:
        super().__init__(options)
        self._changes = LEVELS[options.levels]

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"seed": self.options.seed, "changes": list(map(str, self._changes)), "jpeg": jpeg_coder()}

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        return 1 + len(self._changes)

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """A row for each pair and change. Maps and regions are compared in the view of the model, at 224."""
        plain = image.pixels[0]
        variants = [change.of(plain, f"{self.options.seed} {image.case_id} {change}") for change in self._changes]
        said = model.ask(np.stack([plain, *variants])[:, None], image.findings)
        regions = masks_in_view(image.regions, image.frame, GRID[0])
        maps = np.stack([[scaled_map(saliency) for saliency in of_image] for of_image in said.maps])
        flat = np.stack([degenerate_maps(of_image) for of_image in said.maps])
        before = np.column_stack(np.divmod(maps[0].reshape(len(maps[0]), -1).argmax(axis=1), GRID[1]))
        hits = _hits(regions, before) & ~flat[0]
        rows: list[Row] = []
        for at, change in enumerate(self._changes, start=1):
            after = change.maxima(maps[at])
            changed_hits = _hits(regions, after) & ~flat[at]
            compared, undone = change.compared(maps[0]), change.undone(maps[at])
            either = flat[0] | flat[at]
            columns = {
                "hit": hits,
                "changed_hit": changed_hits,
                "distance": np.where(either, np.nan, distances(before, after)),
                "spearman": spearman(compared, undone),
                "ssim": ssim(compared, undone),
                "score": said.probabilities[0],
                "changed_score": said.probabilities[at],
                "degenerate": either,
            }
            rows += pair_rows(image.pairs, {"change": str(change)}, columns)
        return rows

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """The share of flips over the judged changes (line 7 of the card), and the numbers of every change."""
        held = rows.to_pandas()
        if held.empty:
            return Judgement()
        held["flip"] = (held["hit"] != held["changed_hit"]).astype(np.float64)
        held["score_change"] = (held["changed_score"] - held["score"]).abs()
        by_change = {change: held[held["change"] == change] for change in map(str, self._changes)}
        pairs = next(iter(by_change.values()))
        found = _measured(by_change, pairs)
        judged = [by_change[str(change)] for change in POOLED]
        question = Question(
            FLIPS,
            f"share of flips over {', '.join(map(str, POOLED))}",
            7,
            pairs.assign(degenerate=np.any([of_change["degenerate"] for of_change in judged], axis=0)),
            np.mean([of_change["flip"] for of_change in judged], axis=0),
            STILL,
        )
        told, correlation = _correlated(held[held["change"] != "flip"])
        return Judgement([question], [told], {**found, "change_correlation": correlation})


def _hits(regions: NDArray[np.bool_], places: NDArray[np.intp]) -> NDArray[np.bool_]:
    """bool [P]: whether places [P, 2] lie in their regions [P, H, W]; outside the image never."""
    inside = np.logical_and.reduce((places >= 0) & (places < regions.shape[1:]), axis=1)
    rows, columns = (places * inside[:, None]).T
    return np.asarray(regions[np.arange(len(regions)), rows, columns] & inside)


def _measured(by_change: Mapping[str, Any], pairs: Any) -> dict[str, dict[str, Any]]:
    """The numbers of each change, for JSON: means as everywhere (docs/trust.md §0.1), with intervals."""
    groups = pair_groups(pairs)
    numbers = {}
    for change, held in by_change.items():
        ranks = rank_changes(held["score"].to_numpy(), held["changed_score"].to_numpy(), groups.class_of)
        values = np.column_stack([*(held[name].to_numpy(np.float64) for name in _MEANS[:-1]), ranks])
        effects = effects_of(values, groups, [{}] * len(_MEANS), np.zeros(values.shape, np.bool_))
        moved = held["distance"].dropna()
        numbers[change] = {
            "pairs": len(held),
            "degenerate": int(held["degenerate"].sum()),
            "gained": int((held["changed_hit"] & ~held["hit"]).sum()),
            "lost": int((held["hit"] & ~held["changed_hit"]).sum()),
            "distance_median": float(moved.median()) if len(moved) else None,
            "distance_90": float(moved.quantile(0.9)) if len(moved) else None,
            **{name: _with_interval(name, effect) for name, (effect, *_) in zip(_MEANS, effects, strict=True)},
        }
    return numbers


def _with_interval(name: str, effect: Judged) -> dict[str, float | None]:
    return {"value": effect.value, **_ends(share_interval(effect) if name == "flip" else effect.interval)}


def _ends(interval: Interval | None) -> dict[str, float | None]:
    return {"low": None, "high": None} if interval is None else {"low": interval.low, "high": interval.high}


def _correlated(held: Any) -> tuple[str, dict[str, Any]]:
    """The correlation of changes of score and map, as a line and for JSON."""
    patient_of, count = patient_index(held["patient_id"].tolist())
    change = held["score_change"].to_numpy(), 1 - held["spearman"].to_numpy()
    correlation = change_correlation(*change, patient_of, draw_patients(count))
    ends = correlation.interval
    fact = {
        "n": correlation.n,
        "pearson": correlation.pearson,
        "spearman": correlation.spearman,
        "reason": correlation.reason,
    }
    fact |= _ends(ends)
    if correlation.pearson is None:
        return f"stability: whether maps move with the score cannot be told: {correlation.reason}", fact
    around = "" if ends is None else f" [{ends.low:+.2f}, {ends.high:+.2f}]"
    return (
        f"stability: changes of p and of the map correlate by {correlation.pearson:+.2f}{around} (Spearman "
        f"{correlation.spearman:+.2f}) over {correlation.n} changes; above 0, maps move when the score does"
    ), fact
