"""What each dialect is asked: prompt, limit of tokens, preparation of the image, tokens (docs/ask.md §2).

Prompts are those of the models' authors, word for word; those of `grid`, `json`, `text` and `zones` are ours.
`{words}` stands for the finding or the phrase.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

IMAGE: Final = "{image}"
"""The place of the image among the parts of a message."""

WORDS: Final = "{words}"


@dataclass(frozen=True)
class AskedDialect:
    """How the models of a dialect are asked.

    parts: texts and `IMAGE`, in the order of the user's message; phrase_parts: for a phrase, where it differs; system:
    the system prompt, None for none. preparation: as in `sent_images`. special: boxes are special tokens, which a
    server must be told to keep; tokens: of which an answer with boxes has one. factor: an image of w x h pixels costs
    w h / factor^2 tokens, 0: every image costs the same, None: no rule is known. official: the authors' own sampling.
    lower_phrase: a phrase is sent in lower case. served: whether a known server has the models.
    """

    parts: tuple[str, ...]
    max_tokens: int
    preparation: str
    phrase_parts: tuple[str, ...] = ()
    system: str | None = None
    special: bool = False
    tokens: tuple[str, ...] = ()
    factor: int | None = None
    official: Mapping[str, Any] | None = None
    lower_phrase: bool = False
    served: bool = True

    def parts_of(self, *, phrase: bool) -> tuple[str, ...]:
        """The parts for a phrase, or for a finding."""
        return self.phrase_parts if phrase and self.phrase_parts else self.parts

    @property
    def prompt_sha256(self) -> str:
        """The SHA-256 of the system prompt and all parts."""
        text = "\n".join([self.system or "", *self.parts, *self.phrase_parts])
        return hashlib.sha256(text.encode()).hexdigest()

    def with_prompt(self, prompt: str) -> AskedDialect:
        """With a prompt of the user at the place of the official one: before the image where that is before it."""
        first = self.parts[0] != IMAGE and WORDS in self.parts[0]
        parts = (prompt, IMAGE) if first else (IMAGE, prompt)
        return AskedDialect(**{**vars(self), "parts": parts, "phrase_parts": (), "lower_phrase": False})


def _about(text: str, max_tokens: int, preparation: str, phrase: str = "", **rest: Any) -> AskedDialect:
    """A dialect whose message is the image and a text."""
    return AskedDialect((IMAGE, text), max_tokens, preparation, (IMAGE, phrase) if phrase else (), **rest)


_MEDGEMMA: Final = (
    "Instructions:\nThe following user query will require outputting bounding boxes. The format of bounding boxes "
    "coordinates is [y0, x0, y1, x1] where (y0, x0) must be top-left corner and (y1, x1) the bottom-right corner. This "
    "implies that x0 < x1 and y0 < y1. Always normalize the x and y coordinates the range [0, 1000], meaning that a "
    "bounding box starting at 15% of the image width would be associated with an x coordinate of 150. You MUST output "
    "a single parseable json list of objects enclosed into ```json...``` brackets, for instance "
    '```json[{"box_2d": [800, 3, 840, 471], "label": "car"}, {"box_2d": [400, 22, 600, 73], "label": "dog"}]``` is a '
    'valid output. Now answer to the user query.\n\nRemember "left" refers to the patient\'s left side where the heart '
    "is and sometimes underneath an L in the upper right corner of the image.\n\nQuery:\nWhere is the {words}? Don't "
    'give a final answer without reasoning. Output the final answer in the format "Final Answer: X" where X is a JSON '
    'list of objects. The object needs a "box_2d" and "label" key. Answer:'
)
_MEDREGA: Final = (
    "You are a helpful medical assistant. Your task is object detection. You are required to find all the regions of "
    "the given objects. The region is represented in the form of bounding box, [x1, y1, x2, y2], with integers ranging "
    "from 0 to 999. These values correspond to the top left x, top left y, bottom right x, and bottom right y. For "
    "each object, please utilize this format to represent the region with its bounding box: "
    '"<ref>object</ref><box>[[x1, y1, x2, y2]]</box>". '
)
_JSON: Final = (
    "Locate every region of {words} in this chest X-ray. Report the bounding boxes as a JSON list such as "
    '[{"bbox_2d": [x1, y1, x2, y2], "label": "{words}"}], with x and y as thousandths of the width and height of the '
    "image, x to the right and y down from the upper left corner. If there is none, report []."
)
_GRID: Final = (
    "The image is divided into a grid of 8 columns, A to H from left to right, and 8 rows, 1 to 8 from top to bottom. "
    'Which cells contain {words}? End with one line: "Answer: " and the cells separated by commas, the most certain '
    'first, such as "Answer: B3, B4", or "Answer: none".'
)
_TEXT: Final = (
    "Is there {words} in this chest X-ray? Answer in one sentence. If there is, say where: on the patient's right or "
    "left side or on both, and in the upper, mid or lower zone of the lung."
)
_ZONES: Final = (
    "Which zones of the lungs show {words} in this chest X-ray? The zones are RUZ, RMZ, RLZ, LUZ, LMZ and LLZ: right "
    "or left of the patient; upper, mid or lower. Answer with codes alone, separated by commas, or with none."
)
_QWEN3: Final = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "presence_penalty": 1.5, "max_tokens": 32768}
_DEEPSEEK: Final = {"temperature": 0.4, "top_p": 0.9, "repetition_penalty": 1.1}
_REF: Final = ("<ref>", "<box>")
_LOC: Final = ("<loc",)

ASKED_DIALECTS: Final = MappingProxyType(
    {
        "maira2": AskedDialect(
            (
                "Given the current frontal image",
                IMAGE,
                " Repeat the following finding as a grounded phrase with bounding boxes indicating all locations where "
                "it can be seen in the given chest X-ray image. Finding: {words}",
            ),
            500,
            "short518",
            system="You are an expert radiology assistant tasked with interpreting a chest X-ray study.",
            special=True,
            tokens=("<box>", "<obj>"),
            served=False,
        ),
        "radvlm": AskedDialect(
            ("Where is the {words} located in this Chest X-ray?", IMAGE),
            1500,
            "long2304",
            ("Please locate the following sentence: {words}", IMAGE),
            lower_phrase=True,
        ),
        "chexagent2": _about(
            "Locate areas in the chest X-ray where {words} are present, using bounding box coordinates",
            512,
            "as it is",
            "Please locate the following phrase: {words}",
            system="You are a helpful assistant.",
            special=True,
            tokens=("<|ref|>", "<|box|>"),
            served=False,
        ),
        "qwen2vl": _about(
            "Detect the bounding box of {words}.",
            512,
            "smart28",
            special=True,
            tokens=("<|object_ref_start|>", "<|box_start|>"),
            factor=28,
        ),
        "qwen25vl": _about(
            "Locate {words} in this image and output the bbox coordinates in JSON format.", 1024, "smart28", factor=28
        ),
        "qwen3vl": _about(
            "Locate every instance that belongs to the following categories: '{words}'. Report bbox coordinates in "
            "JSON format.",
            1024,
            "smart32",
            factor=32,
            official=_QWEN3,
        ),
        "florence2": _about(
            "Locate {words} in the image.",
            1024,
            "squash768",
            "Locate the phrases in the caption: {words}",
            special=True,
            tokens=("<loc_",),
        ),
        "paligemma": _about("detect {words}\n", 256, "squash448", special=True, tokens=_LOC, factor=0),
        "paligemma1024": _about("detect {words}\n", 256, "squash448", special=True, tokens=_LOC, factor=0),
        "medgemma15": _about(_MEDGEMMA, 2000, "pad896", factor=0),
        "kosmos2": _about(
            "<grounding><phrase> {words}</phrase>",
            256,
            "squash224",
            special=True,
            tokens=("<object>", "<phrase>", "<patch_index_"),
            served=False,
        ),
        "internvl": _about(
            "Please provide the bounding box coordinate of the region this sentence describes: <ref>{words}</ref>",
            512,
            "long1792",
            special=True,
            tokens=_REF,
        ),
        "deepseekvl2": _about(
            "<|ref|>{words}<|/ref|>.",
            512,
            "long1152",
            special=True,
            tokens=("<|ref|>", "<|det|>"),
            official=_DEEPSEEK,
        ),
        "medrega": AskedDialect(
            (_MEDREGA, IMAGE, "\nPlease locate <ref>{words}</ref> in this chest X-ray."),
            400,
            "squash448",
            special=True,
            tokens=_REF,
            served=False,
        ),
        "grid": _about(_GRID, 512, "long1024"),
        "json": _about(_JSON, 1024, "long1024"),
        "text": _about(_TEXT, 512, "long1024"),
        "zones": _about(_ZONES, 512, "long1024"),
    }
)
"""The dialects that can be asked, by name."""
