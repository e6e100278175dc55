"""Text -> LaTeX: signs with a meaning escaped, a real minus, and how wide a text is at most."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

_ESCAPES: Final[Mapping[str, str]] = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\u200b": "{}",
    "\u2212": "$-$",
    "\u2013": "--",
    "\u2014": "---",
    "\u2018": "`",
    "\u2019": "'",
    "\u201c": "``",
    "\u201d": "''",
    "\u2026": r"\dots{}",
    "\u2020": r"$^\dagger$",
    "\u2021": r"$^\ddagger$",
    "\u2264": r"$\leq$",
    "\u2265": r"$\geq$",
    "\u2192": r"$\to$",
    "\u00a0": "~",
    "\u00b2": r"\textsuperscript{2}",
    "\u00d7": r"$\times$",
    "\u0393": r"$\Gamma$",
    "\u0394": r"$\Delta$",
    "\u03a9": r"$\Omega$",
    "\u03b1": r"$\alpha$",
    "\u03b2": r"$\beta$",
    "\u03b3": r"$\gamma$",
    "\u03b4": r"$\delta$",
    "\u03bb": r"$\lambda$",
    "\u03bc": r"$\mu$",
    "\u03c3": r"$\sigma$",
    "\u03c4": r"$\tau$",
}
_MINUS: Final = re.compile(r"(?<![\w.])-(?=\d)")
_THIN: Final = {
    **dict.fromkeys("ijlI.,;:!'`|[]- ", 0.39),
    **dict.fromkeys("tfrs()", 0.46),
    **dict.fromkeys("mw%+<>=", 0.93),
}
_THIN.update(dict.fromkeys("MW@", 1.15), **dict.fromkeys("$\u2212", 0.93))


def number_text(text: str) -> str:
    """The text of a cell, with a minus before a negative number."""
    return "--" if text == "-" else escaped(_MINUS.sub("\u2212", text))


def escaped(text: str) -> str:
    """The text for LaTeX: nothing in it is a command, and two hyphens make no dash. A sign that T1 fonts do not have
    stands as its number where the engine is pdfLaTeX."""
    done = []
    for sign in unicodedata.normalize("NFC", text).replace("--", "-\u200b-"):
        number = f"[U+{ord(sign):04X}]"
        if sign in _ESCAPES:
            done.append(_ESCAPES[sign])
        elif sign < "\x7f":
            done.append(sign if sign >= " " else " ")
        elif "\u00a1" <= sign <= "\u017e" and sign != "\u0149":
            done.append(sign)
        elif unicodedata.category(sign) in ("Zl", "Zp") or unicodedata.category(sign)[0] == "C":
            done.append(number)
        else:
            done.append(f"{{\\ifdefined\\Umathcode {sign}\\else {number}\\fi}}")
    return "".join(done)


def text_width(text: str, size: float) -> float:
    """Points that a text takes at most."""
    per = [
        _THIN.get(sign, 0.87 if sign.isupper() else 0.58 if sign < "\x7f" else 0.8 if sign < "\u0180" else 4.6)
        for sign in text
    ]
    return sum(per) * size
