"""Tables of answers in words: scores between floors and ceilings, and what was said (docs/words.md §8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...metrics_gpu.statistics.measured_numbers import Measured
from ...metrics_gpu.zones.bounds import BOUNDS, NUMBERS
from ...metrics_gpu.zones.zone_scores import ZONE_SCORES
from ..data.answers.words.class_answers import Remark, WordState
from .grounding_tables import shared_rows
from .printed_cells import interval_text, marked
from .tables.metric_names import NONE, percent
from .tables.stamps import box_stamps, uncertain_stamps
from .tables.table import Cell, Column, Item, Table, ascii_stem
from .word_scores import REGION_SCORES, SHARES, WordScores

_TITLES: Final = {
    "dice": "Dice", "iou": "IoU", "pointing": "Point", "inside": "inside", "laterality_one_sided": "one side",
    "laterality": "all", "zone_precision": "precision", "zone_recall": "recall", "zone_f1": "F1", "zone_exact": "exact",
}  # fmt: skip
_SIDES: Final = ("laterality_one_sided", "laterality")
_ZONES: Final = tuple(name for name in ZONE_SCORES if name not in _SIDES)
_SIDE_NAMES: Final = ("right", "left", "both", "none")
_BOUND_NAMES: Final = {name: name.replace("_", " ") for name in BOUNDS}
_PRESENCE: Final = {
    "sensitivity": "finding present",
    "said_present": "absent",
    "said_present_located": "absent, placed",
}
_NOTES: Final = (
    "percent; means over classes; Dice and IoU of the places drawn as boxes; Point: the centre of the first rectangle, "
    "so words for both sides point right; inside says the same without order",
    "under the files: the best single statement for each pair (ceiling), the best set of zones, the true zones "
    "(oracle), all zones (bilateral), and the usual zones of the finding in other patients (prior); share of ceiling: "
    "of the same pairs, above 100 where a text joins places",
    "sides: stated equal to true; one side: of pairs whose true boxes are on one side, the number to quote; central "
    "pairs are left out; zones: precision over the pairs that state one",
    "said to be present: pairs with the finding, absent ones that were asked, and those with a place",
)


def word_tables(scores: Sequence[WordScores]) -> Iterator[Table]:
    """The tables of each dataset."""
    for dataset in dict.fromkeys(found.dataset for found in scores):
        own = [found for found in scores if found.dataset == dataset]
        stem = ascii_stem(dataset)
        yield _words(own, f"words-{stem}")
        yield _said(own, f"said-{stem}")
        yield _sides(own, f"sides-{stem}")


def _words(scores: Sequence[WordScores], name: str) -> Table:
    columns = [Column("words"), *(Column(_TITLES[key]) for key in REGION_SCORES)]
    columns += [Column(_TITLES[key], "share of ceiling") for key in SHARES]
    columns += [Column(_TITLES[key], "sides") for key in _SIDES]
    columns += [Column(_TITLES[key], "zones") for key in _ZONES]
    columns += [Column(text, "said to be present") for text in _PRESENCE.values()]
    body = []
    for found in scores:
        row = [_cell(found.number(key)) for key in REGION_SCORES]
        row += [_cell(found.share(key)) for key in SHARES]
        row += [_cell(found.number(key)) for key in (*_SIDES, *_ZONES)]
        body.append([*row, *(_cell(found.presence[key], plain=True) for key in _PRESENCE)])
    ranked, _ = marked(body)
    rows: list[tuple[Item, ...]] = [(found.model, *row) for found, row in zip(scores, ranked, strict=True)]
    rest = ("",) * (len(columns) - 1 - len(NUMBERS))
    for bound, title in _BOUND_NAMES.items():
        of_models: dict[str, tuple[Item, ...]] = {
            found.model: (*(_cell(found.number(f"{bound} {key}"), plain=True) for key in NUMBERS), *rest)
            for found in scores
        }
        rows += shared_rows(title, of_models)
    sizes = [
        f"{found.model}: Spearman's correlation of {found.size.n} size words and areas {found.size.value:.2f}"
        + (f" [{found.size.low:.2f}, {found.size.high:.2f}]" if found.size.interval else "")
        for found in scores
        if found.size.value is not None
    ]
    stated = [(found.model, found.counts["zones_stated"], len(found.words.state)) for found in scores]
    sizes += [f"{model}: zones are stated in {n} of {pairs} pairs" for model, n, pairs in stated if n < pairs]
    return Table(
        f"{scores[0].title}: words", tuple(columns), tuple(rows), _stamps(scores), (*_NOTES, *sizes), name,
        caption="Answers in words, scored as places on a frame of the thorax, between ceilings and floors.",
    )  # fmt: skip


def _said(scores: Sequence[WordScores], name: str) -> Table:
    states = [state.name.lower() for state in WordState]
    remarks = [str(remark.name).lower() for remark in Remark]
    columns = [Column("words"), Column("pairs")]
    columns += [Column(key.replace("_", " "), "state") for key in states]
    ends = [key for key in ("refused", "truncated") if any(found.counts[key] for found in scores)]
    columns += [Column(key.replace("_", " "), "of the answers") for key in (*remarks, "skipped", *ends)]
    columns += [Column("not frontal"), Column("asked", "absent classes"), Column("not asked", "absent classes")]
    rows: list[tuple[Item, ...]] = []
    for found in scores:
        counts = [str(found.counts[key]) for key in (*states, *remarks, "skipped", *ends)]
        asked = (str(len(found.words.negative_state)), str(found.stored.not_asked))
        rows.append((found.model, str(len(found.words.state)), *counts, str(_not_frontal(found)), *asked))
    notes = (
        "pairs with the finding; the states add up to them; unlocated: present without a place, which draws nothing; "
        "other: read, and about something else; foreign: not English (docs/words.md §3, §5)",
    )
    return Table(
        f"{scores[0].title}: what was said", tuple(columns), tuple(rows), _stamps(scores), notes, name,
        caption="What the answers in words say, and what could not be read.",
    )  # fmt: skip


def _sides(scores: Sequence[WordScores], name: str) -> Table:
    """True by stated sides."""
    columns = [Column("words"), Column("true side")]
    columns += [Column(text, "stated side") for text in _SIDE_NAMES]
    rows: list[tuple[Item, ...]] = []
    for found in scores:
        for place, true in enumerate((*_SIDE_NAMES[:3], "central")):
            rows.append((found.model if not place else "", true, *(str(count) for count in found.sides[place])))
    notes = ("pairs; none: no place, a central one, or one without a stated side",)
    return Table(
        f"{scores[0].title}: sides", tuple(columns), tuple(rows), _stamps(scores), notes, name, lead=2,
        caption="Sides that answers in words state, by the true sides.",
    )  # fmt: skip


def word_rows(scores: Sequence[WordScores]) -> Iterator[dict[str, Any]]:
    """Rows of words.csv: each class, then the mean over classes (finding empty), which has the counts too."""
    for found in scores:
        class_of = found.stored.cell.class_of
        for place, finding in [*enumerate(found.names), (None, "")]:
            pairs = len(class_of) if place is None else int((class_of == place).sum())
            row: dict[str, Any] = {"model": found.model, "dataset": found.dataset, "finding": finding, "pairs": pairs}
            row["frame"] = found.stored.cell.entry["boxes"]["words"]["frame"]
            for key in found.means:
                row |= _limits(key.replace(" ", "_"), found.number(key, place))
            if place is None:
                for key in SHARES:
                    row |= _limits(f"share_of_ceiling_{key}", found.share(key))
                for key, number in found.presence.items():
                    row |= _limits(key, number)
                row |= {**found.counts, "not_frontal": _not_frontal(found)}
                row |= {"negatives_asked": len(found.words.negative_state), "size_words": found.size.n}
                row["size_spearman"] = found.size.value
            yield row


def word_json(scores: Sequence[WordScores]) -> list[dict[str, Any]]:
    """The same for report.json: the mean over classes, its classes, the table of sides, and the file."""
    told = []
    for found in scores:
        *classes, mean = word_rows([found])
        told.append(
            {**mean, "classes": classes, "sides": found.sides.tolist(), "file": dict(found.stored.cell.entry["boxes"])}
        )
    return told


def _cell(number: Measured, *, plain: bool = False) -> Cell:
    if number.value is None:
        return Cell(NONE)
    return Cell(percent(number.value), interval_text(number.interval, "dice_fixed"), number=None if plain else number)


def _limits(name: str, number: Measured) -> dict[str, float | None]:
    limits = number.limits(100)
    return {f"{name}_percent": limits["value"], f"{name}_low": limits["low"], f"{name}_high": limits["high"]}


def _not_frontal(found: WordScores) -> int:
    return int(found.stored.cell.entry["boxes"]["words"]["not_frontal"])


def _stamps(scores: Sequence[WordScores]) -> tuple[str, ...]:
    entries = [(score.title, score.model, score.stored.cell.entry) for score in scores]
    uncertain = uncertain_stamps((title, model, entry.get("uncertain", {})) for title, model, entry in entries)
    return (*box_stamps((model, entry["boxes"]) for _, model, entry in entries), *uncertain)
