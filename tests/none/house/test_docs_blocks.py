"""Every code block of the documentation runs in a test or says why not, and one that does not run is still right."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from doc_blocks import CODE, DATA, DIRECTIVES, FOLDERS, RUN_BY, Block, blocks, pages
from xbench_fast.export.cli.export_command import command as export
from xbench_fast.runtime.cli.app import app as fast

yaml = pytest.importorskip("yaml")
PROGRAMS = {"xbench-fast": fast, "xbench-export": export}


@pytest.fixture(scope="module")
def everything(root: Path) -> list[Block]:
    return [block for page in pages(root) for block in blocks(root, page)]


def test_every_code_block_runs_or_has_a_reason(everything: list[Block]) -> None:
    code = [block for block in everything if block.is_code]
    lost = [f"{block.page}:{block.line}" for block in code if block.reason is None and not where(block)]
    assert not lost, "add the block to a test, or <!-- not run: WHY --> above it"
    assert sum(block.reason is None for block in code) > 55 and any(block.reason for block in code)


def where(block: Block) -> str | None:
    """The test that runs a block without a comment."""
    return (
        "tests/cpu/house/test_docs_run.py" if block.page.startswith(FOLDERS) else RUN_BY.get(block.page, (None, 0))[0]
    )


def test_the_named_tests_run_as_many_blocks(root: Path, everything: list[Block]) -> None:
    count = Counter(block.page for block in everything if block.is_code and block.reason is None)
    assert {page: count[page] for page in RUN_BY} == {page: number for page, (_, number) in RUN_BY.items()}
    for page, (name, _) in RUN_BY.items():
        assert Path(page).name in (root / name).read_text(encoding="utf-8")


def test_every_block_has_a_language_of_the_list(everything: list[Block]) -> None:
    assert {block.language for block in everything} <= CODE | DATA | DIRECTIVES | {""}
    assert not [block for block in everything if block.reason and not block.is_code], "only code needs a reason"


def test_data_can_be_read(everything: list[Block]) -> None:
    read = {
        "json": json.loads,
        "toml": tomllib.loads,
        "yaml": yaml.safe_load,
        "jsonl": lambda text: [*map(json.loads, text.splitlines())],
    }
    texts = [(block.language, block.text) for block in everything if block.language in read]
    assert {language for language, _ in texts} == read.keys()
    for language, text in texts:
        read[language](text)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of the project in a block, up to a pipe, a redirection, or the end of a quote."""
    for line in re.sub(
        r"\\\n\s*|^kubectl .*", " ", text, flags=re.MULTILINE
    ).splitlines():  # a secret has the same name
        for match in re.finditer(r"(?<![\w-])xbench-(?:fast|export) .*", line):
            inside = match[0].partition("'")[0] if match[0].count("'") % 2 else match[0]
            lexer = shlex.shlex(inside, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            yield list(itertools.takewhile(lambda word: not set(word) <= set("|&;<>()"), lexer))


def test_commands_have_the_options_that_they_use(everything: list[Block]) -> None:
    """Of all blocks, also those that do not run: a renamed option would otherwise stay."""
    count = 0
    for block in (block for block in everything if block.is_code and block.language != "python"):
        for program, *words in commands(block.text):
            # With the settings of the program: a command keeps the help option of the first context that asks for it.
            context = click.Context(PROGRAMS[program], info_name=program, **PROGRAMS[program].context_settings)
            while (
                isinstance(context.command, click.Group)
                and words
                and words[0] in context.command.list_commands(context)
            ):
                below = context.command.get_command(context, words.pop(0))
                assert below is not None
                context = click.Context(below, parent=context)
            try:
                context.command.make_parser(context).parse_args(words)
            except click.UsageError as error:
                raise AssertionError(f"{block.page}:{block.line}: {error.format_message()}") from None
            count += 1
    assert count > 40
