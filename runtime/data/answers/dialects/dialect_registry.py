"""The dialects by name (docs/boxes.md §4); packages add some by the entry point group xbench_fast.dialects."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ....host.named_objects import NamedObjects
from ..bad_line import BadLine
from . import bins, brackets, grid_cells, json_lists, number_lists
from .parsed import Parsed
from .thoughts import Tags, answer_part, tag_of_boxes

JSON: Final = "json"
"""The dialect whose frame, order and key the line states."""

GRID: Final = "grid"
"""The dialect whose boxes are cells of a grid."""


@dataclass(frozen=True)
class Dialect:
    """How a family of models writes boxes.

    read: text -> boxes in the dialect's units; None for `JSON` and words. frame: of `frames.FRAMES`, empty for `JSON`.
    view: what a viewed frame is divided by; None: the line's `view`, which is then required. whole_pixels: truncated to
    whole numbers, as the model's own code does. tokens: special tokens of which an answer with boxes has one. words: an
    answer in words or codes, which `words.word_line` reads.
    """

    title: str
    read: Callable[[str], Parsed] | None
    frame: str
    view: tuple[int, int] | None = None
    whole_pixels: bool = False
    tokens: tuple[str, ...] = ()
    words: bool = False


_UNIT: Final = (1, 1)
DIALECTS: Final = NamedObjects(
    "dialect",
    Dialect,
    {
        "maira2": Dialect("MAIRA-2", bins.maira2, "crop", _UNIT, True, ("<box>", "<obj>")),
        "radvlm": Dialect("RadVLM", brackets.radvlm, "unit"),
        "chexagent2": Dialect("CheXagent-2", brackets.chexagent2, "percent"),
        "qwen2vl": Dialect("Qwen2-VL", brackets.qwen2vl, "permille"),
        "qwen25vl": Dialect("Qwen2.5-VL", json_lists.qwen25vl, "resized"),
        "qwen3vl": Dialect("Qwen3-VL", json_lists.qwen3vl, "permille"),
        "florence2": Dialect("Florence-2", bins.florence2, "unit", tokens=("<loc_",)),
        "paligemma": Dialect("PaliGemma", bins.paligemma, "unit", tokens=("<loc",)),
        "paligemma1024": Dialect("PaliGemma, divided by 1024", bins.paligemma1024, "unit", tokens=("<loc",)),
        "medgemma15": Dialect("MedGemma 1.5", json_lists.medgemma15, "pad", (1000, 1000)),
        "kosmos2": Dialect("Kosmos-2", bins.kosmos2, "unit", tokens=("<object>", "<phrase>", "<patch_index_")),
        "internvl": Dialect("InternVL", number_lists.internvl, "permille"),
        "deepseekvl2": Dialect("DeepSeek-VL2", number_lists.deepseekvl2, "999"),
        "medrega": Dialect("MedRegA", number_lists.medrega, "999"),
        GRID: Dialect("cells of a grid", grid_cells.grid, "unit"),
        JSON: Dialect("JSON of any model", None, ""),
        "text": Dialect("sentences", None, "thorax", words=True),
        "zones": Dialect("codes of zones", None, "thorax", words=True),
    },
)


def parse(dialect: str, text: str, *, key: str = "bbox_2d", order: str = "xyxy", thoughts: Tags = ()) -> Parsed:
    """The boxes of an answer, x1, y1, x2, y2 in the units of its frame.

    key, order: count for `JSON` only. thoughts: further tags of thoughts. Raises BadLine for a text that the dialect of
    a package cannot read.
    """
    answer, cut = answer_part(text, thoughts)
    read = DIALECTS[dialect].read
    if dialect not in DIALECTS.own:
        parsed = _read_by_package(dialect, read, answer)
    else:
        parsed = json_lists.any_json(answer, key, order) if read is None else read(answer)
    parsed.truncated |= cut
    parsed.tag = tag_of_boxes(answer) if parsed.boxes else ""
    return parsed


def _read_by_package(dialect: str, read: Callable[[str], Parsed] | None, answer: str) -> Parsed:
    try:
        parsed = read(answer) if read is not None else None
    except Exception as error:  # of a package's code: any can come
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(f"{type(error).__name__} ({error})".split())
        raise BadLine(
            "text", f"the dialect {dialect} raised {said} in {frame.filename}, line {frame.lineno}; correct it"
        ) from error
    if not isinstance(parsed, Parsed):
        raise BadLine("text", f"the dialect {dialect} gives no Parsed; correct the package that adds it")
    return parsed
