"""Lays out the public docstrings as fields: parameters with their types, attributes, errors, and links to the pages.

A docstring of the project describes a parameter or an attribute as "name: text", several after each other in one
paragraph, ends with a sentence "Raises ...", and cites a page as docs/metrics.md §4.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, is_typeddict

import click
from mdit_py_plugins.anchors.index import slugify
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

ROOT = Path(__file__).resolve().parents[2]
_CITED = re.compile(r"`*docs/([\w-]+)\.md`*(?: §(\d+(?:\.\d+)*))?")
_RAISES = re.compile(r"(?:^|(?<=[.;]\s))Raises\s(?=[A-Z])", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension."""
    app.connect("autodoc-process-docstring", lay_out)
    return {"version": "1", "parallel_read_safe": True}


def lay_out(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Rewrites the lines of a docstring in place."""
    names = described_names(what, value)
    output, fields, errors = list[str](), dict[str, str](), ""
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip()):
        text, described, raised = split_paragraph(paragraph, names)
        output += [with_links(text), ""]
        output += [
            part for key in described if key not in names for part in (f"* `{key}`: {with_links(described[key])}", "")
        ]
        fields |= {key: text for key, text in described.items() if key in names}
        errors = raised or errors
    if is_typeddict(value):
        fields = {key: fields.get(key) or option_help(value.__name__)[key] for key in names}
    field = "param" if what in ("function", "method") else "ivar"
    if field == "param":  # with its type, also where the name says all
        fields = {key: fields.get(key, "") for key in names}
    for key, text in fields.items():
        output.append(f":{field} {key}: {with_links(text)}")
        if names[key]:
            output.append(f":vartype {key}: {names[key]}")
    if errors:
        output.append(f":Errors: {with_links(errors)}")
    lines[:] = [*output, ""]


def described_names(what: str, value: Any) -> dict[str, str]:
    """The names that a docstring of `value` may describe, with the type of an attribute as text."""
    if what in ("function", "method"):
        return dict.fromkeys((key for key in inspect.signature(value).parameters if key not in ("self", "cls")), "")
    if what != "class":
        return {}
    annotations = dict[str, Any]()
    for base in reversed(value.__mro__):
        annotations |= inspect.get_annotations(base)
    names = {key: stringify_annotation(kind, "smart") for key, kind in annotations.items() if key[0] != "_"}
    for key, member in inspect.getmembers(value, lambda member: isinstance(member, property)):
        names.setdefault(key, str(inspect.get_annotations(member.fget).get("return", "")))
    return {key: re.sub(r"_(?!\w)", r"\_", kind) for key, kind in names.items()}  # np.bool_ would be a link


def split_paragraph(paragraph: str, names: Mapping[str, str]) -> tuple[str, dict[str, str], str]:
    """The plain text of a paragraph, the text of each name that it describes, and its sentence about errors."""
    errors = ""
    if match := _RAISES.search(paragraph):
        paragraph, errors = paragraph[: match.start()], " ".join(paragraph[match.start() :].split())
    heads = list(heads_in(paragraph, names))
    ends = [start for start, _, _ in heads[1:]] + [len(paragraph)]
    fields = dict[str, str]()
    for (_, stop, keys), end in zip(heads, ends, strict=False):
        fields |= dict.fromkeys(keys, " ".join(paragraph[stop:end].split()))
    return " ".join(paragraph[: heads[0][0] if heads else None].split()), fields, errors


def heads_in(paragraph: str, names: Mapping[str, str]) -> Iterator[tuple[int, int, list[str]]]:
    """Start and end of each "name: " or "name, name: " that begins a sentence, with its names.

    Another word that begins a line so is a value, such as a mode of `Geometry`.
    """
    for match in re.finditer(r"(?:^|(?<=[.;]\s))(`?\w+`?(?:,\s`?\w+`?)*):\s", paragraph, re.MULTILINE):
        keys = re.findall(r"\w+", match[1])
        if all(key in names for key in keys) or (names and paragraph[match.start() - 1 : match.start()] in ("", "\n")):
            yield match.start(), match.end(), keys


@cache
def option_help(options: str) -> dict[str, str]:
    """The help text of each option of the command whose options are the keywords `options`."""
    from xbench_fast.runtime.cli.app import app

    commands = {"EvaluateOptions": "eval", "ReportOptions": "report", "CompareOptions": "compare", "AskKeywords": "ask"}
    command = app.get_command(click.Context(app), commands[options])
    assert command is not None
    return {
        str(item.name): re.sub(r"([*|`\\])", r"\\\1", item.help or "")
        for item in command.params
        if isinstance(item, click.Option)
    }


def with_links(text: str) -> str:
    """The text with each citation of a page or section as a link, relative to docs/api/."""
    return _CITED.sub(
        lambda match: f"`{match[1]}.md{f' §{match[2]}' * bool(match[2])} <{target(*match.groups())}>`__", text
    )


def target(page: str, section: str | None) -> str:
    """The address of a page of docs/, or of one of its numbered sections."""
    address = f"../{page}.html"
    if section is None:
        return address
    heading = re.search(
        rf"^#+ (§{re.escape(section)} .*)$", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert heading is not None, f"docs/{page}.md has no §{section}"
    return f"{address}#{slugify(heading[1])}"
