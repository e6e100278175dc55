"""What a report writes of answers without maps, boxes and words, and of phrases: CSV files and parts of report.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .tables.markdown_csv import to_csv

if TYPE_CHECKING:
    from .box_scores import BoxScores
    from .phrase_tables import PhraseRow
    from .word_scores import WordScores


def answer_files(
    boxes: Sequence[BoxScores], words: Sequence[WordScores], phrases: Sequence[PhraseRow], *, raw: bool
) -> tuple[dict[str, str], dict[str, Any]]:
    """The texts of files by name, and the parts of report.json; nothing for what a report does not have."""
    texts: dict[str, str] = {}
    parts: dict[str, Any] = {}
    if boxes:
        from .box_tables import box_json, box_rows, published_rows

        texts |= {
            "boxes.csv": to_csv(box_rows(boxes), raw=raw),
            "published.csv": to_csv(published_rows(boxes), raw=raw),
        }
        parts["boxes"] = box_json(boxes)
    if words:
        from .word_tables import word_json, word_rows

        texts["words.csv"] = to_csv(word_rows(words), raw=raw)
        parts["words"] = word_json(words)
    if phrases:
        from .phrase_tables import phrase_json

        parts["phrases"] = phrase_json(phrases)
    return texts, parts
