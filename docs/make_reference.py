"""Writes docs/reference.md from the commands.

.venv/bin/python docs/make_reference.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from xbench_fast.export.cli.export_command import command
from xbench_fast.runtime.cli.app import app

_HEAD = """\
# Commands and options

Every command of `xbench-fast` and `xbench-export` with its options and their defaults. `docs/make_reference.py` writes
this page from the commands themselves; `--help` after a command prints the same with explanations and examples.
[command-line.md](command-line.md) has what holds for all commands. The options of `eval` and `report` are keywords of
`xb.evaluate` and `xb.report` too, with `_` for `-` ([python.md](python.md)).

Keys of `xbench.toml` are named as the options, with `_` for `-`: `bundles`, `cache` and `cache_limit` at its top, and
{keys} in the table `[eval]`. An option overrides the file.
Tables `[groups.NAME]` name sets of models ([studies.md §2](studies.md#2-the-studies)).
"""
_LIMITS = re.compile(r"(?:; |^)((?:[\d.]+<=?)?x(?:[<>]=?[\d.]+)?)$")


def reference() -> str:
    """The text of docs/reference.md."""
    from xbench_fast.runtime.host.options import EvalConfig

    keys = ", ".join(f"`{name}`" for name in EvalConfig.__dataclass_fields__)
    parts = [_HEAD.format(keys=keys)]
    for program, group in (("xbench-fast", app), ("xbench-export", command)):
        for context in contexts(click.Context(group, info_name=program, **group.context_settings)):
            if any(parameter.name != "version" for parameter in context.command.params):
                parts.append(_section(context))
    return "\n".join(parts)


def contexts(context: click.Context) -> Iterator[click.Context]:
    """A command and all commands below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = context.command.get_command(context, name)
            assert below is not None
            yield from contexts(click.Context(below, info_name=name, parent=context, **below.context_settings))


def _section(context: click.Context) -> str:
    summary = re.split(r"\n\s*\n", context.command.help or "")[0]
    usage = " ".join(context.command.collect_usage_pieces(context))
    lines = [f"## {context.command_path}", "", f"`{context.command_path} {usage}`", "", " ".join(summary.split()), ""]
    options = [parameter for parameter in context.command.params if isinstance(parameter, click.Option)]
    if options:
        lines += ["| option | default | what it is |", "|---|---|---|"]
    for option in options:
        record = option.get_help_record(context)
        assert record is not None
        name, (text, *extras) = record[0], record[1].split("  [")
        default, limits = _default_and_limits([extra.strip().removesuffix("]") for extra in extras])
        cells = (f"`{name}`", default, text + (f" {limits}" if limits else ""))
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _default_and_limits(extras: list[str]) -> tuple[str, str]:
    """The default, and the limits of the value as code, from what click adds to the help of an option."""
    default, limits = "", ""
    for extra in extras:
        if match := _LIMITS.search(extra):
            limits, extra = f"`{match[1]}`", extra[: match.start()]
        if extra:
            default = re.sub(r"^\((.*)\)$", r"\1", extra.removeprefix("default: "))  # click's mark of words
    return default, limits


def main() -> None:
    """Writes the page."""
    (Path(__file__).resolve().parent / "reference.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
