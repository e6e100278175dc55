"""The lines above tables: which models they name, and that each is said once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from xbench_fast.runtime.reporting.tables.stamps import ModelWorth, cell_stamps, entry_stamp, stamps

PLAIN: dict[str, Any] = {
    "title": "One", "weights": "published", "engine": "onnxruntime-cpu fp32", "limit": None, "shard": "", "cases": 9,
    "lost": 0, "supervised": False, "uncompared_texts": False, "resized": "", "boxes": {}, "uncertain": {},
}  # fmt: skip


def lines(*cells: dict[str, Any]) -> tuple[str, ...]:
    facts = [{**PLAIN, **cell} for cell in cells]
    rows = [{name: f.pop(name, "") for name in ("limit", "view", "tiles")} for f in facts]
    cells = [SimpleNamespace(rows=SimpleNamespace(**row), **f) for row, f in zip(rows, facts, strict=True)]
    return cell_stamps(cells)  # type: ignore[arg-type]


def test_each_line_names_its_models_once() -> None:
    told = [("a", "demo", "trt int8"), ("b", "demo", "trt fp16", True), ("a", "demo", "trt int8")]
    first, second, third = stamps(ModelWorth(*facts) for facts in told)
    assert first.startswith("a, b: demo model") and second == "a: computed in INT8"
    assert third.startswith("b: supervised, ") and not stamps([ModelWorth("c", "published", "trt fp32")])


def test_texts_that_were_not_compared_are_said() -> None:
    """Above a table of cells, and of entries of run.json."""
    line = "b: texts were not compared with the tokenizer of the model's own library; export the bundle again"
    assert lines({"model": "a"}, {"model": "b", "uncompared_texts": True}) == (line,)
    entry = {"model": "b", "weights": "published", "ingredients": {"engine": "trt fp32"}}
    assert stamps([entry_stamp({**entry, "uncompared_texts": True})]) == (line,) and not stamps([entry_stamp(entry)])


def test_another_size_of_picture_is_said() -> None:
    told = "positions resampled from 224"
    line = f"b: another size of picture, {told}"
    assert lines({"model": "a"}, {"model": "b", "resized": told}) == (line,)
    entry = {"model": "b", "weights": "published", "ingredients": {"engine": "trt fp32"}}
    assert stamps([entry_stamp({**entry, "resized": told})]) == (line,)


def test_views_and_tiles_are_said() -> None:
    assert lines({"model": "a", "tiles": "2 x 2"}, {"model": "b", "view": "flip"}, {"model": "c"}) == (
        "a: images in tiles (2 x 2)",
        "b: a view of the images (flip); not ranked",
    )


def test_what_a_reader_marked_is_said_once() -> None:
    (line,) = lines({"model": "reader:second", "weights": "boxes", "boxes": {"reader": "second"}})
    assert line == "reader:second: what a second reader marked, no model"
    entry = {"model": "r", "weights": "boxes", "boxes": {"reader": "second"}, "ingredients": {"engine": "none"}}
    assert stamps([entry_stamp(entry)]) == ("r: what a reader marked; no model was run, and there is no threshold",)


def test_parts_of_datasets_are_said_with_their_models() -> None:
    said = lines({"model": "a", "limit": 5, "shard": "2 of 4"}, {"model": "b", "lost": 2, "limit": 5})
    assert said == (
        "One: only the first 5 cases were evaluated",
        "One: 2 of 9 images are missing or unreadable and not counted (b)",
        "One: only shard 2 of 4 was evaluated; merge them all (a)",
    )
