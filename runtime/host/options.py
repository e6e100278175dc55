"""The options of an evaluation, each declared once: name, type, default and help.

The options of the command line, the keys of xbench.toml and docs/reference.md are made from these fields. The keywords
of the Python interface are written out in `api.options`, for type checkers; a test holds them equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from ...engines.toml_values import Text
from .declaring import described

MAX_THREADS = 1024
"""More threads than this are a mistake of typing."""

Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=MAX_THREADS)]
DecoderName = Literal["auto", "cpu", "dali"]
Missing = Literal["count", "leave-out"]
BadLines = Literal["stop", "count"]
Thorax = Literal["fixed", "image"]
UncertainWords = Literal["present", "absent"]
TileScore = Literal["whole", "largest"]


@dataclass(frozen=True)
class EvalConfig:
    """Options of an evaluation that are keys of the table `[eval]` too."""

    engine: Text = field(
        default="auto",
        metadata=described(
            "Engine: tensorrt, tensorrt-rtx, torch, onnxruntime-cuda, onnxruntime-cpu, or auto for the first of these "
            "that runs here. auto chooses tensorrt-rtx only on the GPUs that its documentation names, and torch only "
            "with CUDA.",
            metavar="NAME",
        ),
    )
    batch: Count | None = field(
        default=None,
        metadata=described(
            "Images per batch. A bundle gets at most the batch that its export compared.",
            shown="256 on a GPU, 16 on a CPU",
        ),
    )
    threads: Threads | None = field(
        default=None,
        metadata=described("Threads of the engine and of image decoding. On a cluster: per worker.", shown="all cores"),
    )
    out: Path = field(
        default=Path("run"), metadata=described("Run directory. An existing one is resumed.", metavar="DIR")
    )
    protocol: Text = field(
        default="default",
        metadata=described(
            "Evaluation protocol: default, paper, chexlocalize, medklip, mavl or biovil. A protocol defines how maps "
            "are thresholded and scored, following one published evaluation.",
            metavar="NAME",
        ),
    )
    gpu: Natural | None = field(
        default=None,
        metadata=described(
            "Number of the GPU to run on, from 0. If CUDA_VISIBLE_DEVICES is set, only the GPUs in it are counted.",
            shown="0",
        ),
    )
    build: bool = field(
        default=True, metadata=described("Build a TensorRT plan where there is none. This takes minutes, once.")
    )
    tf32: bool = field(
        default=False, metadata=described("Let float32 matrix products on a GPU round their inputs to TF32.")
    )
    prompts: tuple[Text, ...] = field(
        default=(),
        metadata=described(
            "Prompt set to ask on every dataset. Each one gives a result of its own, of the model MODEL@SET; several "
            "are asked in one pass over the images.",
            shown="the dataset's",
            metavar="SET",
        ),
    )
    tiles: Text | None = field(
        default=None,
        metadata=described(
            "Evaluate every image in tiles of a higher resolution too, such as 2x2@0.25: rows x columns, and the share "
            "that a tile has in common with the next. The maps of the tiles are stitched. This gives a result of the "
            "model MODEL+TILES in place of the plain one.",
            shown="none",
            metavar="GRID",
        ),
    )
    tile_score: TileScore = field(
        default="whole",
        metadata=described("Score of an image in tiles: of the whole image, or the largest of it and its tiles."),
    )


@dataclass(frozen=True)
class EvaluationOptions(EvalConfig):
    """All options of an evaluation; those declared here are no keys of `[eval]`. `bundles`, `cache` and `cache_limit`
    are keys at the top of xbench.toml."""

    limit: Count | None = field(
        default=None, metadata=described("Number of cases of each dataset to evaluate, from its first.", shown="all")
    )
    chunk: Count = field(
        default=512,
        metadata=described(
            "Cases per part file. On a GPU this is rounded up to whole batches. An interrupted run repeats at most one "
            "part file."
        ),
    )
    verify: bool = field(
        default=False,
        metadata=described(
            "Read every image file again before its result or prepared image is reused. Otherwise only files whose "
            "size, time or inode number changed are read."
        ),
    )
    cache: Path | None = field(
        default=None,
        metadata=described("Folder of prepared images.", shown="prepared/ in the run directory", metavar="DIR"),
    )
    cache_limit: str | None = field(
        default=None,
        metadata=described(
            "Maximum size of the image cache, e.g. 20GB. Least recently used images are deleted first.",
            shown="no limit",
            metavar="SIZE",
        ),
    )
    decoder: DecoderName = field(
        default="auto",
        metadata=described(
            "Image decoder. cpu (chosen by auto) is exact; dali runs on the GPU and its pixels differ slightly."
        ),
    )
    missing: Missing = field(
        default="count",
        metadata=described(
            "What to do with a pair that has no line in a box file: count it as an answer without boxes, or leave it "
            "out. Every table says which."
        ),
    )
    bad_lines: BadLines = field(
        default="stop",
        metadata=described(
            "What to do with an invalid line in a box file: stop, or count it and treat the pair as missing."
        ),
    )
    coco: Path | None = field(
        default=None,
        metadata=described(
            "COCO file with the images and categories of a box file in the COCO results format.", metavar="FILE"
        ),
    )
    mapping: Path | None = field(
        default=None,
        metadata=described(
            "JSON file {text: finding or phrase} for a box file that holds RadFact's grounded phrases.", metavar="FILE"
        ),
    )
    thorax: Thorax = field(
        default="fixed",
        metadata=described(
            "Frame on which the places of answers in words are drawn: fixed, the usual outline of the lungs, or image."
        ),
    )
    lungs: Path | None = field(
        default=None,
        metadata=described(
            "Masks of the lungs, which give that frame for each image: a CSV of CheXmask, or a folder of CXAS's files, "
            "DICOM Segmentations, or pairs of PNG files.",
            metavar="PATH",
        ),
    )
    uncertain: UncertainWords = field(
        default="present", metadata=described("Count uncertain statements of answers in words as present or absent.")
    )
    bundles: tuple[Path, ...] = field(
        default=(), metadata=described("Folder that holds bundles, or a bundle.", metavar="DIR")
    )


FURTHER_OPTIONS: Final = tuple(
    item.name for item in fields(EvaluationOptions) if item.name not in EvalConfig.__dataclass_fields__
)
"""The options of an evaluation that are no keys of `[eval]`."""


def words_of(declared: type) -> dict[str, tuple[str, ...]]:
    """Option -> the words that it can be, for the options of a dataclass that are one of a few words."""
    return {
        name: get_args(part)
        for name, hint in get_type_hints(declared).items()
        for part in (hint, *get_args(hint))
        if get_origin(part) is Literal
    }
