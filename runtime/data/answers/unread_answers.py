"""How many answers of a file could not be read, and what its texts may have lost, in sentences (docs/boxes.md §2)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .answered import MANY_MISSING, MANY_UNREAD_WORDS, BoxAnswers, BoxFile, State
from .bad_line import printable
from .dialects.dialect_registry import DIALECTS

_MOST: Final = 0.5
"""A share of answers that could not be read from which on a result is hardly of use."""

_SHOWN: Final = 80
_FEW: Final = 3
"""Answers below which silence of a model is no sign."""


@dataclass(frozen=True)
class UnreadAnswers:
    """count of `given` answers could not be read: a box was meant and none was kept, or the text ends before any box.
    first: the first of which a box was meant. cut: those that end before any box. words: of answers in words, of which
    none is read that is not English, or in which nothing is known."""

    count: int
    given: int
    first: str = ""
    cut: int = 0
    words: bool = False

    @property
    def share(self) -> float:
        return self.count / self.given if self.given else 0.0

    @property
    def most(self) -> bool:
        """Whether it is at least half of the answers."""
        return self.count > 0 and self.share >= _MOST

    @property
    def many(self) -> bool:
        """Whether the share is one that is said."""
        return self.share > (MANY_UNREAD_WORDS if self.words else MANY_MISSING)

    @property
    def sentence(self) -> str:
        """What is wrong and what to look at, without a full stop; empty if all could be read."""
        if not self.count:
            return ""
        problem = f"{self.count} of {self.given} answers ({self.share:.1%}) could not be read"
        first = f"; the first is {self.first}" if self.first else ""
        if self.cut:
            what = "answer" if self.words else "box"
            first += f"; {self.cut} end before any {what}, for which the model needs a larger limit of tokens"
        wrong = "the texts are" if self.words else "the dialect or the frame is"
        likely = "not English reports, or not of the dialect" if self.words else "wrong"
        wrong = f"; {wrong} most likely {likely}" if self.most and 2 * self.cut < self.count else ""
        return f"{problem}{first}{wrong}"


def unread_answers(
    file: BoxFile, positives: NDArray[np.bool_] | None = None, negatives: NDArray[np.bool_] | None = None
) -> UnreadAnswers:
    """Of the answers that the file has; pairs that it only leaves silent are none.

    positives, negatives: bool [P], the pairs that count, all by default.
    """
    parts = (_given(file.positives, positives), _given(file.negatives, negatives))
    meant = sum(int((states == State.UNPARSABLE).sum()) for states, _ in parts)
    # Words that deny draw nothing, and are read also where the text is cut behind them.
    silent = (State.NO_BOX_IN_TEXT,) if file.thorax is not None else (State.SILENT, State.NO_BOX_IN_TEXT)
    cut = sum(int((truncated & np.isin(states, silent)).sum()) for states, truncated in parts)
    first = file.first_unread if meant else ""
    given = sum(len(states) for states, _ in parts)
    return UnreadAnswers(meant + cut, given, first, cut, file.thorax is not None)


def text_warnings(file: BoxFile) -> list[str]:
    """Sentences, without a full stop, on special tokens that are absent and tags with boxes before and after them."""
    return [
        *(
            f"none of the {count} answers in the dialect {name} has a token of it "
            f"({', '.join(DIALECTS[name].tokens)}); a server that leaves special "
            "tokens out (skip_special_tokens) loses every box"
            for name, count in file.tokenless.items()
            if count >= _FEW
        ),
        *_tag_warnings(file),
    ]


def _tag_warnings(file: BoxFile) -> list[str]:
    return [
        f"{count} of {file.lines} answers have boxes before {tag} and after it, and all were read; if it ends a "
        f"thought, name its tags in the header: {json.dumps({'thoughts': [[tag.replace('/', ''), tag]]})}"
        for tag, count in file.tags.items()
    ]


def excerpt_of(text: str) -> str:
    """The beginning of an answer, in quotes and on one line."""
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"'{printable(' '.join(short.split()))}'"


def _given(answers: BoxAnswers, counted: NDArray[np.bool_] | None) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """State, and whether the text ends too early, of each answer that the file has."""
    given = answers.lines > 0
    given = given if counted is None else given & counted
    return answers.state[given], answers.truncated[given]
