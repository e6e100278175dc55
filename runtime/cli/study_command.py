"""`xbench-fast study`: one question about the results of a run, answered from what the run stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ...engines.commands import Choice, LazyGroup
from ...engines.errors import ConfigError, RunError, XBenchError
from ...metrics_gpu.statistics.bootstrap import REPLICATES
from ..results.choices import Choices
from .options.completing import RUN_DATASETS, RUN_MODELS
from .options.declared_options import options_of, repeated
from .options.examples import examples
from .options.shared_options import (
    Output,
    config_option,
    data_options,
    datasets_option,
    json_option,
    models_option,
    raw_csv_option,
    resolve_config,
)

if TYPE_CHECKING:
    from ..reporting.studies.material import Material
    from ..reporting.studies.study_outcome import StudyOutcome

F = TypeVar("F", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)
_RUN = click.argument("run", type=_PATH, required=False)
_RUNS = click.argument("runs", type=_PATH, nargs=-1)
_NO_OVERLAYS = click.option("--no-overlays", is_flag=True, help="Draw no overlays.")
_shown = partial(click.option, show_default=True)


@click.group(cls=LazyGroup, epilog=examples("study"))
def study() -> None:
    """Studies of a run: tables on the terminal, and Markdown, CSV, JSON and figures in RUN/studies/NAME/.

    RUN defaults to the run directory of the configuration.

    If a run has results of several protocols, each gets its own study; the second and later ones go to
    RUN/studies/NAME-PROTOCOL/. The studies of differences (prompts, resolution, mechanisms) take results of one
    protocol.

    No model runs. A threshold is in-sample if it was chosen on the pairs that it scores, and cross-fitted if it was
    chosen on other patients.
    """


def _common(function: F) -> F:
    """Options of every study."""
    for option in reversed(
        (
            models_option("Model to study.", RUN_MODELS, "all of the run"),
            datasets_option("Dataset to study.", RUN_DATASETS, "all of the run"),
            _shown(
                "--replicates",
                type=click.IntRange(min=10),
                default=REPLICATES,
                help="Bootstrap resamples of the patients. 95 % intervals need 40 or more, 99 % intervals 200.",
            ),
            options_of(Choices, "seed"),
            _shown("--level", type=click.FloatRange(0.5, 0.999), default=0.95, help="Confidence level of intervals."),
            click.option("--out", type=_PATH, metavar="DIR", help="Folder of the files.  [default: RUN/studies/NAME]"),
            click.option("--quiet", is_flag=True, help="Print no tables; only write the files."),
            raw_csv_option,
            config_option,
            json_option,
        )
    ):
        function = option(function)
    return function


def _where(function: F) -> F:
    """--data and --data-option, with the configured datasets, given to the command as `places`."""

    @data_options
    @wraps(function)
    def wrapped(*args: Any, data: Any, data_options: Any, **rest: Any) -> Any:
        configured = resolve_config(rest["config_file"], (), data, data_options).datasets
        return function(*args, places=configured, **rest)

    return cast(F, wrapped)


@study.command("thresholds")
@_RUN
@_shown(
    "--within",
    type=click.FloatRange(0, 50),
    default=5.0,
    help="Maximum loss of Dice, in percent of the best, at thresholds that count as near-best.",
)
@_common
def _thresholds(run: Path | None, within: float, **common: Any) -> int:
    """Dice and IoU at every threshold, delta Dice, and how peaked the maps are."""
    from ..reporting.studies.thresholds_study import study_thresholds

    return _one(run, common, lambda material: study_thresholds(material, within / 100))


@study.command("correlation")
@_RUN
@_common
def _correlation(run: Path | None, **common: Any) -> int:
    """Does AUC predict pointing? R² with intervals, rank correlation, leaving one model out."""
    from ..reporting.studies.correlation_study import study_correlation

    return _one(run, common, study_correlation)


@study.command("strata")
@_RUN
@_common
def _strata(run: Path | None, **common: Any) -> int:
    """Pointing and Dice by size of the region: fixed edges and thirds."""
    from ..reporting.studies.strata_study import study_strata

    return _one(run, common, study_strata)


@study.command("failures")
@_RUN
@_shown("--top", type=click.IntRange(min=1), default=3, help="Number of classes to show at each end.")
@_shown("--cases", type=click.IntRange(min=0), default=3, help="Number of cases to show of each class.")
@_NO_OVERLAYS
@_where
@_common
def _failures(run: Path | None, top: int, cases: int, no_overlays: bool, places: Any, **common: Any) -> int:
    """The best and worst classes of each model and their cases, with overlays as PNG.

    Radiographs are read where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.failures_study import study_failures

    drawing = {"overlays": not no_overlays, "datasets": places}
    return _one(run, common, lambda material: study_failures(material, top=top, cases=cases, **drawing))


@study.command("errors")
@_RUN
@_shown("--cases", type=click.IntRange(min=0), default=1, help="Number of examples of each kind of error.")
@_NO_OVERLAYS
@_where
@_common
def _errors(run: Path | None, cases: int, no_overlays: bool, places: Any, **common: Any) -> int:
    """The kinds of errors of boxes, and of maps at 0.5 and at the best threshold, and what fixing one would gain.

    Radiographs are read where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.errors_study import study_errors

    drawing = {"overlays": not no_overlays, "datasets": places}
    return _one(run, common, lambda material: study_errors(material, cases=cases, **drawing))


@study.command("readers")
@_RUN
@_common
def _readers(run: Path | None, **common: Any) -> int:
    """Agreement between readers, and models compared with a radiologist on the same pairs.

    The run needs a reader's row, from eval --model reader:radiologist or reader:second.
    """
    from ..reporting.studies.readers.readers_study import study_readers

    return _one(run, common, study_readers)


@study.command("subgroups")
@_RUN
@repeated(
    "--attributes",
    "tables",
    metavar="[NAME=]FILE",
    help="CSV file with the cases of the dataset NAME and columns of attributes.",
    default="the configured table, else the dataset's own files",
)
@repeated("--by", metavar="ATTRIBUTE", help="Attribute to group by.", default="all")
@_where
@_common
def _subgroups(run: Path | None, tables: tuple[str, ...], by: tuple[str, ...], places: Any, **common: Any) -> int:
    """Pointing, Dice, average precision and AUC by view, sex, age and other attributes, and gaps between groups.

    Attributes are read from the datasets where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.subgroups.subgroups_study import study_subgroups

    return _one(run, common, lambda material: study_subgroups(material, by=by, tables=tables, datasets=places))


@study.command("calibration")
@_RUN
@click.option("--no-maps", is_flag=True, help="Leave out quantile normalisation, which reads the stored maps.")
@_common
def _calibration(run: Path | None, no_maps: bool, **common: Any) -> int:
    """How much of delta Dice comes back by calibration on other patients: threshold, quantiles, isotonic, beta."""
    from ..reporting.studies.calibration_study import study_calibration

    return _one(run, common, lambda material: study_calibration(material, maps=not no_maps))


@study.command("trust")
@_RUN
@_common
def _trust(run: Path | None, **common: Any) -> int:
    """Is the map an explanation? Against chance, the finding's usual place, and other findings of the same image.

    Average precision, ROC AUC, energy, CNR and pointing of the stored maps, with a verdict for each question.
    """
    from ..trust.questions.trust_study import study_trust

    return _one(run, common, study_trust)


@study.command("prompts")
@_RUNS
@_shown(
    "--by",
    type=Choice(["model", "family"]),
    default="model",
    help="What stays the same while prompts change: the model, or its family and size.",
)
@_common
def _prompts(runs: tuple[Path, ...], by: str, **common: Any) -> int:
    """Several prompt sets side by side: of one run (eval --prompts), or of runs that differ in their prompts.

    The first variant is the reference of paired differences. Files go to the first run.
    """
    from ..reporting.studies.variant_studies import study_prompts

    return _study(runs, common, lambda materials: [study_prompts(materials, by=by)])


@study.command("resolution")
@_RUNS
@_common
def _resolution(runs: tuple[Path, ...], **common: Any) -> int:
    """Variants of a model family side by side, such as 224 and 448, with paired differences by size of the region.

    The coarsest grid is the reference. Files go to the first run.
    """
    from ..reporting.studies.variant_studies import study_resolution

    return _study(runs, common, lambda materials: [study_resolution(materials)])


@study.command("mechanisms")
@_RUNS
@_common
def _mechanisms(runs: tuple[Path, ...], **common: Any) -> int:
    """Saliency maps of one model side by side, such as attention and similarity (xbench-export --saliency).

    The authors' map is the reference of paired differences. Files go to the first run.
    """
    from ..reporting.studies.variant_studies import study_mechanisms

    return _study(runs, common, lambda materials: [study_mechanisms(materials)])


def _one(run: Path | None, common: dict[str, Any], ask: Callable[[Material], StudyOutcome]) -> int:
    """A study of each protocol of the run."""
    from ..reporting.studies.material import blocks_of
    from ..reporting.studies.study_outcome import of_protocol

    def by_protocol(materials: list[Material]) -> list[StudyOutcome]:
        outcomes, failed = [], list[tuple[str, XBenchError]]()
        for block in blocks_of(materials[0]):
            try:
                outcomes.append(of_protocol(ask(block), block.protocol))
            except (ConfigError, RunError) as error:
                failed.append((block.protocol, error))
        if not outcomes:
            raise failed[0][1]
        remarks = tuple(f"protocol {name}, not studied: {error}" for name, error in failed)
        return [replace(outcomes[0], remarks=(*outcomes[0].remarks, *remarks)), *outcomes[1:]]

    return _study(() if run is None else (run,), common, by_protocol)


def _study(runs: tuple[Path, ...], common: dict[str, Any], ask: Callable[[list[Material]], list[StudyOutcome]]) -> int:
    from ..reporting.studies.material import load_materials
    from ..reporting.studies.study_outcome import study_folder, write_outcomes
    from ..reporting.tables.console import print_line, print_table
    from ..results.selected_pairs import Resampling

    output: Output = common["output"]
    runs = runs or (resolve_config(common["config_file"]).eval.out,)
    sampling = Resampling(common["replicates"], common["seed"], common["level"])
    outcomes = ask(load_materials(runs, common["models"], common["datasets"], sampling))
    folder = common["out"] or study_folder(runs[0], outcomes[0].name)
    places = write_outcomes(outcomes, folder, raw_csv=common["raw_csv"])
    first, *others = (json.loads(written[-1].read_bytes()) for written in places)
    output.write(first | ({"other_protocols": others} if others else {}))
    console = output.console()
    for outcome in () if common["quiet"] or output.piped else outcomes:
        for table in outcome.tables:
            print_table(console, table)
        for line in (*outcome.facts, *outcome.remarks):
            print_line(console, line)
    for written in places:
        output.say(f"written: {len(written)} files in {written[-1].parent}")
    return 0
