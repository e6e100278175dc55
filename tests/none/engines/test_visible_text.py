"""Hidden signs in a text become signs that are seen; writing systems stay."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.engines.visible_text import visible_json, visible_line, visible_text


def obeyed(text: str) -> list[str]:
    """The signs of a text that a terminal, a page or an editor obeys: by the tables of Unicode, not by the code."""
    joiners = "\u200c\u200d\u00ad"  # writing systems need them
    return [
        sign
        for sign in text
        if (unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") and sign not in "\n\t")
        or (unicodedata.bidirectional(sign) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
        or (unicodedata.category(sign) == "Cf" and sign not in joiners and not unicodedata.name(sign, "").startswith(
            ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND", "MUSICAL")))
        or sign in "\u200e\u200f\u061c"
    ]  # fmt: skip


@pytest.mark.parametrize("first", range(0, 0x110000, 0x22000))
def test_no_sign_of_unicode_passes_that_is_obeyed(first: int) -> None:
    every = "".join(map(chr, range(first, min(first + 0x22000, 0x110000))))
    assert obeyed(visible_text(every)) == [] and obeyed(visible_json(every)) == []


def test_hidden_signs_are_shown_as_python_writes_them() -> None:
    assert visible_text("\x1b[2JMass\x9b \u202eab\udce9\U000e0041\r\n") == (
        "\\x1b[2JMass\\x9b \\u202eab\\udce9\\U000e0041\\x0d\n"
    )
    assert visible_line("a\nb\tc\r") == "a b c\\x0d"


@pytest.mark.parametrize(
    "text", ["Épanchement pleural", "胸水", "नमस्ते", "می\u200cخواهم", "👩\u200d⚕️", "a\tb\n", "\\x1b"]
)
def test_writing_systems_stay(text: str) -> None:
    assert visible_text(text) == text


@given(st.recursive(st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_values(value: object) -> None:
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value and obeyed(text) == []
