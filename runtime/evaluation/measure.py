"""Maps and regions -> the counts of rows, by the protocol of the evaluation (docs/metrics.md §11 and §14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.grounding.curves import pointing_hits
from ...metrics_gpu.grounding.native import native_map, segment
from ...metrics_gpu.grounding.protocols import Protocol, protocol
from ...metrics_gpu.sweep.sweep_options import DEFAULT, Sweeping
from ..results.schema import GRID
from .scoring import Pair

if TYPE_CHECKING:
    from ...metrics_gpu.sweep.counts import Counts

__all__ = ["Measure", "Sweep"]

Sweep = Callable[..., "Counts"]

_DEFAULT = protocol("default")


@dataclass(frozen=True)
class Measure:
    """Applies `sweep` with the settings of a protocol; thread-safe."""

    protocol: Protocol
    sweep: Sweep

    @property
    def description(self) -> str:
        """What the counts of a row depend on; equal for protocols that differ only in the scoring of counts."""
        chosen = self.protocol
        words = {
            "bilinear": "bilinear",
            "minmax": "min-max",
            "max": "divided by the maximum",
            "none": "not normalised",
        }
        top = f"{chosen.tau_scale:.2f}" if chosen.tau_scale == 1 else f"{chosen.tau_scale:g}"
        text = f"thresholds 0.00..{top}, {words.get(chosen.upsample, chosen.upsample)}, {words[chosen.normalise]}"
        text += ", squashed 224 grid"
        if chosen.comparison != _DEFAULT.comparison:
            text += f", compared by {chosen.comparison}"
        if chosen.pointing_from_default:
            text += f", pointing ties: {chosen.options.ties}"
        return text + (", native size" if chosen.native_size else "")

    def fill(self, pairs: Sequence[Pair]) -> None:
        """Sweeps the maps of all pairs and stores the counts in their rows. Raises DataError for a region that
        cannot be drawn at native size."""
        groups: dict[tuple[int, ...], list[Pair]] = {}
        for pair in pairs:
            groups.setdefault(pair.saliency.shape, []).append(pair)
        for group in groups.values():
            swept = self.launch(
                np.stack([pair.saliency for pair in group]),
                np.stack([pair.decoded.masks[pair.row.finding] for pair in group]),
                np.array([pair.decoded.frame for pair in group], np.float64),
            )
            self.enter(group, swept)

    def launch(self, maps: Any, masks: Any, frames: NDArray[np.float64]) -> tuple[Counts, ...]:
        """The sweeps the protocol needs of maps float32 [P, h, w], packed masks uint8 [P, 224, 28] and frames [P, 4].

        Maps and masks can be CuPy arrays; then the counts are CuPy arrays too, and the work is only enqueued.
        """
        chosen, place = self.protocol, {"size": (GRID, GRID), "frames": frames}
        counts = self.sweep(maps, masks, **place, **self._arguments)
        if not chosen.pointing_from_default:
            return (counts,)
        # Only the counts of normalised maps show which maxima tie.
        return counts, self.sweep(maps, masks, **place, sweeping=Sweeping(chosen.upsample))

    def enter(self, pairs: Sequence[Pair], swept: Sequence[Counts]) -> None:
        """Stores the result of `launch`, copied to the host, in the rows of the pairs. Raises DataError as `fill`."""
        counts = swept[0]
        if len(swept) > 1:
            counts = replace(counts, hit=pointing_hits(swept[1], self.protocol.options.ties) > 0)
        for index, pair in enumerate(pairs):
            pair.row.take(counts, index)
            if self.protocol.native_size:
                pair.row.native = self._native(pair)

    @property
    def _arguments(self) -> dict[str, Any]:
        """Additional arguments of the sweep; empty if they equal the defaults."""
        return {} if self.protocol.sweeping == DEFAULT else {"sweeping": self.protocol.sweeping}

    def _native(self, pair: Pair) -> dict[str, Any] | None:
        case, size = pair.decoded.case, pair.decoded.size
        if size is None:
            return None
        region = case.regions[pair.row.finding].mask(*size)
        frames = np.array([pair.decoded.frame], np.float64)
        counts = self.sweep(pair.saliency[None], region[None], size=size, frames=frames, **self._arguments)
        if counts.degenerate[0]:
            cut = np.zeros(size, np.bool_)
        else:
            cut = segment(native_map(pair.saliency, *size, pair.decoded.frame))
        return {
            "height": size[0],
            "width": size[1],
            "region": int(counts.region[0]),
            "otsu_area": int(np.count_nonzero(cut)),
            "otsu_overlap": int(np.count_nonzero(cut & region)),
            "area": counts.area[0],
            "overlap": counts.overlap[0],
            "hit": bool(counts.hit[0]),
        }
