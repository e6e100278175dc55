"""True zones of regions that are no boxes, sides that are stated, and whose sides a file names (docs/words.md §6)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.metrics_gpu.zones.thorax_places import FIXED
from xbench_fast.runtime.data.answers.answered import BoxFile
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.words.class_answers import NO_REMARK, Remark, WordsAnswer, WordState
from xbench_fast.runtime.data.answers.words.place_groups import Places
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.evaluation.reference.true_zones import TrueZones, region_boxes, side_check, stated_sides


class Blobs:
    """A region of two rectangles that is no union of boxes."""

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        mask = np.zeros((height, width), np.bool_)
        mask[height // 2 : height * 3 // 4, : width // 4] = mask[: height // 4, width * 3 // 4 :] = True
        return mask


def answer(*names: str, remarks: Remark = NO_REMARK) -> WordsAnswer:
    return WordsAnswer(WordState.ANSWERED if names else WordState.OTHER, Places(names), remarks)


def test_a_mask_has_the_boxes_of_its_parts() -> None:
    np.testing.assert_allclose(region_boxes(Blobs(), (448, 896)), [[336, 0, 448, 224], [0, 448, 112, 672]])
    assert len(region_boxes(Boxes(((5, 5, 5, 9), (1, 2, 3, 4), (900, 1, 950, 9))), (100, 100))) == 1


def test_zones_and_sides_of_every_pair_with_a_region() -> None:
    regions = {"Mass": Blobs(), "Nodule": Boxes(((600, 100, 700, 200),))}
    names = ("a1", "a2", "b")
    cases = [Case(name, Path(f"{name}.png"), {}, regions, "test", name[0], size=(896, 896)) for name in names]
    cases.append(Case("c", Path("c.png"), {}, {"Mass": regions["Mass"]}, "test", "c"))
    zones = TrueZones.of(Questions(cases, ("Mass", "Nodule")), lambda row: (FIXED, False))
    assert zones.cells.tolist() == [0b001110, 0b001000] * 3 + [0]  # the size of the last is not known
    assert zones.sides.tolist() == [3, 2] * 3 + [0]
    assert zones.usual.tolist() == [0b001110, 0b001000] * 3 + [0] and zones.patient_of.tolist()[:4] == [0] * 4


def test_only_stated_sides_of_the_lungs_count() -> None:
    places = {("RL",): 1, ("L.apex",): 2, ("RL", "LL"): 3, ("heart",): 0, (): 0}
    assert {names: stated_sides(answer(*names)) for names in places} == places
    assert stated_sides(answer("RL", "LL", remarks=Remark.SIDE_UNSTATED)) == 0


@pytest.mark.parametrize(("swapped", "right", "said"), [(6, 2, True), (6, 3, False), (5, 0, False), (10, 0, True)])
def test_the_sides_of_a_file_are_checked(swapped: int, right: int, said: bool) -> None:
    words = [answer("LL")] * swapped + [answer("RL")] * right + [answer()] * (10 - swapped - right)
    words += [answer("LL", "RL")] * 5  # pairs with two sides tell nothing
    file = cast(BoxFile, cast(Any, SimpleNamespace(path=Path("f.jsonl"), positives=SimpleNamespace(words=words))))
    sides = np.array([1] * 10 + [3] * 5)
    zones = TrueZones(sides, sides, sides, sides)
    assert bool(side_check(file, zones, np.ones(15, np.bool_))) == said
    assert not side_check(file, zones, np.zeros(15, np.bool_))
