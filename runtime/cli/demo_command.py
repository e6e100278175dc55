"""`xbench-fast demo`: the whole evaluation on data and a model that are in the package."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ...engines.commands import echo
from ...engines.errors import RunError
from .options.shared_options import Output

if TYPE_CHECKING:
    from ...demo.phantoms import Phantom
    from ..evaluation.progress import Progress
    from ..host.config import Config

PHANTOMS: Final = 240
NEXT: Final = (
    ("the same model over HTTP and gRPC, and a page", "xbench-fast serve --bundles {bundles}"),
    ("the pairs with the worst maps", "xbench-fast study failures {run}"),
    ("can the maps be believed?", "xbench-fast trust --config {config} --model {model} --dataset phantoms --limit 40"),
    ("models that can be exported from checkpoints", "xbench-export --list"),
    ("your own data, models, maps or boxes", "xbench-fast eval --help"),
)
"""What to do after the demo: (purpose, command)."""


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default="demo",
    show_default=True,
    help="Folder of the demo. Its results are in DIR/out.",
)
def demo(out: Path) -> int:
    """Evaluate a small model on phantoms and radiographs, and report it.

    Data and model are in the package: no GPU, no network and no torch are needed. 240 chest phantoms are drawn. The
    model is evaluated on them and on 40 radiographs with boxes of radiologists. Table 1 is printed, and a page is
    written to DIR/out/run/report/index.html. The same command continues an interrupted demo.

    The model was trained on phantoms alone. Its numbers on radiographs say nothing about a published model. The file
    DATA_CARD.md in DIR has the origin and the terms of all data.
    """
    echo(f"Demo of xbench-fast in {out}: a small model on {PHANTOMS} phantoms and 40 radiographs; a minute or two.")
    _step(1, f"copy radiographs, model and configuration to {out}")
    from ...demo.placing import MODEL, place_bundle, place_files
    from ...engines.select import choose
    from ..evaluation.progress import progress_for
    from ..host.config import load_config

    choose()  # raises EngineError before any work where no engine can run
    config_file = place_files(out)
    config = load_config(config_file)
    bundle = place_bundle(config.bundles[0])
    _refuse_another_run(config, bundle.name)
    _step(2, f"draw {PHANTOMS} phantoms")
    _draw(config.datasets["phantoms"].root, progress_for(Output().console()))
    from .evaluate_command import evaluate
    from .report_command import report

    for number, command, words in (
        (3, evaluate, ("eval", "--config", str(config_file), "--model", MODEL)),
        (4, report, ("report", str(config.eval.out))),
    ):
        _step(number, shlex.join(("xbench-fast", *words)))
        status: int = command.main(words[1:], f"xbench-fast {words[0]}", standalone_mode=False)
        if status:
            return status
    echo(f"\nDone. Open {config.eval.out / 'report' / 'index.html'} in a browser. Then, for example:")
    for purpose, line in next_lines(config, config_file, bundle.name):
        echo(f"  {line}\n      {purpose}")
    return 0


def next_lines(config: Config, config_file: Path, model: str) -> Sequence[tuple[str, str]]:
    """(Purpose, command for a shell) of each line of NEXT, for a demo with this configuration."""
    names = {"bundles": config.bundles[0], "run": config.eval.out, "config": config_file, "model": model}
    quoted = {name: shlex.quote(str(value)) for name, value in names.items()}
    return [(purpose, line.format(**quoted)) for purpose, line in NEXT]


def _step(number: int, what: str) -> None:
    echo(f"\n[{number}/4] {what}")


def _refuse_another_run(config: Config, model: str) -> None:
    """Raises RunError if the run directory of the demo has cells, and none of them is the demo's."""
    from ..results.run_json import RUN_FILE, read_run

    if not (config.eval.out / RUN_FILE).exists():
        return
    cells = read_run(config.eval.out)["cells"].values()
    if cells and not any(cell["model"] == model for cell in cells):
        raise RunError(f"{config.eval.out} is the run directory of another evaluation; give another folder with --out.")


def _draw(folder: Path, progress: Progress) -> None:
    """Draws the phantoms that the model never saw, unless all of them are in `folder`."""
    from ...demo.phantoms import is_drawn, phantoms, write

    if is_drawn(folder, "test", PHANTOMS):
        progress.say(f"{folder} has them")
        return
    with progress.cell("phantoms", PHANTOMS, "phantoms") as advance:

        def counted() -> Iterator[Phantom]:
            for item in phantoms("test", PHANTOMS):
                yield item
                advance(1)

        regions = write(folder, counted())
    progress.say(", ".join(f"{name} {count}" for name, count in regions.items()))
