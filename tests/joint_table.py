"""The tables of docs/joints.md: the features of an evaluation, and what must follow where two of them meet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Joint",
    "asked_joints",
    "box_joints",
    "command_joints",
    "family_joints",
    "features",
    "joints",
    "not_features",
    "outcomes",
    "study_joints",
    "trust_joints",
    "twice_joints",
    "word_joints",
]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "joints.md"


@dataclass(frozen=True)
class Joint:
    """One row: two features, what is run, the kind of outcome, and what must follow."""

    first: str
    second: str
    done: str
    outcome: str
    expected: str


def features() -> dict[str, list[str]]:
    """Feature -> its options of `eval`."""
    return {row[0]: re.findall(r"`(--[\w-]+)`", row[2]) for row in _rows("Features")}


def not_features() -> list[str]:
    """The options of `eval` that belong to no feature."""
    (line,) = re.findall(r"^Not features: (.*)$", PAGE.read_text(), re.MULTILINE)
    return re.findall(r"`(--[\w-]+)`", line)


def outcomes() -> list[str]:
    return [row[0] for row in _rows("Outcomes")]


def joints() -> list[Joint]:
    return [Joint(*row) for row in _rows("Pairs")]


def box_joints() -> list[Joint]:
    """Predicted boxes, phrases and published scorers with commands and with other models."""
    return [Joint(*row) for row in _rows("Boxes, phrases and published scorers")]


def asked_joints() -> list[Joint]:
    """Files that `ask` wrote with features of an evaluation."""
    return [Joint(*row) for row in _rows("Asked files")]


def word_joints() -> list[Joint]:
    """Answers in words with what meets their own rows and tables."""
    return [Joint(*row) for row in _rows("Answers in words")]


def trust_joints() -> list[Joint]:
    """The study of trust with the features whose results it reads."""
    return [Joint(*row) for row in _rows("Trust tests of a run")]


def twice_joints() -> list[Joint]:
    """One model under two names, evaluated before and after a change."""
    return [Joint(*row) for row in _rows("One model twice")]


def study_joints() -> list[Joint]:
    """The studies of subgroups and readers, the command trust and own metrics and packages, with features of one."""
    return [Joint(*row) for row in _rows("Subgroups, readers and probes")]


def command_joints() -> list[Joint]:
    """A bundle in INT8, and a supervised one, with each command."""
    return [
        Joint(kind, *row)
        for kind, section in (("int8", "INT8 and commands"), ("supervised", "Supervised models and commands"))
        for row in _rows(section)
    ]


def family_joints() -> list[Joint]:
    """Models of the families dual and classifier with what an export and an evaluation can do."""
    return [Joint(*row) for row in _rows("Families dual and classifier")]


def _rows(section: str) -> Iterator[list[str]]:
    """The cells of each row of the first table below a heading, without its head."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]
