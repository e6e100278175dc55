"""Names of models, datasets and prompt sets -> keys and names of files, different ones for different names.

A name keeps its form wherever that is unambiguous. Else a digest of eight digits follows it.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

_SEPARATOR: Final = "--"
# A file system takes 255 bytes; the rest is for a content key, an ending and the marks of a draft.
_LONGEST: Final = 180


def joined(*names: str) -> str:
    """`<name>--<name>`, a key of these names alone; it ends in a digest where a name makes the separators ambiguous."""
    text = _SEPARATOR.join(names)
    # Overlapping places count, as "k---x" can be "k-" with "x" or "k" with "-x".
    separators = len(re.findall(f"(?={_SEPARATOR})", text))
    return text if separators == len(names) - 1 else f"{text}-{_digest(*names)}"


def plain_stem(*names: str) -> str:
    """The names as the readable part of a file's name, for a file whose name also holds a key of its content.

    Other names can have the same stem.
    """
    stem = re.sub(r"[^A-Za-z0-9_.+-]", "_", _SEPARATOR.join(names))[:_LONGEST]
    return re.sub(r"^(\.|$)", "_", stem)


def unique_stem(name: str) -> str:
    """The stem of a file that no other name can have; letter case does not matter."""
    stem = plain_stem(name)
    return stem if stem == name.lower() else f"{stem}-{_digest(name)}"


def unique_stems(names: Sequence[str]) -> list[str]:
    """A stem for each of `names`, for files that are written together; letter case does not matter.

    Only names that would have one stem get a digest.
    """
    return _distinct([plain_stem(name) for name in names], names)


def label_stems(names: Sequence[str]) -> list[str]:
    """As `unique_stems`, in lower-case letters, digits and single hyphens alone, as labels of LaTeX need."""
    plain = (unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower() for name in names)
    return _distinct([re.sub(r"[^a-z0-9]+", "-", text)[:_LONGEST].strip("-") or "table" for text in plain], names)


def _distinct(stems: Sequence[str], names: Sequence[str]) -> list[str]:
    """The stems; those that several names have end in a digest."""
    often, seen = Counter(stem.lower() for stem in stems), Counter[str]()
    unique = []
    for stem, name in zip(stems, names, strict=True):
        unique.append(stem if often[stem.lower()] == 1 else f"{stem}-{_digest(name, str(seen[name]))}")
        seen[name] += 1
    return unique if len({stem.lower() for stem in unique}) == len(unique) else _distinct(unique, names)


def _digest(*names: str) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]
