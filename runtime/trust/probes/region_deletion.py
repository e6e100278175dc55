"""The probe `region`: whether the score rests on what the radiologist marked (docs/trust-probes.md §3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.sweep.masks import masks_in_view
from ....metrics_gpu.trust.faithfulness import FILLS, PLACEMENTS, mirrored, placements
from .effects import mean_of
from .faithful import FILLED_COLUMNS, FilledImage, by_fill, fill_note, gap_question, useful_pairs
from .probe import ImageProbe, Judgement, ProbeOptions, Question

if TYPE_CHECKING:
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from .asking import AskedModel
    from .probe_images import PreparedImage, Row

_NO_PLACE: Final = "no free place of the region's size and shape"
_UNSEEN: Final = "the model sees no pixel of the region"
_SIZES: Final = ((0.0, 0.05), (0.05, 0.15), (0.15, 1.0))
"""Shares of the image by which regions without a free place are counted."""


class RegionProbe(ImageProbe):
    """The region itself filled, against as large a part of the image elsewhere and the mirrored one."""

    name = "region"
    columns: Mapping[str, str] = {
        **FILLED_COLUMNS,
        "share": "float64",
        "region_score": "float64",
        "places": "int32",
        "elsewhere_score": "float64",
        "mirror_score": "float64",
    }

    def __init__(self, options: ProbeOptions, most: int = PLACEMENTS) -> None:
        super().__init__(options)
        self._most = most

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"seed": self.options.seed, "placements": self._most, "fills": list(FILLS)}

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        """Forward passes of an image, at most: a region may have fewer free places."""
        return 1 + len(FILLS) * (1 + pairs * (2 + self._most))

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """The scores with the region filled, and on average with as large a part elsewhere."""
        filled = FilledImage.of(image, model)
        rows, pixels = filled.rows(), image.pixels[0]
        regions = masks_in_view(image.regions, image.frame, len(pixels))
        taken = np.asarray(regions.any(axis=0))
        holes = list[NDArray[np.bool_]]()
        where = []  # pair, number of its holes elsewhere, whether there is a mirrored one
        for place, region in enumerate(regions):
            for fill in range(len(FILLS)):
                rows[fill, place]["share"] = region.mean()
            if not region.any():
                continue
            name = f"{self.options.seed} {image.case_id} {image.findings[place]}"
            elsewhere, mirror = placements(region, taken, name, self._most), mirrored(region, taken)
            holes += [region, *elsewhere, *([] if mirror is None else [mirror])]
            where.append((place, len(elsewhere), mirror is not None))
        if not where:
            return list(rows.values())
        variants = (np.where(hole, fill, pixels)[None] for fill in filled.fills for hole in holes)
        said = model.ask_logits(variants, image.findings).probabilities.reshape(len(FILLS), len(holes), -1)
        for fill, scores in enumerate(said):
            start = 0
            for place, count, has_mirror in where:
                mine = scores[start : start + 1 + count + has_mirror, place]
                start += len(mine)
                row = rows[fill, place]
                row |= {"region_score": mine[0], "places": count}
                if count:
                    row["elsewhere_score"] = mine[1 : 1 + count].mean()
                if has_mirror:
                    row["mirror_score"] = mine[-1]
        return list(rows.values())

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """The drop by the region against that elsewhere under both fills (line 6 of the card)."""
        questions, notes, facts = list[Question](), list[str](), dict[str, Any]()
        for fill, held in by_fill(rows):
            notes.append(f"region, {fill_note(fill, held)}")
            unseen, placed = held["region_score"].isna(), held["places"] > 0
            more = {_UNSEEN: unseen, _NO_PLACE: ~unseen & ~placed}
            gain = held["elsewhere_score"] - held["region_score"]
            text = f"region, fill {fill}: drop of the region - drop elsewhere"
            questions.append(gap_question((f"region_{fill}", text), 6, held, gain, more))
            useful = useful_pairs(held)
            mirror = (held["mirror_score"] - held["region_score"])[useful]
            facts[f"region_{fill}"] = {
                name: mean_of(held[name][useful])
                for name in ("score", "region_score", "elsewhere_score", "mirror_score")
            } | {"mirror_difference": mean_of(mirror)}
            if np.isfinite(mirror).any():
                notes.append(
                    f"region, fill {fill}: drop of the region - drop of its mirror image is "
                    f"{mean_of(mirror):+.2f} on average of {np.isfinite(mirror).sum()} pairs"
                )
            if fill == FILLS[0] and not placed.all():
                sizes = [
                    f"{(~placed & here).sum()} of {here.sum()} of {100 * low:.0f} % to {100 * high:.0f} % of the image"
                    for low, high in _SIZES
                    for here in [(held["share"] > low) & (held["share"] <= high)]
                    if here.any()
                ]
                notes.append(f"region: regions without a free place: {', '.join(sizes)}")
        return Judgement(questions, notes, facts)
