"""The command `xbench-export`: a checkpoint becomes a bundle."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from ..engines.errors import ConfigError, XBenchError

if TYPE_CHECKING:
    from .pipeline import ExportResult

__all__ = ["command", "main"]

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    "xbench-export",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="A bundle is written whole or not at all: the graphs are first compared with the model in PyTorch, in "
    "batches of several sizes. Nothing is fetched from the network. Exit status: 0 done, 1 not possible (the reason is "
    "on standard error), 2 wrong options, 130 interrupted.",
)
@click.option("--model", metavar="NAME", help="Model to export: kad, clip, an installed one, or path/to/file.py:Class.")
@click.option("--checkpoint", type=_FILE, help="The authors' weight file; see --list for where it is published.")
@click.option("--out", type=_FOLDER, help="Folder for the bundle, which is named <model>-<variant>.")
@click.option(
    "--weights",
    type=click.Choice(["published", "stand-in"]),
    default="published",
    show_default=True,
    help="published: read --checkpoint. stand-in: made-up weights of the true shapes, to try the machinery.",
)
@click.option("--variant", metavar="NAME", help="Which stand-in to make, e.g. 224, 512, 1024, vit-b-32, vit-b-16.")
@click.option(
    "--resolution", type=click.IntRange(32, 4096), help="KAD: side of the input image, if the file is silent."
)
@click.option("--tokenizer", type=_FOLDER, help="Folder with vocab.txt or tokenizer.json of the text encoder.")
@click.option("--prompts", type=_FILE, help="YAML or JSON with prompt sets that replace or add to the built-in ones.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of stand-in weights.")
@click.option("--force", is_flag=True, help="Replace an existing bundle.")
@click.option("--list", "listing", is_flag=True, help="List models, variants, where to get them and their licences.")
def command(
    model: str | None,
    checkpoint: Path | None,
    out: Path | None,
    weights: str,
    variant: str | None,
    resolution: int | None,
    tokenizer: Path | None,
    prompts: Path | None,
    seed: int,
    force: bool,
    listing: bool,
) -> None:
    """Turn a published checkpoint into a bundle that every engine runs.

    \b
    Examples:
      xbench-export --list
      xbench-export --model kad --checkpoint best_valid.pt --tokenizer Med-KEBERT --out bundles
      xbench-export --model clip --weights stand-in --variant vit-b-32 --out bundles

    The bundle holds image.onnx (grey 8-bit pixels and text features in, logits and saliency out), text.onnx, and the
    prompt sets of the seven datasets, already encoded.

    A prompt file maps set names to findings to texts, in the order to be asked:

    \b
      rsna:
        Pneumonia: [pneumonia]                       # positive texts
      my_set:
        Effusion: {positive: [fluid], negative: [no fluid]}
    """
    if listing:
        _list()
        return
    if model is None or out is None:
        raise click.UsageError("Give --model and --out (or --list to see the models).")
    _check_weights(weights, checkpoint, variant, resolution)
    from .pipeline import export_bundle
    from .prompts import read_prompt_file

    result = export_bundle(
        model,
        out,
        checkpoint=checkpoint,
        variant=variant,
        resolution=resolution,
        seed=seed,
        tokenizer=tokenizer,
        prompts=read_prompt_file(prompts) if prompts is not None else None,
        force=force,
        progress=lambda line: click.echo(line, err=True),
    )
    _summary(result)


def _check_weights(weights: str, checkpoint: Path | None, variant: str | None, resolution: int | None) -> None:
    if weights == "published" and checkpoint is None:
        raise click.UsageError("Give --checkpoint FILE (see --list), or --weights stand-in for made-up weights.")
    if weights == "stand-in" and checkpoint is not None:
        raise click.UsageError("--checkpoint and --weights stand-in exclude each other.")
    if weights == "stand-in" and resolution is not None:
        raise click.UsageError("--resolution belongs to a checkpoint; choose a stand-in with --variant.")
    if checkpoint is not None and not checkpoint.is_file():
        raise ConfigError(f"There is no file {checkpoint}; give the path of the checkpoint (see --list).")


def _summary(result: ExportResult) -> None:
    manifest = result.bundle.manifest
    size = sum(record.bytes for record in manifest.files.values()) / 1e6
    click.echo(str(result.bundle.path))
    click.echo(
        f"  {manifest.weights} weights, {len(manifest.prompt_sets)} prompt sets, {size:.0f} MB; parity: "
        f"{len(result.report.checks)} comparisons, largest error {result.report.needed:.1e} of full scale; "
        f"{sum(result.seconds.values()):.0f} s, {result.peak_memory_mib:.0f} MiB at most",
        err=True,
    )


def _list() -> None:
    from .models import MODELS
    from .published import PUBLISHED

    for name in MODELS.names():
        facts = PUBLISHED.get(name)
        if facts is None:
            click.echo(f"{name}: installed by another package")
            continue
        click.echo(f"{name}: {facts.title}")
        for variant, file in facts.variants.items():
            click.echo(f"  {variant:<9} {file}")
        click.echo(f"  where     {facts.where}")
        click.echo(f"  licence   {facts.licence}")
        click.echo(f"  text      {facts.text}")


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Ends by an exception, so that unfinished files are removed on the way out."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        command.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except XBenchError as error:
        click.echo(f"xbench-export: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("xbench-export: interrupted; nothing was left behind.", err=True)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
