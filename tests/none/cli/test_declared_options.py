"""Options: one declaration of each, one vocabulary in all commands, and the page that is made from them."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import pytest
from xbench_fast.export.cli.export_command import command as export
from xbench_fast.metrics_gpu.statistics.bootstrap import SEED
from xbench_fast.options import AskKeywords, EvaluateOptions, ReportOptions
from xbench_fast.runtime.asking.ask_options import AskOptions
from xbench_fast.runtime.cli.app import app
from xbench_fast.runtime.cli.evaluate_command import evaluate
from xbench_fast.runtime.cli.report_command import report
from xbench_fast.runtime.host.options import EvalConfig, EvaluationOptions, words_of
from xbench_fast.runtime.results.choices import Choices

PYTHON_ONLY = {"boxes", "data_options", "progress", "geometry", "name", "version"}
"""Keywords of `evaluate` that are no options of `xbench-fast eval`, which has --model boxes:FILE and --data-option."""
MADE_UP = "xbench-export"
"""The command whose --seed makes weights up: 0 is part of what the demo's bundles are."""


ASKED = "xbench-fast ask"
"""The command whose --seed is a field of the requests: 0 is part of its content keys (docs/ask.md §5)."""


@pytest.fixture(scope="module")
def page(root: Path) -> ModuleType:
    """docs/make_reference.py."""
    spec = importlib.util.spec_from_file_location("make_reference", root / "docs" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def options(page: ModuleType) -> list[tuple[str, click.Option]]:
    """(command, option) of both programs."""
    return [
        (context.command_path, option)
        for name, group in (("xbench-fast", app), ("xbench-export", export))
        for context in page.contexts(click.Context(group, info_name=name))
        for option in context.command.params
        if isinstance(option, click.Option) and option.name not in ("help", "version")
    ]


def words(hints: dict[str, Any]) -> dict[str, set[str]]:
    """Option -> the texts that a type checker lets it be."""
    found: dict[str, set[str]] = defaultdict(set)

    def walk(name: str, hint: Any) -> Iterator[Any]:
        if get_origin(hint) is Literal:
            found[name] |= {word for word in get_args(hint) if isinstance(word, str)}
        for part in get_args(hint):
            list(walk(name, part))
        yield from ()

    for name, hint in hints.items():
        list(walk(name, hint))
    return {name: texts for name, texts in found.items() if texts}


def test_the_page_is_made_from_the_commands(page: ModuleType, root: Path) -> None:
    assert (root / "docs/reference.md").read_text(encoding="utf-8") == page.reference(), "run docs/make_reference.py"


def test_the_page_has_every_option_with_its_default(options: list[tuple[str, click.Option]], root: Path) -> None:
    sections = dict(
        part.split("\n", 1) for part in (root / "docs/reference.md").read_text(encoding="utf-8").split("\n## ")[1:]
    )
    for command, option in options:
        assert f"| `{option.opts[0]}" in sections[command], (command, option.opts)
    assert "| `--batch INTEGER RANGE` | 256 on a GPU, 16 on a CPU | Images per batch. " in sections["xbench-fast eval"]
    assert "| `--text-width FLOAT RANGE` | 345 |" in sections["xbench-fast report"]
    assert "| required |" in sections["xbench-fast merge"] and "| the family |" in sections["xbench-export"]


@pytest.mark.parametrize(("command", "declared"), [(evaluate, EvaluationOptions), (report, Choices)])
def test_options_of_a_command_are_those_declared(command: click.Command, declared: type) -> None:
    have = {option.name: option for option in command.params if isinstance(option, click.Option)}
    for name, declaration in declared.__dataclass_fields__.items():
        if "help" not in declaration.metadata:
            continue
        option = have[name]
        assert option.opts[0] == f"--{name.replace('_', '-')}" and option.help is not None
        assert option.help.startswith(declaration.metadata["help"])
        if declaration.default not in (None, ()):
            shown = declaration.default
            words = f"no-{name}" if shown is False else name if shown is True else f"{shown:g}" if shown == 0 else shown
            assert option.help.endswith(f"  [default: {words}]"), name
        # A flag that was not given must not hide what xbench.toml says.
        context = click.Context(command)
        kept = None if name in EvalConfig.__dataclass_fields__ and not option.multiple else declaration.default
        assert option.get_default(context) == (kept if kept != () else option.get_default(context))
        assert set(words_of(declared).get(name, ())) == set(getattr(option.type, "choices", ()))


def test_keywords_of_python_are_the_options_declared() -> None:
    declared = set(EvaluationOptions.__dataclass_fields__) - {"out"}  # a parameter of its own
    assert set(EvaluateOptions.__annotations__) == declared | PYTHON_ONLY
    assert set(ReportOptions.__annotations__) == set(Choices.__dataclass_fields__)
    assert set(AskKeywords.__annotations__) == {*AskOptions.__dataclass_fields__, "data_options", "config", "progress"}
    for written, made in ((EvaluateOptions, EvaluationOptions), (ReportOptions, Choices), (AskKeywords, AskOptions)):
        assert words(get_type_hints(written)) == {name: set(texts) for name, texts in words_of(made).items()}
        hints = get_type_hints(made)
        for name, hint in get_type_hints(written).items():
            if hints.get(name) in (bool, int, float):
                assert hints[name] in (hint, *get_args(hint)), name


def test_one_name_for_one_thing(options: list[tuple[str, click.Option]]) -> None:
    flags = {flag for _, option in options for flag in option.opts}
    assert not flags & {"--models", "--datasets", "--model-a", "--model-b"}
    # Where one model answers for an archive, its bundle is named by its folder alone.
    assert {command for command, option in options if "--bundle" in option.opts} == {
        "xbench-fast dicom", "xbench-fast pacs",
    }  # fmt: skip
    for command, option in options:
        if option.opts[0] in ("--model", "--dataset", "--data", "--bundles", "--prompt-set"):
            once = (command, option.opts[0]) in {
                ("xbench-fast serve", "--prompt-set"),  # the default of a server
                ("xbench-fast dicom", "--prompt-set"),  # an object has the answers to one set
                ("xbench-fast pacs", "--prompt-set"),
                ("xbench-export triton", "--bundles"),  # the folder that all of them are in
                ("xbench-fast ask", "--model"),  # a file has the answers of one model
                ("xbench-fast ask", "--dataset"),
            }
            assert option.multiple is not once, (command, option.opts)
        assert option.multiple == ("Can be repeated" in (option.help or "")), (command, option.opts)
    kinds: dict[str, set[str | None]] = defaultdict(set)
    for _, option in options:
        if not option.is_flag:
            kinds[option.opts[0]].add(option.metavar or type(option.type).__name__)
    several = {flag: found for flag, found in kinds.items() if len(found) > 1}
    assert several == {
        "--name": {"NAME=PRINTED", "NAME", "MODEL-VARIANT"},  # printed names; a model's name; a bundle's
        "--geometry": {"MODE-SIZE-RESIZE-INTERPOLATION[-INTENSITY]", "MODE:SIZE[:RESIZE[:INTERPOLATION]]"},
        "--prompts": {"FILE", "Path", "SET"},  # also a checkout of the authors' repository; sets of an evaluation
        "--saliency": {"NAME", "Choice"},  # the map to export; the kind of values that a graph gives
        "--protocol": {"NAME", "Names"},  # one of an evaluation; also scorers in a report
        "--out": {"DIR", "FILE"},  # the file of `prompts expand`
        "--by": {"Choice", "ATTRIBUTE"},  # of the studies prompts and subgroups
        "--pairs": {"Choice", "IntRange"},  # of a report; of trust and bench, how many
    }


def test_one_default_seed(options: list[tuple[str, click.Option]]) -> None:
    for command, option in options:
        if option.opts[0] == "--seed":
            assert option.default == (0 if command in (MADE_UP, ASKED) else SEED), command


def test_help_is_sentences(options: list[tuple[str, click.Option]]) -> None:
    """A noun or an imperative first, a full stop last."""
    for command, option in options:
        text = (option.help or "").split("  [default: ")[0]
        assert re.match(r"[A-Z0-9]", text) and text.endswith("."), (command, option.opts, text)
        assert not re.match(r"(The|A|An|Which|What (?!to do)|How|Where|Only|Also) ", text), (command, option.opts, text)
