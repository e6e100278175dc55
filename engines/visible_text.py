"""Text of files on its way to a terminal, a table, a page or a figure: signs that are no text are shown, not obeyed.

A terminal obeys control characters (CWE-150), a page and an editor obey marks of the reading direction. Names of
classes, cases, models and files can hold both. Other writing systems, with their joiners, stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

# Control characters, marks of direction, separators of lines and paragraphs, other signs without a width, tags, and
# halves of surrogate pairs, which stand for bytes of a file's name that are no text.
_HIDDEN: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e007f"
)
_SIGN: Final = re.compile(f"[{_HIDDEN}]")


def visible_text(text: str) -> str:
    """The text with hidden signs as Python writes them (`\\x1b`, `\\u202e`); line ends and tabs stay."""
    return _SIGN.sub(lambda sign: _number(sign[0]), text)


def visible_line(text: str) -> str:
    """As `visible_text`, on one line: line ends and tabs become spaces."""
    return visible_text(text.replace("\n", " ").replace("\t", " "))


def visible_json(text: str) -> str:
    """JSON of the same values whose text holds no hidden sign: JSON has escapes for them."""
    return _SIGN.sub(lambda sign: "".join(f"\\u{half:04x}" for half in _halves(sign[0])), text)


def _number(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _halves(sign: str) -> list[int]:
    data = sign.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[start : start + 2]) for start in range(0, len(data), 2)]
