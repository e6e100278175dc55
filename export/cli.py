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
from .lazy_group import LazyGroup
from .shared_options import Shared

if TYPE_CHECKING:
    from .pipeline import ExportResult

__all__ = ["command", "main"]

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(
    "xbench-export",
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="[wrap ...]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="A bundle is written whole or not at all: the graphs are first compared with the model in PyTorch, in "
    "batches of several sizes. Nothing is fetched from the network. Exit status: 0 done, 1 not possible (the reason is "
    "on standard error), 2 wrong options, 130 interrupted.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="biomedclip, carzero, clip, devide, kad, mavl, medklip; all of them in turn (all); an installed one; or "
    "path/to/file.py:Class.",
)
@click.option("--checkpoint", type=_FILE, help="The authors' weight file; see --list for where it is published.")
@click.option(
    "--checkpoints", type=_FOLDER, help="Folder with the files of several models, for --model all and --list."
)
@click.option("--out", type=_FOLDER, help="Folder for the bundle, which is named <model>-<variant>.")
@click.option(
    "--weights",
    type=click.Choice(["published", "stand-in"]),
    default="published",
    show_default=True,
    help="published: read --checkpoint. stand-in: made-up weights of the true shapes, to try the machinery.",
)
@click.option(
    "--variant",
    metavar="NAME",
    help="Which stand-in to make: KAD 224 (default), 512, 1024, demo; CLIP vit-b-32 (default), vit-b-16; the others "
    "have one: BiomedCLIP, CARZero vit-b-16; MedKLIP, MAVL 224; DeViDe assumed-architecture.",
)
@click.option(
    "--resolution", type=click.IntRange(32, 4096), help="KAD: side of the input image, if the file is silent."
)
@click.option("--tokenizer", type=_FOLDER, help="Folder with vocab.txt or tokenizer.json of the text encoder.")
@click.option(
    "--text-encoder",
    type=click.Path(path_type=Path),
    help="MedKLIP, MAVL: weights of Bio_ClinicalBERT, which their files do not hold (a folder or a file).",
)
@click.option("--config", type=_FILE, help="DeViDe: YAML or JSON with its sizes and which tensor of the file is which.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    multiple=True,
    help="YAML or JSON with prompt sets that replace or add to the built-in ones; MedKLIP, MAVL: a checkout of the "
    "authors' repository, or its JSON files, for the official sentences. Can be repeated.",
)
@click.option(
    "--saliency",
    metavar="NAME",
    help="Another map than the authors' own: layer-mean (KAD), last-layer (MedKLIP, MAVL, CARZero), value-value "
    "(CLIP, BiomedCLIP: value-value attention in the last block). It becomes part of the variant's name.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16"]),
    default="fp32",
    show_default=True,
    help="Types in image.onnx. With fp16 softmax and norms stay fp32; the report says what it does to the metrics.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of stand-in weights.")
@click.option("--force", is_flag=True, help="Replace an existing bundle.")
@click.option("--list", "listing", is_flag=True, help="List models, their files, where to get them, their licences.")
@click.pass_context
def command(
    context: click.Context,
    model: str | None,
    checkpoint: Path | None,
    checkpoints: Path | None,
    out: Path | None,
    weights: str,
    variant: str | None,
    resolution: int | None,
    tokenizer: Path | None,
    text_encoder: Path | None,
    config: Path | None,
    prompts: tuple[Path, ...],
    saliency: str | None,
    precision: str,
    seed: int,
    force: bool,
    listing: bool,
) -> int:
    """Turn a published checkpoint into a bundle that every engine runs.

    \b
    Examples:
      xbench-export --list
      xbench-export --model kad --checkpoint best_valid.pt --tokenizer Med-KEBERT --out bundles
      xbench-export --model clip --weights stand-in --variant vit-b-32 --out bundles
      xbench-export --model all --checkpoints downloads --out bundles

    The bundle holds image.onnx (grey 8-bit pixels and text features in, logits and saliency out), text.onnx, and the
    prompt sets of the seven datasets, already encoded.

    A prompt file maps set names to findings to texts, in the order to be asked:

    \b
      rsna:
        Pneumonia: [pneumonia]                       # positive texts
      my_set:
        Effusion: {positive: [fluid], negative: [no fluid]}

    A text that is itself a list is one query of several texts (MAVL: a description and eight aspects).

    With --model all every file found in --checkpoints is exported, each in a process of its own; --tokenizer DIR and
    --prompts DIR then mean the folder of the model's name inside DIR.
    """
    if context.invoked_subcommand is not None:
        return 0
    if listing:
        _list(checkpoints)
        return 0
    if model is None or out is None:
        raise click.UsageError("Give --model and --out (or --list to see the models).")
    if model == "all":
        _check_all(weights, checkpoint, checkpoints, variant, resolution)
        if saliency is not None:
            raise click.UsageError("--saliency names one model's map; --model all takes the official ones.")
        common = ["--out", str(out), "--seed", str(seed), "--precision", precision, *(["--force"] if force else [])]
        return _export_all(checkpoints, Shared(common, tokenizer, text_encoder, config, prompts))
    _check_weights(weights, checkpoint, variant, resolution)
    if checkpoints is not None:
        raise click.UsageError("--checkpoints goes with --model all or --list; give one file with --checkpoint.")
    from .pipeline import export_bundle
    from .prompt_sources import read_prompts

    result = export_bundle(
        model,
        out,
        checkpoint=checkpoint,
        variant=variant,
        seed=seed,
        tokenizer=tokenizer,
        prompts=read_prompts(model, prompts),
        force=force,
        progress=_say,
        saliency=saliency,
        precision=precision,
        resolution=resolution,
        text_encoder=text_encoder,
        config=config,
    )
    _summary(result)
    return 0


def _say(line: str) -> None:
    click.echo(line, err=True)


def _check_all(
    weights: str, checkpoint: Path | None, checkpoints: Path | None, variant: str | None, resolution: int | None
) -> None:
    if checkpoint is not None or variant is not None or resolution is not None:
        raise click.UsageError("--model all takes neither --checkpoint, --variant nor --resolution.")
    if (checkpoints is None) != (weights == "stand-in"):
        raise click.UsageError("With --model all give --checkpoints DIR or --weights stand-in, one of the two.")
    if checkpoints is not None and not checkpoints.is_dir():
        raise ConfigError(f"There is no folder {checkpoints}; give the folder with the checkpoints (see --list).")


def _export_all(checkpoints: Path | None, shared: Shared) -> int:
    from .export_all import plan, run_all, summary

    outcomes = run_all(plan(checkpoints, shared), _say)
    for line in summary(outcomes):
        _say(line)
    return 1 if any(outcome.reason for outcome in outcomes) else 0


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


def _list(checkpoints: Path | None) -> None:
    from .listing import list_models

    for line in list_models(checkpoints):
        click.echo(line)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Ends by an exception, so that unfinished files are removed on the way out."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        status = command.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except XBenchError as error:
        click.echo(f"xbench-export: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("xbench-export: interrupted; nothing was left behind.", err=True)
        return 130
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
