"""The options of `ask`, each declared once: name, type, default and help (docs/ask.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from ..host.declaring import Limits, described
from ..host.options import Count, Natural

ServerName = Literal["auto", "vllm", "sglang", "llamacpp", "ollama", "openai", "plain"]
Order = Literal["xyxy", "yxyx", "xywh", "cxcywh"]
SamplingName = Literal["greedy", "official"]


@dataclass(frozen=True)
class AskOptions:
    """How a dataset is asked. The help of each option says what it is."""

    findings: tuple[str, ...] = field(
        default=(),
        metadata=described("Finding to ask, or several with commas.", shown="all of the dataset", metavar="NAMES"),
    )
    limit: Count | None = field(
        default=None, metadata=described("Number of images to ask about, from the dataset's first.", shown="all")
    )
    shuffle_seed: Natural | None = field(
        default=None,
        metadata=described("Seed of an order of the images from which --limit takes the first.", shown="none"),
    )
    negatives: str = field(
        default="none",
        metadata=described(
            "Absent findings to ask too: none, match (as many as the finding has positives), all, or a number for each "
            "finding.",
            metavar="HOW",
        ),
    )
    words: Path | None = field(
        default=None, metadata=described("JSON file {finding: words} of other words for findings.", metavar="FILE")
    )
    prompt_file: Path | None = field(
        default=None,
        metadata=described(
            "Text file with a prompt that has {words} once, in place of the official one.", metavar="FILE"
        ),
    )
    attempts: Count = field(
        default=1,
        metadata=described("Attempts for each pair, each in a file of its own, with seeds that follow one another."),
    )
    temperature: Annotated[float, Limits(0, 2)] = field(default=0.0, metadata=described("Temperature of the sampling."))
    seed: Natural = field(default=0, metadata=described("Seed of the first attempt, and of the choice of negatives."))
    sampling: SamplingName = field(
        default="greedy",
        metadata=described("Sampling: greedy, or official for what the authors of qwen3vl and deepseekvl2 recommend."),
    )
    max_tokens: Count | None = field(
        default=None, metadata=described("Largest number of tokens of an answer.", shown="the dialect's")
    )
    set: tuple[str, ...] = field(
        default=(), metadata=described("Field of the request and its value as JSON.", metavar="KEY=JSON")
    )
    unset: tuple[str, ...] = field(
        default=(), metadata=described("Field of the request that is left out.", metavar="KEY")
    )
    guided: Path | None = field(
        default=None,
        metadata=described("JSON schema that answers must follow. It must accept an empty list.", metavar="FILE"),
    )
    frame: str | None = field(
        default=None,
        metadata=described("Frame of the answers, for the dialect json: e.g. permille.", shown="none", metavar="NAME"),
    )
    order: Order = field(default="xyxy", metadata=described("Order of the numbers of a box, for the dialect json."))
    key: str = field(default="bbox_2d", metadata=described("Key of the boxes, for the dialect json.", metavar="NAME"))
    view: str | None = field(
        default=None,
        metadata=described(
            "Size of the image that is sent: WIDTHxHEIGHT, or the name of a rule such as smart28 or long1024.",
            shown="the dialect's",
            metavar="SIZE",
        ),
    )
    encoding: str = field(
        default="png", metadata=described("File format of the sent image: png, or jpeg:QUALITY.", metavar="FORMAT")
    )
    view_unproved: bool = field(
        default=False, metadata=described("Go on if the number of tokens says that the server resizes images.")
    )
    grid_lines: bool = field(default=True, metadata=described("Draw the grid of the dialect grid into the image."))
    server: ServerName = field(
        default="auto", metadata=described("Kind of the server, which decides the fields of a request.")
    )
    concurrency: Annotated[int, Limits(1, 256)] = field(
        default=8, metadata=described("Most requests under way at once.")
    )
    timeout: Annotated[float, Limits(0.1, 1_000_000)] = field(
        default=600.0, metadata=described("Seconds for one try of a request.")
    )
    retries: Count = field(default=8, metadata=described("Tries of a request before its pair counts as failed."))
    go_on: bool = field(
        default=False, metadata=described("Go on if the first answers have none of the dialect's special tokens.")
    )
    model_alias: tuple[str, ...] = field(
        default=(), metadata=described("Other name by which the server may call the model in answers.", metavar="ID")
    )
    allow_host: tuple[str, ...] = field(
        default=(),
        metadata=described(
            "Host outside this machine that images may be sent to; =DATASET is needed for data under a use agreement.",
            metavar="HOST[:PORT][=DATASET]",
        ),
    )
    key_env: str | None = field(
        default=None,
        metadata=described("Environment variable that holds the API key.", shown="none", metavar="NAME"),
    )
    ca: Path | None = field(
        default=None, metadata=described("Certificate file of one more authority for https.", metavar="FILE")
    )
    prices: str | None = field(
        default=None,
        metadata=described(
            "Prices of a million prompt tokens and a million answer tokens, for the cost.",
            shown="none",
            metavar="PROMPT,ANSWER",
        ),
    )
    dry_run: bool = field(default=False, metadata=described("Print the plan and send nothing."))
    write: bool = field(
        default=False, metadata=described("Write the file from the answers that are kept, and send nothing.")
    )
    recheck: bool = field(default=False, metadata=described("Read every image file again, even if it did not change."))
