"""Options that every study has, and how its question is asked of a run and its answer written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ...engines.commands import echo
from ...engines.errors import ConfigError, RunError, XBenchError
from ...metrics_gpu.statistics.bootstrap import REPLICATES
from ..host.config import Config
from ..results.choices import Choices
from .options.completing import RUN_DATASETS, RUN_MODELS
from .options.declared_options import options_of
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
_shown = partial(click.option, show_default=True)


def study_options(function: F) -> F:
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


def with_places(function: F) -> F:
    """--data and --data-option, with the configured datasets, given to the command as `places`."""

    @data_options
    @wraps(function)
    def wrapped(*args: Any, data: Any, data_options: Any, **rest: Any) -> Any:
        configured = resolve_config(rest["config_file"], (), data, data_options).datasets
        return function(*args, places=configured, **rest)

    return cast(F, wrapped)


def of_each_protocol(
    run: Path | None, common: dict[str, Any], ask: Callable[[Material], StudyOutcome], own: bool = False
) -> int:
    """A study of each protocol of the run; own: with the metrics of the configuration."""
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

    return of_runs(() if run is None else (run,), common, by_protocol, own)


def of_runs(
    runs: tuple[Path, ...],
    common: dict[str, Any],
    ask: Callable[[list[Material]], list[StudyOutcome]],
    own: bool = True,
) -> int:
    """The studies that `ask` makes of the runs, printed and written; own: with the metrics of the configuration."""
    from ..host.pyarrow_alone import without_pandas
    from ..reporting.studies.material import load_materials
    from ..reporting.studies.study_outcome import study_folder, write_outcomes
    from ..reporting.tables.console import print_line, print_table
    from ..results.selected_pairs import Resampling

    without_pandas()
    output: Output = common["output"]
    config = Config() if runs and common["config_file"] is None else resolve_config(common["config_file"])
    metrics = Choices.metrics_of(config.metrics) if own else ()
    for line in config.own_metrics() if own else ():
        echo(line, err=True)
    runs = runs or (config.eval.out,)
    sampling = Resampling(common["replicates"], common["seed"], common["level"])
    outcomes = ask(load_materials(runs, common["models"], common["datasets"], sampling, metrics))
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
