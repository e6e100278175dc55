"""The list of categories of a COCO file, and the habits that export tools have with it (docs/formats.md §9.1)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..file_rows import Note, fail
from .spelling import spelling_key


@dataclass(frozen=True)
class Category:
    """An entry of `categories`. row: its place in the list. group: the key supercategory, empty without one."""

    id: int | str
    name: str
    row: int
    group: str


def as_id(value: object) -> int | str | None:
    """An id as it is compared: 1.0 of a table that was written as JSON, and the text "1", are 1. None: it is no id."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and (value[0] != "0" or value == "0"):
        return int(value) if len(value) < 20 else value
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def read_categories(entries: Sequence[Any], file: Path) -> list[Category]:
    """The categories in their order. Raises DataError for an entry without id or name, and for an id twice."""
    categories: dict[int | str, Category] = {}
    for row, entry in enumerate(entries, 1):
        key = as_id(entry.get("id")) if isinstance(entry, dict) else None
        name = entry.get("name") if key is not None else None
        if key is None or not isinstance(name, str):
            raise fail(file, row, "the entry of categories needs id and name")
        name, group = name.strip(), entry.get("supercategory")
        if not name or key in categories:
            raise fail(file, row, f"the category {key!r} '{name}' is empty or appears twice")
        categories[key] = Category(key, name, row, group.strip() if isinstance(group, str) else "")
    return list(categories.values())


def without_groups(
    categories: Sequence[Category], used: Collection[int | str], file: Path, notes: list[Note]
) -> list[Category]:
    """The categories that are classes. used: ids that annotations have.

    Roboflow writes the project before its classes, as category 0 of the supercategory "none": it is left out where it
    has no annotation. So is any unused category that is the supercategory of others, or has the name of another one.
    """
    groups = {spelling_key(category.group) for category in categories}
    kept: list[Category] = []
    for category in categories:
        key = spelling_key(category.name)
        alike = [other for other in categories if other is not category and spelling_key(other.name) == key]
        # Of categories of one name the used ones stay; where none is used, the first that groups nothing does.
        same = bool(alike) and (
            any(other.id in used for other in alike) or any(spelling_key(k.name) == key for k in kept)
        )
        above = key in groups and any(spelling_key(o.group) == key for o in categories if o is not category)
        project = category.id == 0 and category.group.casefold() == "none" and len(categories) > 1
        if category.id in used or not (same or above or project):
            if any(k.name == category.name for k in kept):
                text = f"several categories are called '{category.name}'; they are one class"
                notes.append(Note("spelling", category.name, file, category.row, text))
            kept.append(category)
            continue
        why = "another category has the same name" if same else "it groups the others"
        text = f"the category {category.id!r} '{category.name}' has no annotation, and {why}; it is not a class"
        notes.append(Note("unused_category", category.name, file, category.row, text))
    return kept
