"""The lines that say what numbers are worth; they stand on every table that shows such a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["HONEST", "OPTIMISTIC", "stamp", "stamps"]

OPTIMISTIC = "optimistic: threshold chosen on the same data"
HONEST = "threshold chosen on one half of the patients, applied to the other, both ways"

_LINES: Mapping[str, str] = {
    "baseline": "a reference map that sees no image; Point of ones is the expected hit of a random pixel",
    "maps": "saliency maps from a folder; no model was run",
    "stand-in": "stand-in weights: numbers mean nothing",
    "demo": "demo model trained on generated phantoms; it never saw a radiograph",
}


def stamp(weights: str) -> str:
    """The line for a bundle's kind of weights, empty for published ones."""
    if weights == "published":
        return ""
    return _LINES.get(weights, f"weights of an unknown kind ('{weights}'): do not trust the numbers")


def stamps(models: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """One line per kind of stamp with the models it concerns; `models` are (name, weights)."""
    concerned: dict[str, list[str]] = {}
    for name, weights in models:
        line = stamp(weights)
        if line and name not in concerned.setdefault(line, []):
            concerned[line].append(name)
    return tuple(f"{', '.join(names)}: {line}" for line, names in concerned.items())
