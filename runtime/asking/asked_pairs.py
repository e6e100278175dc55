"""Which pairs of a dataset are asked, and in which words (docs/ask.md §1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from ..data.datasets.case import Case
from ..data.datasets.dataset import Dataset
from ..data.datasets.phrases.phrase_pairs import image_id, phrase_key

NEGATIVES: Final = ("none", "match", "all")
_COUNT: Final = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What is asked about an image. words: as they are asked; finding: of a line of the file, empty with a phrase."""

    words: str
    present: bool
    finding: str = ""
    phrase: str = ""


@dataclass(frozen=True, slots=True)
class AskedImage:
    """An image with its questions, in the order of the classes. case: what lines of the file call it."""

    case: str
    path: Path
    questions: tuple[AskedQuestion, ...]


@dataclass(frozen=True)
class PairSelection:
    """Which pairs are asked. findings: empty for all. limit, shuffle_seed: the first images, after shuffling.

    negatives: of `NEGATIVES`, or a number for each class. words: finding -> words. seed: of the choice of negatives.
    """

    findings: tuple[str, ...] = ()
    limit: int | None = None
    shuffle_seed: int | None = None
    negatives: str = "none"
    words: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


def plain_words(finding: str) -> str:
    """The words of a finding: underscores as spaces, in lower case unless it is all capitals."""
    text = finding.replace("_", " ").strip()
    return text if text.isupper() else text.lower()


def select(dataset: Dataset, cases: Sequence[Case], selection: PairSelection) -> list[AskedImage]:
    """The asked images in the dataset's order. Raises ConfigError for a selection that does not fit the dataset."""
    wanted = _findings(dataset.classes, selection)
    kept = _narrowed(cases, selection)
    if dataset.asks_phrases:
        _check_phrases(selection)
        return _phrases(kept, wanted)
    absent = _negatives(kept, wanted, selection)
    words = {name: selection.words.get(name, plain_words(name)) for name in wanted}
    images = []
    for case in kept:
        questions = tuple(
            AskedQuestion(words[name], name in case.regions, name)
            for name in wanted
            if name in case.regions or (case.case_id, name) in absent
        )
        if questions:
            images.append(AskedImage(case.case_id, case.image, questions))
    return images


def _findings(classes: Sequence[str], selection: PairSelection) -> tuple[str, ...]:
    chosen = [part.strip() for text in selection.findings for part in ([text] if text in classes else text.split(","))]
    for name in (*chosen, *selection.words):
        if name not in classes:
            raise ConfigError(f"The dataset has no finding '{name}': {did_you_mean(name, classes)}.")
    if selection.negatives not in NEGATIVES and not _COUNT.fullmatch(selection.negatives):
        raise ConfigError(f"--negatives {selection.negatives} is none of {', '.join(NEGATIVES)}, nor a number.")
    return tuple(name for name in classes if not chosen or name in chosen)


def _check_phrases(selection: PairSelection) -> None:
    """A phrase is asked in the words of the dataset, and of none is it known that it is absent."""
    if selection.negatives != "none":
        raise ConfigError("The dataset asks phrases, of which none is known to be absent; leave out --negatives.")
    if selection.words:
        raise ConfigError("The dataset asks phrases, which are sent as it spells them; leave out --words.")


def _narrowed(cases: Sequence[Case], selection: PairSelection) -> Sequence[Case]:
    """The cases of the first images, in the dataset's order."""
    images = list(dict.fromkeys(image_id(case.case_id) if case.phrases else case.case_id for case in cases))
    if selection.limit is None or selection.limit >= len(images):
        return cases
    if selection.shuffle_seed is not None:
        images.sort(key=lambda name: _drawn(selection.shuffle_seed, name))
    first = set(images[: selection.limit])
    return [case for case in cases if (image_id(case.case_id) if case.phrases else case.case_id) in first]


def _negatives(cases: Sequence[Case], wanted: Iterable[str], selection: PairSelection) -> set[tuple[str, str]]:
    """The absent pairs that are asked; an order of their own, so that more cases change the order of none."""
    how, chosen = selection.negatives, set[tuple[str, str]]()
    for name in wanted if how != "none" else ():
        absent = [case.case_id for case in cases if case.labels.get(name) == 0]
        absent.sort(key=lambda case: _drawn(selection.seed, case, name))
        present = sum(name in case.regions for case in cases)
        most = {"all": len(absent), "match": present}.get(how)
        chosen |= {(case, name) for case in absent[: int(how) if most is None else most]}
    return chosen


def _phrases(cases: Sequence[Case], wanted: Sequence[str]) -> list[AskedImage]:
    """Each phrase of an image once, whatever findings and cases share it."""
    images: dict[str, tuple[Path, dict[str, str]]] = {}
    for case in cases:
        _, phrases = images.setdefault(image_id(case.case_id), (case.image, {}))
        for finding in wanted:
            if finding in case.phrases and finding in case.regions:
                phrases.setdefault(phrase_key(case.phrases[finding]), case.phrases[finding])
    return [
        AskedImage(name, path, tuple(AskedQuestion(text, True, phrase=text) for text in phrases.values()))
        for name, (path, phrases) in images.items()
        if phrases
    ]


def _drawn(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
