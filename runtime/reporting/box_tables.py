"""Tables of predicted boxes: matched boxes, what was answered, and published scorers (docs/detection.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...metrics_gpu.detection.published.coco_detection import COCO_SCORER
from ...metrics_gpu.statistics.intervals import Interval
from ...metrics_gpu.statistics.measured_numbers import Measured
from ..data.answers.dialects.dialect_registry import GRID
from ..host.protocols import SCORERS
from ..results.numbers.run_numbers import Results
from ..results.stored_boxes import WITHOUT_BOX
from .box_scores import BoxScores
from .printed_cells import interval_text, marked
from .tables.metric_names import NONE, percent
from .tables.stamps import box_stamps, uncertain_stamps
from .tables.table import Cell, Column, Item, Table, ascii_stem


def box_tables(scores: Sequence[BoxScores], results: Results) -> Iterator[Table]:
    """The tables of each dataset; results: of the run, in which models that answer in words have no such number."""
    cells = ((key, cell.rows) for key, cell in results.cells.items())
    in_words = [key for key, rows in cells if rows.boxed and "words" in rows.entry["boxes"]]
    for dataset in dict.fromkeys(found.dataset for found in scores):
        own = [found for found in scores if found.dataset == dataset]
        words = [model for model, other in in_words if other == dataset]
        stem = ascii_stem(dataset)
        yield _detection(own, f"boxes-{stem}", words)
        yield _answers(own, f"answers-{stem}")
        if any(found.published for found in own):
            yield _published(own, f"published-{stem}", words)


def _in_words(models: Sequence[str]) -> Iterator[str]:
    if models:
        yield f"{', '.join(models)}: words; a zone is no box, so none of these numbers applies"


def _detection(scores: Sequence[BoxScores], name: str, words: Sequence[str]) -> Table:
    columns = [Column("model")]
    columns += [Column(f"F1 {found.threshold:g}", "matched boxes") for found in scores[0].matched]
    columns += [Column(text, "matched boxes, IoU 0.5") for text in ("precision", "recall", "F1 with negatives")]
    columns += [Column(text, "AP") for text in ("0.1", "0.25", "0.5", "0.50 to 0.95")]
    columns += [Column(text, "native size") for text in ("inside", "Dice", "IoU")]
    rows = []
    for found in scores:
        basis = found.stored.truth
        half = found.matched[-1]
        # A control and a reader are not ranked.
        number = partial(_number, basis=basis, ranked=not found.stored.cell.entry["boxes"].keys() & {"moved", "reader"})
        row = [
            number(float(at.f1_classes[0]), interval=interval)
            for at, interval in zip(found.matched, found.intervals, strict=True)
        ]
        row += [number(float(values[0])) for values in (half.precision, half.recall, half.f1_with_negatives)]
        row += [
            number(found.precision[key]) if found.precision else Cell(found.why_no_precision)
            for key in ("ap@0.1", "ap@0.25", "ap@0.5", "ap")
        ]
        row += [number(value) for value in (found.inside, found.dice_native, found.iou_native)]
        rows.append(row)
    body, _ = marked(rows)
    notes = (
        "percent; F1: largest one-to-one matching of given and true boxes at IoU 0.1, 0.25 and 0.5, mean over classes; "
        "precision and recall: of all boxes; with negatives: boxes given for absent classes count too",
        "AP: COCO's rules; without a score for each box it would depend on the order of the images, so there is none",
        "inside: share of the union that lies in the region; silence: 0",
        *(
            f"{found.model}: {lost} pairs whose region is no union of boxes are in no matching and no published number"
            for found in scores
            if (lost := len(found.stored.state) - len(found.stored.places))
        ),
        *_marked(scores, "AP"),
        *(f"{found.model}: cells, not boxes" for found in scores if _has_cells(found)),
        *_in_words(words),
    )
    lines: list[tuple[Item, ...]] = [(found.model, *row) for found, row in zip(scores, body, strict=True)]
    lines += [(model, *[NONE] * (len(columns) - 1)) for model in words]
    return Table(
        f"{scores[0].title}: matched boxes",
        tuple(columns),
        tuple(lines),
        _stamps(scores),
        notes,
        name,
        caption="Matched boxes in percent, and what lies inside the regions.",
    )


def _has_cells(scores: BoxScores) -> bool:
    """Whether answers are cells of a grid, whose size no model chose."""
    return GRID in (scores.stored.cell.entry["boxes"].get("frames") or ())


def _answers(scores: Sequence[BoxScores], name: str) -> Table:
    columns = [Column("model"), *(Column(text, "pairs") for text in ("all", "answered", "boxes per answer"))]
    refused = any(found.stored.of_state("refused") for found in scores)
    columns += [Column(t, "per 100 pairs") for t in ("silent", *["refused"] * refused, "unparsable", "missing")]
    columns.append(Column("duplicate boxes", "per 100 pairs"))
    columns += [Column(t, "boxes") for t in ("illegal", "outside", "clipped")]
    columns += [Column(t, "absent classes") for t in ("asked", "not asked", "with boxes", "boxes per 100")]
    rows: list[tuple[Item, ...]] = []
    for found in scores:
        stored, invented = found.stored, found.invented
        pairs, answered = len(stored.state), stored.of_state("answered")
        each = [
            stored.of_state(*WITHOUT_BOX), *[stored.of_state("refused")] * refused, stored.of_state("unparsable"),
            stored.of_state("missing"), found.duplicates,
        ]  # fmt: skip
        rows.append(
            (
                found.model,
                str(pairs),
                str(answered),
                f"{int(stored.given.sum()) / answered:.2f}" if answered and not found.masks else NONE,
                *(percent(count / pairs if pairs and count is not None else None) for count in each),
                *(str(int(stored.counters[key].sum())) for key in ("illegal", "outside", "clipped")),
                str(invented.asked),
                str(stored.not_asked),
                *(percent(None if found.masks else value) for value in (invented.share, invented.boxes_per_answer)),
            )
        )
    notes = (
        "per 100 pairs, images with the finding: silent: no box; unparsable: a box was meant, none could be read; "
        "missing: no line; duplicate: boxes about a true box that another one hits, - where regions are masks",
        "illegal and outside boxes are dropped, clipped ones are cut at the image",
        "absent classes: with boxes, percent of those asked; boxes per 100 asked",
        *["refused: declined or filtered by the model or its server; counted in silent too"] * refused,
    )
    return Table(
        f"{scores[0].title}: what was answered", tuple(columns), tuple(rows), _stamps(scores), notes, name,
        caption="What was answered, and what could not be read.",
    )  # fmt: skip


def _published(scores: Sequence[BoxScores], name: str, words: Sequence[str]) -> Table:
    """A row for each number that is not of a class; the one that papers quote first."""
    rows: list[tuple[Item, ...]] = []
    names = list(dict.fromkeys(name for found in scores for name in found.published))
    for scorer in names:
        main = SCORERS[scorer].main
        keys = [key for found in scores for key in found.published.get(scorer, ()) if "_by_class." not in key]
        for key in dict.fromkeys([main, *keys]):
            values = [_value(key, found.published.get(scorer, {}).get(key)) for found in scores]
            rows.append((scorer if key == main else "", key, *values, *[NONE] * len(words)))
    notes = (
        *(f"{scorer}: {SCORERS[scorer].note}" for scorer in names),
        *SCORERS.added_facts(names),
        *dict.fromkeys(fault for found in scores for fault in found.faults),
        *(_marked(scores, COCO_SCORER.name) if COCO_SCORER.name in names else ()),
        "percent, but for counts of pairs and images",
        *_in_words(words),
    )
    return Table(
        f"{scores[0].title}: published scorers",
        (Column("scorer"), Column("number"), *(Column(found.model) for found in scores), *map(Column, words)),
        tuple(rows),
        _stamps(scores),
        notes,
        name,
        lead=2,
        caption="Numbers by the rules of other sources.",
    )


def box_rows(scores: Sequence[BoxScores]) -> Iterator[dict[str, Any]]:
    """Rows of boxes.csv."""
    for found in scores:
        stored = found.stored
        row: dict[str, Any] = {"model": found.model, "dataset": found.dataset, "pairs": len(stored.state)}
        for at, interval in zip(found.matched, found.intervals, strict=True):
            row[f"f1_{at.threshold:g}_percent"] = _percent(float(at.f1_classes[0]))
            row[f"f1_{at.threshold:g}_low"] = None if interval is None else 100 * interval.low
            row[f"f1_{at.threshold:g}_high"] = None if interval is None else 100 * interval.high
            for key in ("f1", "precision", "recall", "f1_with_negatives"):
                row[f"{key}_{at.threshold:g}_of_all_boxes_percent"] = _percent(float(getattr(at, key)[0]))
        row |= {f"{key}_percent": _percent(value) for key, value in found.precision.items()}
        row["why_no_ap"] = found.why_no_precision
        for key in ("inside", "dice_native", "iou_native"):
            row[f"{key}_percent"] = _percent(getattr(found, key))
        row["boxes"], row["true_boxes"] = int(stored.given.sum()), len(stored.answers.truth.boxes)
        row["duplicates"] = found.duplicates
        row["answered"], row["silent"] = stored.of_state("answered"), stored.of_state(*WITHOUT_BOX)
        row["refused"], row["unparsable"], row["missing"] = map(stored.of_state, ("refused", "unparsable", "missing"))
        row |= {name: int(values.sum()) for name, values in stored.counters.items() if name != "duplicates"}
        row |= {"identical_boxes": int(stored.counters["duplicates"].sum()), "negatives_asked": found.invented.asked}
        row["negatives_not_asked"] = stored.not_asked
        row["negatives_with_boxes"] = None if found.masks else found.invented.with_boxes
        yield {**row, "negatives_boxes": None if found.masks else found.invented.boxes}


def published_rows(scores: Sequence[BoxScores]) -> Iterator[dict[str, Any]]:
    """Rows of published.csv; values as the authors' code gives them, most of them fractions."""
    for found in scores:
        for scorer, values in found.published.items():
            about = SCORERS[scorer]
            for number, value in values.items():
                yield {
                    "model": found.model,
                    "dataset": found.dataset,
                    "scorer": scorer,
                    "number": number,
                    "value": _known(value),
                    "main": number == about.main,
                    "note": about.note,
                    "source": _source(scorer),
                }


def box_json(scores: Sequence[BoxScores]) -> list[dict[str, Any]]:
    """The same for report.json, with where the file comes from."""
    published = list(published_rows(scores))
    return [
        {
            **row,
            "file": dict(found.stored.cell.entry["boxes"]),
            "published": {
                name: {
                    "note": SCORERS[name].note,
                    "source": _source(name),
                    "values": {
                        item["number"]: item["value"]
                        for item in published
                        if (item["model"], item["dataset"], item["scorer"]) == (found.model, found.dataset, name)
                    },
                }
                for name in found.published
            },
        }
        for row, found in zip(box_rows(scores), scores, strict=True)
    ]


def _source(scorer: str) -> str:
    """Whose rule it is, and of a package's scorer where its code is."""
    return "; ".join([SCORERS[scorer].source, *SCORERS.added_facts([scorer])])


def _known(value: float | None) -> float | None:
    """The value; None for NaN, which says that there is nothing to score."""
    return None if value is None or math.isnan(value) else value


def _percent(value: float | None) -> float | None:
    known = _known(value)
    return None if known is None else 100 * known


def _number(value: float | None, basis: str, ranked: bool, interval: Interval | None = None) -> Cell:
    number = Measured(_known(value), interval, basis=basis, ranked=ranked)
    return Cell(percent(number.value), interval_text(interval, "dice_fixed"), number=number)


def _value(key: str, value: float | None) -> str:
    counted = key.rpartition(".")[2] in ("cases", "n", "at_threshold", "pairs_left_out", "precision_is_nan")
    known = _known(value)
    return NONE if known is None else f"{known:.0f}" if counted else percent(known)


def _marked(scores: Sequence[BoxScores], number: str) -> Iterator[str]:
    """What the datasets say of regions marked iscrowd and the like: COCO's own code ignores the crowds."""
    crowds: dict[str, bool] = {}
    for found in scores:
        if text := found.stored.cell.entry.get("warnings", {}).get("crowd"):
            crowds[text] = crowds.get(text, False) or found.stored.answers.crowd is not None
    for text, boxes in crowds.items():
        ignored = f", but {number} ignores boxes marked iscrowd, as pycocotools does" if boxes else ""
        yield f"{number}: {text.rstrip('.')}{ignored}"


def _stamps(scores: Sequence[BoxScores]) -> tuple[str, ...]:
    entries = [(score.title, score.model, score.stored.cell.entry) for score in scores]
    uncertain = uncertain_stamps((title, model, entry.get("uncertain", {})) for title, model, entry in entries)
    return (*box_stamps((model, entry["boxes"]) for _, model, entry in entries), *uncertain)
