"""`xbench-fast study`: one question about the results of a run, answered from what the run stored."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ...engines.commands import Choice, LazyGroup, echo
from ..asking.ask_options import AskOptions
from .options.declared_options import options_of, repeated
from .options.examples import examples
from .options.shared_options import resolve_config
from .study_runs import of_each_protocol, of_runs, study_options, with_places

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


@study.command("thresholds")
@_RUN
@_shown(
    "--within",
    type=click.FloatRange(0, 50),
    default=5.0,
    help="Maximum loss of Dice, in percent of the best, at thresholds that count as near-best.",
)
@repeated(
    "--at",
    type=float,
    metavar="TAU",
    help="Fixed threshold to score, one of the 101 steps 0, 0.01 to 1.",
    default="0.1, 0.3, 0.5, 0.7 and 0.9",
)
@study_options
def _thresholds(run: Path | None, within: float, at: tuple[float, ...], **common: Any) -> int:
    """Dice and IoU at every threshold and at fixed ones, delta Dice, and how peaked the maps are."""
    from ..reporting.studies.fixed_thresholds import AT
    from ..reporting.studies.thresholds_study import study_thresholds

    return of_each_protocol(run, common, lambda material: study_thresholds(material, within / 100, at or AT))


@study.command("correlation")
@_RUN
@study_options
def _correlation(run: Path | None, **common: Any) -> int:
    """Does AUC predict pointing? R² with intervals, rank correlation, leaving one model out."""
    from ..reporting.studies.correlation_study import study_correlation

    return of_each_protocol(run, common, study_correlation)


@study.command("gap")
@_RUN
@_shown("--auc", type=click.FloatRange(0, 1), default=0.8, help="AUC from which on a finding is recognised.")
@_shown("--pointing", type=click.FloatRange(0, 1), default=0.5, help="Pointing from which on a finding is grounded.")
@_shown("--top", type=click.IntRange(min=0), default=3, help="Findings of each list that have examples, per model.")
@_shown("--cases", type=click.IntRange(min=0), default=2, help="Examples of each of these findings.")
@_NO_OVERLAYS
@with_places
@study_options
def _gap(run: Path | None, auc: float, pointing: float, no_overlays: bool, places: Any, **common: Any) -> int:
    """Findings that are recognised but not grounded, and the reverse: AUC and pointing of each finding and model.

    Radiographs are read where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.gap.finding_points import Quadrants
    from ..reporting.studies.gap.gap_study import study_gap

    bounds = Quadrants(auc, pointing, common["level"])
    drawing = {"overlays": not no_overlays, "datasets": places, "top": common.pop("top"), "cases": common.pop("cases")}
    return of_each_protocol(run, common, lambda material: study_gap(material, bounds, **drawing))


@study.command("groups")
@_RUN
@repeated(
    "--division", "chosen", metavar="NAME", help="Table [groups.NAME] to use.", default="all of the configuration"
)
@_shown("--over", type=Choice(["both", "patients", "models"]), default="both", help="What intervals are over.")
@study_options
def _groups(run: Path | None, chosen: tuple[str, ...], over: str, **common: Any) -> int:
    """Groups of models side by side, such as general and medical ones, and residuals from the line of AUC and pointing.

    The configuration names the groups: a table [groups.NAME] has a list of models for each group.
    """
    from ..reporting.studies.groups.groups_study import study_groups

    divisions = resolve_config(common["config_file"]).groups
    return of_each_protocol(
        run, common, lambda material: study_groups(material, divisions, chosen=chosen, over=over), own=True
    )


@study.command("strata")
@_RUN
@study_options
def _strata(run: Path | None, **common: Any) -> int:
    """Pointing and Dice by size of the region: fixed edges and thirds."""
    from ..reporting.studies.strata_study import study_strata

    return of_each_protocol(run, common, study_strata)


@study.command("failures")
@_RUN
@_shown("--top", type=click.IntRange(min=1), default=3, help="Number of classes to show at each end.")
@_shown("--cases", type=click.IntRange(min=0), default=3, help="Number of cases to show of each class.")
@_NO_OVERLAYS
@with_places
@study_options
def _failures(run: Path | None, top: int, cases: int, no_overlays: bool, places: Any, **common: Any) -> int:
    """The best and worst classes of each model and their cases, with overlays as PNG.

    Radiographs are read where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.failures_study import study_failures

    drawing = {"overlays": not no_overlays, "datasets": places}
    return of_each_protocol(run, common, lambda material: study_failures(material, top=top, cases=cases, **drawing))


@study.command("errors")
@_RUN
@_shown("--cases", type=click.IntRange(min=0), default=1, help="Number of examples of each kind of error.")
@_NO_OVERLAYS
@with_places
@study_options
def _errors(run: Path | None, cases: int, no_overlays: bool, places: Any, **common: Any) -> int:
    """The kinds of errors of boxes, and of maps at 0.5 and at the best threshold, and what fixing one would gain.

    Radiographs are read where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.errors_study import study_errors

    drawing = {"overlays": not no_overlays, "datasets": places}
    return of_each_protocol(run, common, lambda material: study_errors(material, cases=cases, **drawing))


@study.command("asked")
@_RUN
@options_of(AskOptions, "prices")
@study_options
def _asked(run: Path | None, prices: str | None, **common: Any) -> int:
    """The answers of models that ask asked: refusals, tokens, latency, and cost by the given prices.

    The log of answers beside each evaluated file is read.
    """
    from ..asking.ask_rules import prices as prices_of
    from ..reporting.studies.asked.asked_study import study_asked

    given = prices_of(prices)
    return of_each_protocol(run, common, lambda material: study_asked(material, given))


@study.command("readers")
@_RUN
@study_options
def _readers(run: Path | None, **common: Any) -> int:
    """Agreement between readers, and models compared with a radiologist on the same pairs.

    The run needs a reader's row, from eval --model reader:radiologist or reader:second.
    """
    from ..reporting.studies.readers.readers_study import study_readers

    return of_each_protocol(run, common, study_readers)


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
@with_places
@study_options
def _subgroups(run: Path | None, tables: tuple[str, ...], by: tuple[str, ...], places: Any, **common: Any) -> int:
    """Pointing, Dice, average precision and AUC by view, sex, age and other attributes, and gaps between groups.

    Attributes are read from the datasets where the evaluation found them. --data names another folder.
    """
    from ..reporting.studies.subgroups.subgroups_study import study_subgroups

    return of_each_protocol(
        run, common, lambda material: study_subgroups(material, by=by, tables=tables, datasets=places)
    )


@study.command("calibration")
@_RUN
@click.option("--no-maps", is_flag=True, help="Leave out quantile normalisation, which reads the stored maps.")
@study_options
def _calibration(run: Path | None, no_maps: bool, **common: Any) -> int:
    """How much of delta Dice comes back by calibration on other patients: threshold, quantiles, isotonic, beta."""
    from ..reporting.studies.calibration_study import study_calibration

    return of_each_protocol(run, common, partial(study_calibration, maps=not no_maps, say=partial(echo, err=True)))


@study.command("trust")
@_RUN
@study_options
def _trust(run: Path | None, **common: Any) -> int:
    """Is the map an explanation? Against chance, the finding's usual place, and other findings of the same image.

    Average precision, ROC AUC, energy, CNR and pointing of the stored maps, with a verdict for each question.
    """
    from ..trust.questions.trust_study import study_trust

    return of_each_protocol(run, common, study_trust)


@study.command("prompts")
@_RUNS
@_shown(
    "--by",
    type=Choice(["model", "family"]),
    default="model",
    help="What stays the same while prompts change: the model, or its family and size.",
)
@study_options
def _prompts(runs: tuple[Path, ...], by: str, **common: Any) -> int:
    """Several prompt sets side by side: of one run (eval --prompts), or of runs that differ in their prompts.

    The first variant is the reference of paired differences. Files go to the first run.
    """
    from ..reporting.studies.variant_studies import study_prompts

    return of_runs(runs, common, lambda materials: [study_prompts(materials, by=by)])


@study.command("resolution")
@_RUNS
@study_options
def _resolution(runs: tuple[Path, ...], **common: Any) -> int:
    """Variants of a model family side by side, such as 224 and 448, with paired differences by size of the region.

    The coarsest grid is the reference. Files go to the first run.
    """
    from ..reporting.studies.resolution_study import study_resolution

    return of_runs(runs, common, lambda materials: [study_resolution(materials)])


@study.command("mechanisms")
@_RUNS
@study_options
def _mechanisms(runs: tuple[Path, ...], **common: Any) -> int:
    """Saliency maps of one model side by side, such as attention and similarity (xbench-export --saliency).

    The authors' map is the reference of paired differences. Files go to the first run.
    """
    from ..reporting.studies.variant_studies import study_mechanisms

    return of_runs(runs, common, lambda materials: [study_mechanisms(materials)])
