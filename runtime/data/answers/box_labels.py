"""Whether a model's label of a box names another finding than the one asked (docs/boxes.md §2)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ..datasets.source.spelling import spelling_key

_SPELLINGS: Final = {
    "effusion": ("effusion", "hydrothorax"),
    "pneumothorax": ("pneumothorax", "pneumothoraces"),
    "consolidation": ("consolidation", "consolidated"),
    "pneumonia": ("pneumonia",),
    "atelectasis": ("atelectasis", "atelectases", "atelectatic"),
    "cardiomegaly": ("cardiomegaly", "enlarged heart", "enlarged cardiac silhouette", "cardiac enlargement"),
    "edema": ("edema", "oedema"),
    "emphysema": ("emphysema", "emphysematous"),
    "fibrosis": ("fibrosis", "fibrotic"),
    "infiltration": ("infiltration", "infiltrate"),
    "nodule": ("nodule",),
    "mass": ("mass", "masses", "tumor", "tumour"),
    "fracture": ("fracture",),
    "calcification": ("calcification",),
    "pleural thickening": ("pleural thickening",),
    "hernia": ("hernia",),
    "tuberculosis": ("tuberculosis",),
    "aortic enlargement": ("aortic enlargement", "enlarged aorta"),
}
"""Findings that chest radiographs are labelled with -> how models write them, so that a dataset of few classes knows
the others too. Words of no finding, such as opacity or lesion, are not among them."""

_WORD: Final = re.compile(r"[^\W_]+")


def names_another(label: str, asked: Iterable[str], classes: tuple[str, ...]) -> bool:
    """Whether a label names a class of the dataset or another known finding, and none of `asked`.

    asked: the finding, and the phrase where one was asked. Case, blanks, hyphens and a plural do not count, and a label
    that is part of what was asked, or the reverse, is that: "effusion" of "Pleural_Effusion".
    """
    words = _words(label)
    wanted = [_words(words_asked) for words_asked in asked]
    if not words or any(words <= words_asked or words_asked <= words for words_asked in wanted if words_asked):
        return False
    meant = _findings(label)
    if meant & frozenset().union(*map(_findings, asked)):
        return False
    return bool(meant) or any(_words(name) <= words for name in classes)


@lru_cache(maxsize=4096)
def _words(name: str) -> frozenset[str]:
    words = _WORD.findall(spelling_key(name))
    return frozenset(word[:-1] if word.endswith("s") and not word.endswith(("ss", "is")) else word for word in words)


@lru_cache(maxsize=4096)
def _findings(name: str) -> frozenset[str]:
    words = _words(name)
    return frozenset(key for key, terms in _SPELLINGS.items() if any(_words(term) <= words for term in terms))
