"""The study of errors in the page: its figure and its examples, as `study errors` left them in the run directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..results.load import StoredRun
from .figures.figure import Figure

__all__ = ["Example", "StudiedErrors", "studied_errors"]

_MOST: Final = 12  # examples in the page; all are in the folder of the study


@dataclass(frozen=True)
class Example:
    """A picture of the study, PNG, and what it shows."""

    caption: str
    png: bytes


@dataclass(frozen=True)
class StudiedErrors:
    """What the page shows of the study; `remark`: why it shows less than there is, empty if it does not."""

    figures: tuple[Figure, ...] = ()
    examples: tuple[Example, ...] = ()
    remark: str = ""


def studied_errors(run: StoredRun, file: Path) -> StudiedErrors:
    """The study of this run's results that wrote `file`; one of earlier results is not shown."""
    folder = file.parent
    try:
        record = json.loads(file.read_bytes())
        keys = {(entry["model"], entry["dataset"]): entry.get("key") for entry in run.data["cells"].values()}
        studied = record["results"]
        if not studied or any(keys.get((each["model"], each["dataset"])) != each["key"] for each in studied):
            told = "is of earlier results and is not in the page"
            return StudiedErrors(remark=f"The study of errors in {folder} {told}; run xbench-fast study errors again.")
        figures = tuple(_figure(folder, told) for told in record["figures"])
        cases = [case for case in record["cases"] if case["overlay"] in record["files"]]
        chosen = _spread(cases)
        examples = tuple(Example(_words(case), (folder / case["overlay"]).read_bytes()) for case in chosen)
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = f"cannot be shown ({error!r:.200}); run xbench-fast study errors again"
        return StudiedErrors(remark=f"The study of errors in {folder} {told}.")
    left = f"The page has {len(chosen)} of {len(cases)} examples of errors; all are in {folder}."
    return StudiedErrors(figures, examples, left if len(chosen) < len(cases) else "")


def _figure(folder: Path, told: dict[str, str]) -> Figure:
    files = [(folder / told["name"]).with_suffix(suffix) for suffix in (".svg", ".pdf", ".png")]
    svg, pdf, png = (file.read_bytes() for file in files)
    return Figure(told["name"], told["title"], told["caption"], svg.decode(), pdf, png)


def _spread(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first example of each model, dataset and kind, one kind after the other, up to `_MOST`."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for case in cases:
        found.setdefault((case["kind"], case["model"], case["dataset"]), case)
    ranks: dict[str, int] = {}
    order: list[tuple[int, int, dict[str, Any]]] = []
    for (kind, _, _), case in found.items():
        ranks[kind] = ranks.get(kind, 0) + 1
        order.append((ranks[kind], len(order), case))
    return [case for _, _, case in sorted(order)[:_MOST]]


def _words(case: dict[str, Any]) -> str:
    kind = case["kind"].replace("_", " ")
    dice = f"Dice {100 * case['dice']:.1f}, {100 * case['dice_if_fixed']:.1f} if fixed"
    return f"{kind}: {case['model']} on {case['dataset']}, {case['class']}, {case['case']}; {dice}"
