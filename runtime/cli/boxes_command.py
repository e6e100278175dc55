"""`xbench-fast boxes check`: what a file of predicted boxes holds for a dataset, before it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engines.commands import LazyGroup
from ..host.options import BadLines, EvaluationOptions, Thorax, UncertainWords
from .options.completing import DATASETS
from .options.declared_options import options_of
from .options.shared_options import (
    Output,
    config_option,
    data_options,
    datasets_option,
    json_option,
    resolve_config,
)

if TYPE_CHECKING:
    from ..data.answers.answered import BoxFile

_FILE = click.Path(path_type=Path)


@click.group(cls=LazyGroup)
def boxes() -> None:
    """Look at files of predicted boxes; `check FILE` says what a file holds for a dataset."""


@boxes.command()
@click.argument("file", type=_FILE)
@datasets_option("Dataset whose images were asked about.", DATASETS, required=True)
@options_of(EvaluationOptions, "bad_lines", "coco", "mapping", "thorax", "lungs", "uncertain")
@data_options
@config_option
@json_option
def check(
    file: Path,
    datasets: tuple[str, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
    bad_lines: BadLines,
    coco: Path | None,
    mapping: Path | None,
    thorax: Thorax,
    lungs: Path | None,
    uncertain: UncertainWords,
) -> int:
    """Check FILE for a dataset: answers, dropped lines, and whether the coordinate frame fits.

    Nothing is scored. The exit status is 1 if there is something to act on: rejected lines, many pairs without a line,
    unreadable answers, texts without the tokens of their dialect, boxes before and after a tag that may end a thought,
    or boxes that would fit the truth much better in another frame.
    """
    config = resolve_config(config_file, (), data, data_options)
    from ..data.answers.box_file import ReadOptions
    from ..data.answers.frame_check import frame_check, out_of_view
    from ..data.answers.questions import Questions
    from ..data.answers.read_box_file import read_boxes
    from ..data.answers.words.thorax_frames import WordOptions
    from ..evaluation.pairing import select_datasets
    from ..results.loaded_dataset import load_dataset

    read = ReadOptions(bad_lines == "count", coco, mapping, WordOptions(thorax, lungs, uncertain))
    records = {}
    for chosen in select_datasets(config, datasets):
        dataset = load_dataset(chosen).dataset
        questions = Questions(dataset.cases(), dataset.classes, (chosen.name, dataset.name, dataset.title))
        answers = read_boxes(file, questions, read)
        said: dict[str, Any] = {}
        check = frame_check(answers, questions)
        if answers.thorax is not None:
            from ..evaluation.reference.word_checking import check_words

            said, check = check_words(answers, questions, dataset)
        warnings = [text for text in (check, *_warnings(answers)) if text]
        record = _record(answers, int(out_of_view(answers.positives, questions).sum()), warnings) | said
        if not output.piped:
            _print(answers, record, chosen.name if len(datasets) > 1 else "")
        records[chosen.name] = record
    first, *others = records.values()
    output.write(first | ({"other_datasets": dict(list(records.items())[1:])} if others else {}))
    return 1 if any(record["warnings"] for record in records.values()) else 0


def _warnings(answers: BoxFile) -> list[str]:
    from ..data.answers.answered import MANY_MISSING
    from ..data.answers.unread_answers import text_warnings, unread_answers

    lines = text_warnings(answers)
    unread = unread_answers(answers)
    if unread.many:
        lines.append(unread.sentence)
    if answers.rejected:
        lines.append(
            f"{answers.rejected} of {answers.lines} lines were rejected; without --bad-lines count the first is named"
        )
    if answers.missing_share > MANY_MISSING:
        lines.append(
            f"{answers.missing_share:.1%} of the pairs with a region have no line; write [] where none was found"
        )
    return lines


def _record(answers: BoxFile, out_of_view: int, warnings: list[str]) -> dict[str, Any]:
    """What is printed and written as JSON."""
    pairs = {
        truth: {
            "pairs": len(asked),
            "answered": int((asked.state == 0).sum()),
            "boxes": len(asked.boxes),
            **asked.counts(),
        }
        for truth, asked in (("positive", answers.positives), ("negative", answers.negatives))
    }
    return {
        "file": str(answers.path),
        "sha256": answers.sha256,
        "kind": answers.file_format,
        "lines": answers.lines,
        "rejected": answers.rejected,
        "unknown_label": answers.unknown_label,
        "no_region": answers.no_region,
        "unmatched": answers.unmatched,
        "labelled": answers.labelled,
        "other_finding": answers.other_finding,
        "not_asked": answers.not_asked,
        "out_of_view": out_of_view,
        "scores": answers.positives.scores is not None,
        "coordinates": dict(answers.frames),
        "provenance": {**answers.provenance, **{key: list(values) for key, values in answers.line_provenance.items()}},
        **pairs,
        "warnings": warnings,
    }


def _print(answers: BoxFile, record: Mapping[str, Any], dataset: str) -> None:
    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()

    def line(text: str, style: str = "") -> None:
        console.print(shown(text, style=style), soft_wrap=True)

    of_dataset = f" on {dataset}" if dataset else ""
    scores = "with" if record["scores"] else "without"
    line(
        f"{answers.path.name}{of_dataset}: {record['lines']} answers, {scores} scores",
        "bold",
    )
    line(f"coordinates: {', '.join(f'{name} ({count})' for name, count in record['coordinates'].items()) or 'none'}")
    for key, value in record["provenance"].items():
        line(f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    table = Table("what", "finding present", "finding absent")
    for key, value in record["positive"].items():
        table.add_row(shown(key.replace("_", " ")), str(value), str(record["negative"][key]))
    console.print(table)
    if answers.rejected:
        line(f"{answers.rejected} lines rejected")
    for text in [*answers.unscored, *([answers.mislabelled] if answers.mislabelled else [])]:
        line(text)
    for key, text in (
        ("not_asked", "pairs whose finding is absent and that were not asked"),
        ("out_of_view", "pairs whose region lies mostly outside what the model saw"),
    ):
        if record[key]:
            line(f"{record[key]} {text}")
    if "words" in record:
        _print_words(record["words"])
    for warning in record["warnings"]:
        line(f"warning: {warning}")


def _print_words(words: Mapping[str, Any]) -> None:
    """What answers in words say, and the first texts that say nothing."""
    from rich.table import Table

    from ..reporting.tables.console import make_console, shown

    console = make_console()
    table = Table("words", "finding present", "finding absent")
    for key, value in words["positive"].items():
        table.add_row(shown(key.replace("_", " ")), str(value), str(words["negative"][key]))
    console.print(table)
    if words["not_frontal"]:
        console.print(shown(f"{words['not_frontal']} pairs of lateral images, which are left out"), soft_wrap=True)
    for state, texts in words["texts"].items():
        for text in texts:
            console.print(shown(f"{state.replace('_', ' ')}: {text}"), soft_wrap=True)
