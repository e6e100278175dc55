"""The probe `repeat`: the same image twice. Its spread bounds what every other probe can tell (docs/trust.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .probe import Judgement, ProbeOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from .asking import AskedModel
    from .probe_images import PreparedImage, Row


class RepeatProbe:
    """Asks the model about each image in two batches, alone and behind a copy of itself."""

    name = "repeat"
    columns: Mapping[str, str] = {"logit": "float64", "logit_change": "float64", "map_change": "float64"}

    @classmethod
    def of(cls, options: ProbeOptions) -> RepeatProbe:
        """The probe; it has no options."""
        return cls()

    @property
    def settings(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        """Forward passes of an image."""
        return 3

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """The largest change of the map, as a share of its range, and that of the logit."""
        once = model.ask(image.pixels[None], image.findings)
        again = model.ask(np.stack([image.pixels] * 2), image.findings)
        rows = []
        for place, finding in enumerate(image.findings):
            first, second = once.maps[0, place], again.maps[1, place]
            span = float(first.max()) - float(first.min())
            change = float(np.abs(first.astype(np.float64) - second).max())
            rows.append(
                {
                    "finding": finding,
                    "logit": float(once.logits[0, place]),
                    "logit_change": abs(float(once.logits[0, place]) - float(again.logits[1, place])),
                    "map_change": change / span if span > 0 else change,
                }
            )
        return rows

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """The largest changes."""
        largest = {
            name: max((value for value in rows[name].to_pylist() if value is not None), default=None)
            for name in ("logit_change", "map_change")
        }
        if not any(largest.values()):
            return Judgement(notes=["repeat: the same image gave the same bits twice"], facts=largest)
        told = f"{largest['logit_change']:.2g} in the logit and {largest['map_change']:.2g} of the range of the map"
        return Judgement(
            notes=[f"repeat: the same image gave other values twice, by up to {told}; no smaller change can be told"],
            facts=largest,
        )
