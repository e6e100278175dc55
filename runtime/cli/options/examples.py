"""Examples of commands, which stand below the options in their --help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "eval": (
        "xbench-fast eval --all --bundles bundles/ --data rsna=/data/rsna --out run/",
        "xbench-fast eval --model kad-224 --model baseline:ones --dataset rsna --config xbench.toml",
        "xbench-fast eval --model boxes:answers.jsonl --data chestxdet10=/data/ChestX-Det10",
        "xbench-fast eval --model maps:gradcam/ --data mine=/data/mine --data-option mine.reader=coco",
    ),
    "report": (
        "xbench-fast report run/",
        "xbench-fast report run/ --model kad-224 --model paper:kad --column point --column dice --full",
        "xbench-fast report run/ --protocol paper --out report-of-the-paper/",
    ),
    "compare": (
        "xbench-fast compare run/ run-int8/ --fail-if 'flipped_hits > 0'",
        "xbench-fast compare run/ --model kad-224 --model kad-512 --classes",
    ),
    "study": (
        "xbench-fast study thresholds run/",
        "xbench-fast study failures run/ --model kad-224 --top 5",
        "xbench-fast study prompts run/ run-with-own-prompts/",
    ),
}
"""Command -> lines for a shell."""


def examples(command: str, after: str = "") -> str:
    """The end of the help of a command, whose lines click does not wrap; after: a paragraph that follows."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES[command])
    return f"\b\nExamples:\n{lines}" + (f"\n\n{after}" if after else "")
