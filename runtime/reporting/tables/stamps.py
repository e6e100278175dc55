"""Warning lines above tables: weights without meaning, INT8, other sizes of the picture, limits, uncertain labels,
shards, and missing images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...data.answers.answered import MANY_MISSING, MANY_UNREAD_WORDS
from ...data.answers.line_keys import VIEW_NOT_PROVED

if TYPE_CHECKING:
    from ...results.numbers.cell_values import CellValues

OWN_WEIGHTS: Final = "own weights: nothing says that they are published ones"
UNOFFICIAL_PROMPTS: Final = "prompts that are not the authors' official ones"
"""How a note on the words of prompts begins."""

_LINES: Mapping[str, str] = {
    "baseline": "a reference map that sees no image; Point of ones is the expected hit of a random pixel",
    "maps": "saliency maps from a folder; no model was run",
    "boxes": "boxes from a file; no model was run, and there is no threshold",
    "words": "places that words name, drawn on a frame of the thorax; no model was run, and there is no threshold; "
    "words reach at most their ceiling (the report's table of words), maps 100",
    "reader": "what a reader marked; no model was run, and there is no threshold",
    "live": "a model called from Python: no bundle stands behind these numbers",
    "own": OWN_WEIGHTS,
    "stand-in": "stand-in weights: the numbers say nothing about the model",
    "randomised": "randomised weights: a control, the numbers say nothing about the model",
    "demo": "demo model trained on generated phantoms; it never saw a radiograph",
}
_SUPERVISED: Final = "supervised, trained on labels of the findings and asked without text; not ranked"

_UNCOMPARED: Final = "texts were not compared with the tokenizer of the model's own library; export the bundle again"


class ModelWorth(NamedTuple):
    """What the lines on models need: name, kind of weights, engine with its precision, whether the model is supervised
    whether its texts were not compared with its library (`Manifest.uncompared_texts`), and how it takes another size of
    picture than it was trained with (`Manifest.resized`)."""

    model: str
    weights: str
    engine: str
    supervised: bool = False
    uncompared_texts: bool = False
    resized: str = ""


def stamp(weights: str) -> str:
    """The line for a bundle's kind of weights, empty for published ones."""
    if weights == "published":
        return ""
    return _LINES.get(weights, f"weights of an unknown kind ('{weights}'): do not trust the numbers")


def kind_of(weights: str, boxes: Mapping[str, Any]) -> str:
    """The kind of weights that `stamps` takes; boxes: what run.json tells of a file of boxes or a reader."""
    return "reader" if boxes.get("reader") else "words" if boxes.get("words") else weights


def stamps(models: Iterable[ModelWorth]) -> tuple[str, ...]:
    """Lines on models: one per kind of weights with the models it concerns, one on those in INT8, one on those that
    read no text, one on those whose texts were not compared with their library, and those at another size."""
    concerned: dict[str, list[str]] = {}
    quantised, taught, uncompared = list[str](), list[str](), list[str]()
    for name, weights, engine, supervised, unlike, resized in models:
        for line in filter(None, (stamp(weights), resized and f"another size of picture, {resized}")):
            concerned.setdefault(line, []).append(name)
        quantised += [name] * engine.endswith(" int8")
        taught += [name] * supervised
        uncompared += [name] * unlike
    lines = [*concerned.items(), ("computed in INT8", quantised), (_SUPERVISED, taught), (_UNCOMPARED, uncompared)]
    return tuple(f"{', '.join(dict.fromkeys(names))}: {line}" for line, names in lines if names)


def entry_stamp(entry: Mapping[str, Any]) -> ModelWorth:
    """What `stamps` takes of a finished cell, by its entry in run.json."""
    weights = kind_of(entry["weights"], entry.get("boxes", {}))
    engine, uncompared = str(entry["ingredients"]["engine"]), bool(entry.get("uncompared_texts"))
    resized = str(entry.get("resized", ""))
    return ModelWorth(entry["model"], weights, engine, bool(entry.get("supervised")), uncompared, resized)


def cell_stamps(cells: Sequence[CellValues]) -> tuple[str, ...]:
    """All lines above a table of `cells`, and of the caption of a figure."""
    # What a reader marked is no model's: `box_stamps` says it.
    worth = stamps(
        ModelWorth(
            c.model,
            "published" if c.boxes.get("reader") else kind_of(c.weights, c.boxes),
            c.engine,
            c.supervised,
            c.uncompared_texts,
            c.resized,
        )
        for c in cells
    )
    tiles = {cell.model: cell.rows.tiles for cell in cells if cell.rows.tiles}
    worth += tuple(f"{model}: images in tiles ({how})" for model, how in tiles.items())
    views = {cell.model: cell.rows.view for cell in cells if cell.rows.view}
    worth += tuple(f"{model}: a view of the images ({view}); not ranked" for model, view in views.items())
    first = "only the first {} cases were evaluated"
    worth += _parts((c.title, c.model, "" if c.rows.limit is None else first.format(c.rows.limit)) for c in cells)
    worth += uncertain_stamps((c.title, c.model, c.uncertain) for c in cells)
    boxed = [(cell.model, cell.boxes) for cell in cells if cell.boxes]
    worth += box_stamps(boxed) if boxed else ()
    shards = ((c.title, c.model, f"only shard {c.shard} was evaluated; merge them all" * bool(c.shard)) for c in cells)
    holes = ((c.title, c.model, _lost(c) if c.lost else "") for c in cells)
    return worth + tuple(sorted({*_parts(shards), *_parts(holes)}))


def uncertain_stamp(labels: Mapping[str, Any]) -> str:
    """What a policy made of the uncertain labels of a dataset, of which run.json tells; empty if it has none."""
    if not labels:
        return ""
    count, policy = labels["labels"], labels["policy"]
    done = "ignored" if policy == "ignore" else f"counted as {policy}"
    return f"{count} uncertain label{'s' * (count != 1)} {done} (uncertain={policy})"


def uncertain_stamps(cells: Iterable[tuple[str, str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """What every table must say of labels that nobody was sure of.

    cells: title of the dataset, model, and what run.json tells of its uncertain labels.
    """
    return _parts((title, model, uncertain_stamp(labels)) for title, model, labels in cells)


def box_stamps(models: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """What every table must say of files of boxes; `models`: name and what run.json tells of the file, if it is one."""
    files = list(models)
    moved = ", ".join(dict.fromkeys(name for name, told in files if told.get("moved")))
    lines = [f"{moved}: a control, each answer is the one to the image of another patient"] if moved else []
    mirrored = ", ".join(dict.fromkeys(name for name, told in files if told.get("mirrored")))
    lines += [f"{mirrored}: a control, left and right of the answers are swapped"] if mirrored else []
    floors = ", ".join(dict.fromkeys(name for name, told in files if told.get("floor")))
    lines += [f"{floors}: words that look at no image"] if floors else []
    lines += _frame_lines(files)
    lines += [f"{name}: {_reader(told)}, no model" for name, told in files if told.get("reader")]
    for name, told in files:
        share = told.get("missing_share", 0.0)
        if told.get("missing") == "leave-out" and share:
            lines.append(f"{name}: {share:.1%} of the pairs have no line; they are left out (--missing leave-out)")
        elif share > MANY_MISSING:
            lines.append(f"{name}: {share:.1%} of the pairs have no line; they are scored as silent")
        count, given = told.get("unread", (0, 0))
        many, kind = (MANY_UNREAD_WORDS, "places") if told.get("words") else (MANY_MISSING, "boxes")
        if count > many * given:
            lines.append(
                f"{name}: {count} of {given} answers ({count / given:.1%}) could not be read; they have no {kind}"
            )
        if told.get("mislabelled"):
            lines.append(f"{name}: {told['mislabelled']}")
        if tags := told.get("tags"):
            lines.append(
                f"{name}: {sum(tags.values())} answers have boxes before and after {', '.join(tags)}; all count"
            )
        if told.get("silence") == "absent":
            lines.append(f"{name}: the file cannot tell silence from a missing line; both are silent")
        if told.get("rejected"):
            lines.append(f"{name}: {told['rejected']} lines were rejected (--bad-lines count)")
        if told.get("frame_check"):
            lines.append(f"{name}: {told['frame_check']}")
        if VIEW_NOT_PROVED in str(told.get("provenance", {}).get("note", "")):
            lines.append(f"{name}: {VIEW_NOT_PROVED}: the server may have changed the size of the images")
    return tuple(dict.fromkeys(lines))


def _frame_lines(files: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """On which frame the places of words are drawn, and how uncertain ones count."""
    named: dict[str, list[str]] = {}
    for name, told in files:
        words = told.get("words")
        if words:
            absent = "; uncertain statements count as absent" if words["uncertain"] == "absent" else ""
            left = f"; {words['not_frontal']} pairs of lateral images are left out" if words["not_frontal"] else ""
            fixed = (
                f", of {words['frame_fixed']} pairs without usable masks the fixed one" if words["frame_fixed"] else ""
            )
            frame = f"frame {words['frame']}{fixed}; a zone score below 100 is no proof of a wrong zone"
            named.setdefault(f"{frame}{absent}{left}", []).append(name)
    for text, names in named.items():
        yield f"{', '.join(dict.fromkeys(names))}: {text}"


def _reader(told: Mapping[str, Any]) -> str:
    if told.get("left_out"):
        return "what one of three readers marked, against what both others name"
    return f"what a {told['reader']}{' reader' * (told['reader'] == 'second')} marked"


def _lost(cell: CellValues) -> str:
    what = "cases have no readable saliency map" if cell.weights == "maps" else "images are missing or unreadable"
    return f"{cell.lost} of {cell.cases} {what} and not counted"


def _parts(cells: Iterable[tuple[str, str, str]]) -> tuple[str, ...]:
    """ "dataset: text", each once, with the names of its models if it does not apply to all of them.

    cells: (title of the dataset, model, text) of every cell that is shown; an empty text adds no line.
    """
    models: dict[str, list[str]] = {}
    said: dict[tuple[str, str], list[str]] = {}
    for title, model, text in cells:
        models.setdefault(title, []).append(model)
        if text:
            said.setdefault((title, text), []).append(model)
    return tuple(
        f"{title}: {text}" + ("" if named == models[title] else f" ({', '.join(named)})")
        for (title, text), named in said.items()
    )
