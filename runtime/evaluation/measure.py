"""Maps and regions -> the counts of rows, by the protocol of the evaluation (docs/metrics.md §11 and §14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.grounding.native import native_map, segment
from ...metrics_gpu.grounding.protocols import Protocol
from ...metrics_gpu.sweep.counts import Counts
from ...metrics_gpu.sweep.pointing import pointing_hits
from ...metrics_gpu.sweep.sweep_options import DEFAULT, Sweeping
from ..results.schema import GRID

if TYPE_CHECKING:
    from .drawn import DrawnPairs

Sweep = Callable[..., Counts]
Maps = NDArray[np.float32] | Sequence[NDArray[np.float32]]
"""float32 [P, h, w], or P maps of any sizes."""


@dataclass(frozen=True)
class Measure:
    """Applies `sweep` with the settings of a protocol; thread-safe."""

    protocol: Protocol
    sweep: Sweep

    @property
    def description(self) -> str:
        """What the counts of a row depend on; equal for protocols that differ only in the scoring of counts."""
        sweeping = self.protocol.sweeping
        words = {
            "bilinear": "bilinear",
            "minmax": "min-max",
            "max": "divided by the maximum",
            "none": "not normalised",
        }
        top = f"{sweeping.tau_scale:.2f}" if sweeping.tau_scale == 1 else f"{sweeping.tau_scale:g}"
        text = f"thresholds 0.00..{top}, {words.get(sweeping.upsample, sweeping.upsample)}, {words[sweeping.normalise]}"
        text += ", squashed 224 grid"
        if sweeping.comparison != DEFAULT.comparison:
            text += f", compared by {sweeping.comparison}"
        if self.protocol.pointing_from_default:
            text += f", pointing ties: {self.protocol.options.ties}"
        return text + (", native size" if self.protocol.native_size else "")

    def count(self, pairs: DrawnPairs, maps: Maps) -> tuple[Counts, Sequence[dict[str, Any] | None] | None]:
        """Sweeps the maps of the pairs; returns what `counted` does."""
        if not len(pairs):
            return Counts.empty(), None
        if isinstance(maps, np.ndarray) or len({saliency.shape for saliency in maps}) == 1:
            return self.counted(pairs, maps, self.launch(np.asarray(maps), pairs.masks, pairs.frames))
        shapes = [saliency.shape for saliency in maps]
        groups = [[pair for pair, other in enumerate(shapes) if other == shape] for shape in dict.fromkeys(shapes)]
        swept = [
            self.launch(np.stack([maps[pair] for pair in group]), pairs.masks[group], pairs.frames[group])
            for group in groups
        ]
        order = np.argsort([pair for group in groups for pair in group])
        joined = tuple(Counts.concatenate(same).take(order) for same in zip(*swept, strict=True))
        return self.counted(pairs, maps, joined)

    def launch(self, maps: Any, masks: Any, frames: NDArray[np.float64]) -> tuple[Counts, ...]:
        """The sweeps the protocol needs of maps float32 [P, h, w], packed masks uint8 [P, 224, 28] and frames [P, 4].

        Maps and masks can be CuPy arrays; then the counts are CuPy arrays too, and the work is only enqueued.
        """
        chosen, target = self.protocol, {"size": (GRID, GRID), "frames": frames}
        counts = self.sweep(maps, masks, **target, **self._arguments)
        if not chosen.pointing_from_default:
            return (counts,)
        # Only the counts of normalised maps show which maxima tie.
        return counts, self.sweep(maps, masks, **target, sweeping=Sweeping(chosen.sweeping.upsample))

    def counted(
        self,
        pairs: DrawnPairs,
        maps: Maps,
        swept: Sequence[Counts],
    ) -> tuple[Counts, Sequence[dict[str, Any] | None] | None]:
        """The counts of the pairs, of the result of `launch`, copied to the host, and their entries of the column
        `native`; None if the protocol has none. Raises DataError for a region that cannot be drawn at native size."""
        counts = swept[0]
        if len(swept) > 1:
            counts = replace(counts, hit=pointing_hits(swept[1], self.protocol.options.ties) > 0)
        if not self.protocol.native_size:
            return counts, None
        return counts, [self._native(pairs, pair, saliency) for pair, saliency in enumerate(maps)]

    @property
    def _arguments(self) -> dict[str, Any]:
        """Additional arguments of the sweep; empty if they equal the defaults."""
        return {} if self.protocol.sweeping == DEFAULT else {"sweeping": self.protocol.sweeping}

    def _native(self, pairs: DrawnPairs, pair: int, saliency: NDArray[np.float32]) -> dict[str, Any] | None:
        case = int(pairs.of_case[pair])
        height, width = pairs.sizes[case].tolist()
        if not height:
            return None
        size = height, width
        region = pairs.cases[case].regions[pairs.findings[pairs.of_finding[pair]]].mask(*size)
        frames = pairs.frames[pair : pair + 1]
        counts = self.sweep(saliency[None], region[None], size=size, frames=frames, **self._arguments)
        flat = bool(counts.degenerate[0])
        cut = np.zeros(size, np.bool_) if flat else segment(native_map(saliency, *size, tuple(frames[0].tolist())))
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
