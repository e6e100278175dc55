"""The notes below tables: thresholds, floors, intervals, ranking and the paper's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...metrics_gpu.grounding.protocols import NOT_EQUALISED
from ...metrics_gpu.statistics.bootstrap import macro_mean
from ...metrics_gpu.statistics.intervals import LEAST, MANY_PATIENTS, SMALL
from ..host.protocols import PROTOCOLS, find_protocol
from ..results.choices import too_few_replicates
from ..results.numbers.cell_values import CellValues
from ..results.numbers.run_numbers import Results
from ..results.selected_pairs import unnamed_lines
from .paper.paper_numbers import MARK, PRINTED_MARK, Printed
from .tables.metric_names import CROSS_FITTED, IN_SAMPLE, heading, percent
from .tables.stamps import UNOFFICIAL_PROMPTS

FLOOR = "all-ones"
PRINTED_NOTE = (
    f"{PRINTED_MARK} as XBench (arXiv 2510.19599) prints it, on its own pairs: not evaluated here and not ranked"
)
"""What the rows are that the paper prints."""

_LABELS = {"positives": "with", "negatives": "without"}
_BESIDE = ("dice_best", "floor_dice")  # the numbers that stand beside a cross-fitted one
_SEARCHES = {
    "per_class": "the best threshold of each class of a dataset, by mean Dice",
    "per_dataset": "one threshold for all classes of a dataset, the best for the mean of their Dice",
    "per_model": "one threshold for all datasets of a model, the best for the mean of their Dice",
    "per_image": "every pair at the threshold that is best for it, which needs the true region",
    "cross_fit": "the threshold of each class",
}


def in_sample(cells: Sequence[CellValues]) -> bool:
    """Whether any best threshold was chosen on the pairs it is scored on."""
    return any(cell.grounding.options.label == "in_sample" for cell in cells)


def search_of(cells: Sequence[CellValues]) -> str:
    """How best thresholds were searched, in words; all searches that occur."""
    units = dict.fromkeys(cell.grounding.options.unit for cell in cells)
    return "; ".join(_SEARCHES[unit] for unit in units) or _SEARCHES["per_class"]


def best_notes(cells: Sequence[CellValues]) -> tuple[str, ...]:
    """What the stars and the cross-fitted columns mean."""
    fitted = f"cross-fitted: {CROSS_FITTED}"
    if not in_sample(cells):
        return (f"Dice and IoU: {search_of(cells)} ({CROSS_FITTED})", *_unfitted_notes(cells))
    # An interval is biased if every replicate chooses a new threshold; the one threshold of a model is kept.
    leans = any(cell.resampled and cell.grounding.options.unit != "per_model" for cell in cells)
    more = "; with few pairs its interval is biased upwards" if leans else ""
    return (f"* {IN_SAMPLE}: {search_of(cells)}{more}", fitted, *_unfitted_notes(cells))


def _unfitted_notes(cells: Sequence[CellValues]) -> Iterator[str]:
    """Cross-fitted means that leave out classes, with the other numbers over the same classes."""
    for cell in cells:
        if cell.weights != "boxes" and (left := cell.cross_fitted.unfitted):
            scores = cell.grounding
            kept = [name for name in scores.names if scores.count("n", name) and name not in left]
            best, floor = (percent(macro_mean(scores.value(key, name) for name in kept)) for key in _BESIDE)
            yield (
                f"cross-fitted, {cell.model} on {cell.title}: mean over {len(kept)} of {len(kept) + len(left)} "
                f"classes, without {', '.join(left)} (pairs of 1 patient); over the same classes "
                f"{heading('dice_best', in_sample([cell]))} is {best} and {FLOOR} {floor}"
            )


def floor_note(results: Results, cells: Sequence[CellValues]) -> str:
    """The meaning of the row of the all-ones mask, and which numbers cannot be below it."""
    note = f"{FLOOR}: the value of a mask that covers the whole image"
    if not results.choices.tolerance_px:
        note += "; its IoU is the chance level of Point"
    searches = ((cell.grounding.options, find_protocol(cell.protocol).sweeping) for cell in cells)
    # The search of each class tried a threshold that marks the whole image.
    whole = [
        (sweeping.normalise, sweeping.comparison, options.tau_from) == ("minmax", ">=", 0)
        and options.unit in ("per_class", "per_image")
        for options, sweeping in searches
    ]
    if whole and all(whole):
        note += "; Dice* cannot fall below it, as its threshold is searched from 0 on the same data"
    return note


def never_negative(cells: Sequence[CellValues]) -> bool:
    """Whether Dice at the best threshold of a dataset cannot be less than at 0.5, which the search includes: the search
    of a dataset maximises the mean over classes that is printed."""
    return {cell.grounding.options.unit for cell in cells} <= {"per_class", "per_image", "per_dataset"}


def delta_note(cells: Sequence[CellValues]) -> str:
    """The meaning of the delta columns, which depends on how thresholds were chosen."""
    other = "chosen on other patients"
    if not in_sample(cells):
        return f"delta: Dice at the threshold {other} minus Dice at 0.5, percentage points; it can be below 0"
    note = "delta: Dice at the best threshold minus Dice at 0.5, percentage points"
    if never_negative(cells):
        return f"{note}, never below 0 as the threshold is chosen on the same data; cross-fitted: {other}, so it can be"
    return f"{note}; cross-fitted: {other}; both can be below 0"


def ranking_notes(names: Sequence[str], left: Sequence[bool], what: str = "pairs") -> tuple[str, ...]:
    """Which rows are not ranked everywhere because they use other `what`; `names` and `left` by row."""
    other = [name for name, out in zip(names, left, strict=True) if out]
    if not other:
        return ()
    line = f"best and second best are marked among the most models that have the same {what}"
    return (f"{line}; not ranked, where they have others: {', '.join(dict.fromkeys(other))}",)


def lacking_notes(results: Results, fields: Sequence[str]) -> Iterator[str]:
    """Models without a mean over datasets, because they lack one: of any number, or of some of `fields` only."""
    whole = {model: lacks for model in results.models if (lacks := results.lacking(model, "pointing"))}
    if whole:
        yield f"no mean over datasets for models that lack one: {_named(whole)}"
    parts: dict[str, list[str]] = {}
    for field in fields:
        found = {m: lacks for m in results.models if m not in whole and (lacks := results.lacking(m, field))}
        if found:
            parts.setdefault(_named(found), []).append(heading(field, in_sample(results.finished)))
    for models, titles in parts.items():
        yield (
            f"no mean over datasets of {', '.join(titles)} for {models}: in one dataset all pairs of a class come from "
            f"one patient, so the value is undefined there, for {FLOOR} too"
        )


def _named(found: Mapping[str, str]) -> str:
    return ", ".join(f"{model} ({lacks})" for model, lacks in found.items())


def left_out_notes(results: Results) -> tuple[str, ...]:
    """Models that have no numbers with these choices, or baselines beside these models, and the reason; which baselines
    are cut to the pairs of the models; and where models have other images."""
    models: dict[str, list[str]] = {}
    for (model, _), reason in results.left_out.items():
        models.setdefault(reason, []).append(model)
    lines = tuple(f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in models.items())
    return (*lines, *results.cut, *results.conflicts)


def not_asked_notes(cells: Sequence[CellValues]) -> Iterator[str]:
    """Classes that no prompt asks for, so that means are over the others."""
    for cell in cells:
        if left := [name for name in cell.rows.entry.get("classes", ()) if name not in cell.names]:
            yield f"not asked for on {cell.title} of {cell.model}: {', '.join(left)}"


def prompt_summary(status: Iterable[str]) -> str:
    """How many prompts have each status: "official", or "official 7, own 3"; empty for none."""
    counted = Counter(status)
    return next(iter(counted)) if len(counted) == 1 else ", ".join(f"{name} {n}" for name, n in counted.items())


def source_notes(cells: Sequence[CellValues]) -> tuple[str, ...]:
    """Where cells differ from what the authors of their models do, or may: in the words of prompts, in images that are
    not equalised, or in the GELU of weights that do not state it."""
    prompts: dict[str, list[str]] = {}
    plain = False
    for cell in cells:
        prompts.setdefault(cell.model, []).extend(cell.prompt_status.values())
        equalises = cell.family in PROTOCOLS.own and cell.reader in PROTOCOLS[cell.family].equalises
        plain |= equalises and not cell.rows.equalised
    other = [f"{model}: {prompt_summary(found)}" for model, found in prompts.items() if set(found) - {"official"}]
    line = f"{UNOFFICIAL_PROMPTS} (docs/parity.md §7): {'; '.join(other)}"
    gelu = dict.fromkeys(f"{cell.model}: {cell.activation}" for cell in cells if cell.activation)
    layers = f"GELU of the layers, which weights do not state: {'; '.join(gelu)}"
    return (*((line,) if other else ()), *((NOT_EQUALISED,) if plain else ()), *((layers,) if gelu else ()))


def interval_notes(results: Results, cells: Sequence[CellValues], *, pairs: bool = True) -> tuple[str, ...]:
    """How intervals were computed, and the choices that are not the defaults.

    pairs: of means over pairs; else of recognition, which no threshold of a map concerns.
    """
    choices = results.choices
    protocols = sorted({cell.protocol for cell in cells if cell.protocol != "default"})
    lines = tuple(map(PROTOCOLS.fact, protocols)) + choices.told
    if not any(cell.resampled for cell in cells):
        return lines
    few = too_few_replicates(choices.replicates)
    drawn = f"[low, high]: 95 % interval over {choices.replicates} resamples of the patients (seed {choices.seed})"
    drawn = few or drawn
    if not pairs:
        least = " and ".join(f"{LEAST[label]} patients {word} it" for label, word in _LABELS.items())
        return (
            f"{drawn}; of AUC and AUPRC from {least}, in all from {MANY_PATIENTS} patients",
            *unnamed_lines((cell.title, cell.rows.unnamed) for cell in cells),
            *lines,
        )
    chosen = "; thresholds are chosen anew in each"
    if any(cell.grounding.options.unit == "per_model" for cell in cells):
        chosen = "; the threshold of a model is kept in each, cross-fitted ones are chosen anew"
    return (
        f"{drawn}{'' if few else chosen}; t: Student's, of {LEAST['patients']} to {MANY_PATIENTS - 1} patients, none "
        f"of fewer; Wilson: pointing of a class with fewer than {SMALL} pairs or {MANY_PATIENTS} patients, none of one "
        "patient; expected hits have the interval of a mean",
        *unnamed_lines((cell.title, cell.rows.unnamed) for cell in cells),
        *lines,
    )


def caption(results: Results, what: str, cells: Sequence[CellValues], shown: str = "pairs") -> str:
    """What a table shows, in sentences: `what`, the protocol, n and the intervals; the writer adds the stamps."""
    protocols = " and ".join(sorted({cell.protocol for cell in cells})) or results.choices.protocol or "default"
    counts: dict[str, int] = {}
    for cell in cells:
        known = cell.n if shown == "pairs" else cell.cases - cell.lost
        counts[cell.model] = counts.get(cell.model, 0) + known
    least, most = (min(counts.values()), max(counts.values())) if counts else (0, 0)
    number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    things = "pairs of an image and a class with a region" if shown == "pairs" else "images"
    n = f"n = {number} {things} for each model."
    how = ""
    if any(cell.resampled for cell in cells) and not too_few_replicates(results.choices.replicates):
        how = f" Brackets: 95 % intervals over {results.choices.replicates:,} bootstrap resamples of the patients."
    marks = " Best value of a number in bold, second best underlined." if len(counts) > 1 else ""
    return f"{what} Protocol {protocols}; {n}{how}{marks}"


def flags(shown: Iterable[tuple[str, Printed | None]]) -> tuple[str, ...]:
    """Known problems of the paper's numbers that are shown, with the place of each."""
    return tuple(
        dict.fromkeys(f"{MARK} {where}: {printed.flag}" for where, printed in shown if printed and printed.flag)
    )
