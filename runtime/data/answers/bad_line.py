"""What is wrong with one line of a file of boxes, before the number of the line is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....engines.registry import did_you_mean

_LISTED = 40  # longer lists are not worth reading, only the nearest name


class BadLine(Exception):
    """A line that its writer must correct. key: the key it is about, empty for the whole line; text: what is wrong.

    name, valid: an unknown name and the valid ones, for a suggestion, which is searched only when it is shown.
    written: see `did_you_mean`.
    """

    def __init__(
        self,
        key: str,
        text: str,
        name: str = "",
        valid: Iterable[str] = (),
        written: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.key, self.text = key, text
        self._name, self._valid, self._written = name, valid, written

    @property
    def sentence(self) -> str:
        """What is wrong, with the nearest known name."""
        valid = list(dict.fromkeys(self._valid))
        if not valid:
            return self.text
        hint = did_you_mean(self._name, valid, self._written)
        if len(valid) > _LISTED:
            hint = hint.partition("known are")[0].strip() or f"none of the {len(valid)} known ones is similar"
        return f"{self.text}: {hint}"


def printable(text: str) -> str:
    """The text in one line: a file's keys and names can hold line breaks and codes that control a terminal."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)
