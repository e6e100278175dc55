"""The study of errors in the page: its figure and its examples, as `study errors` left them in the run directory."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...engines.errors import RunError
from ..results.choices import DEFAULTS, Choices
from ..results.load_rows import StoredRun
from ..results.studied import basis_of, predicted_boxes, read_study, stale
from .figures.figure import Figure

_MOST: Final = 12  # examples in the page; all are in the folder of the study
_OTHERWISE: Final = ("protocol", "pairs", "constant", "tau_from")  # choices of a report that a study does not have


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


def studied_errors(run: StoredRun, file: Path, choices: Choices) -> StudiedErrors:
    """The study of this run's results that wrote `file`; one of others, or made otherwise than the report, is not
    shown."""
    folder = file.parent
    again = f"run xbench-fast study errors {shlex.quote(str(run.path))} {_draws(choices)}".rstrip() + " again"
    try:
        record = read_study(file)
        if why := _stale(run, record, choices):
            return StudiedErrors(remark=f"The study of errors in {folder} {why} and is not in the page; {again}.")
        if chosen_pairs := replace(DEFAULTS, **{name: getattr(choices, name) for name in _OTHERWISE}).told:
            why = f"counts all pairs by the protocol of the evaluation, and the report is {chosen_pairs[0]}"
            return StudiedErrors(remark=f"The study of errors in {folder} is not in the page, because it {why}.")
        figures = tuple(_figure(folder, told, record["checksums"]) for told in record["figures"])
        cases = [case for case in record["cases"] if case["overlay"] in record["checksums"]]
        chosen = _spread(cases)
        examples = tuple(
            Example(_words(case), _content(folder, case["overlay"], record["checksums"])) for case in chosen
        )
    except RunError as error:
        return StudiedErrors(remark=f"The study of errors is not in the page: {str(error).rstrip('.')}; {again}.")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"cannot be shown ({error!r:.200}); {again}"
        return StudiedErrors(remark=f"The study of errors in {folder} {told}.")
    left = f"The page has {len(chosen)} of {len(cases)} examples of errors; all are in {folder}."
    return StudiedErrors(figures, examples, left if len(chosen) < len(cases) else "")


def _stale(run: StoredRun, record: Mapping[str, Any], choices: Choices) -> str:
    """Why a study is not of what the report shows, as `stale` says it; empty if it is."""
    studied = {(each["model"], each["dataset"]): each for each in record["results"]}
    true_boxes = predicted_boxes(run, (dataset for _, dataset in studied))
    if not studied or not studied.keys() <= set(run.finished) or not set(true_boxes) <= studied.keys():
        return "is of earlier results"
    now = [basis_of(run, *name) for name in studied]
    draws = {"replicates": choices.replicates, "seed": choices.seed} if choices.replicates else {}
    return stale(record, now, draws)


def _draws(choices: Choices) -> str:
    """The options by which a study has the draws of the report, where these are not the default."""
    names = [name for name in ("replicates", "seed") if getattr(choices, name) != getattr(DEFAULTS, name)]
    return " ".join(f"--{name} {getattr(choices, name)}" for name in names if choices.replicates)


def _content(folder: Path, name: str, checksums: Mapping[str, str]) -> bytes:
    """A file of the study as it was written. Raises OSError, and RunError for another content."""
    content = (folder / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != checksums[name]:
        raise RunError(f"{folder / name} is damaged: its checksum does not match.")
    return content


def _figure(folder: Path, told: Mapping[str, str], checksums: Mapping[str, str]) -> Figure:
    names = (str(Path(told["name"]).with_suffix(suffix)) for suffix in (".svg", ".pdf", ".png"))
    svg, pdf, png = (_content(folder, name, checksums) for name in names)
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
