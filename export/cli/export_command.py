"""The command `xbench-export`: a checkpoint becomes a bundle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ...engines.commands import WRONG_USAGE, Choice, LazyGroup, echo, limit_blas, show_log, show_usage_error
from ...engines.errors import ConfigError, XBenchError
from ...engines.plans.family import FAMILIES, GPU_BATCH
from ..models.published_checkpoints import PUBLISHED
from ..models.saliency_maps import ATTENTION_MAPS, PATCH_MAPS, PATCH_TEXT
from .flags import HELP, Flags, complete_maps, complete_models, models_named, precision_options
from .models_in_config import DEFAULT_FILE, ModelEntry, importable

if TYPE_CHECKING:
    from ..pipeline import ExportResult

_COMMANDS = {
    "wrap": (".wrap_command:wrap_command", "Make a bundle from a ready ONNX file."),
    "plan": (".plan_command:plan_command", "Build TensorRT plans of bundles for this machine's GPU."),
    "triton": (".triton_command:triton_command", "Write a Triton model repository from bundles."),
}
_say = partial(echo, err=True)
_folder = partial(click.option, metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_file = partial(click.option, metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))


@click.group(
    "xbench-export",
    cls=LazyGroup,
    targets=_COMMANDS,
    package=__package__,
    invoke_without_command=True,
    subcommand_metavar="[wrap|plan|triton ...]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
    epilog="A bundle is written whole or not at all: the graphs are first compared with the model in PyTorch, in "
    "batches of several sizes. Nothing is fetched from the network. Exit status: 0 done, 1 not possible (the reason is "
    "on standard error), 2 wrong options, 130 interrupted, 141 the reader of a pipe went away.",
)
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_models,
    help=f"Model to export: {', '.join(PUBLISHED)}; all: the paper's seven; everything: each of these; an installed "
    "one; one of [models] in xbench.toml; module:Class; or path/to/file.py:Class. Can be repeated for built-in models.",
)
@click.option("--family", metavar="NAME", help=HELP["family"])
@click.option("--arch", metavar="NAME", help=HELP["arch"])
@click.option("--name", metavar="NAME", show_default="the family", help="Name of the model of --family.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Weight file of the authors (--list says where it is published) or of your own training, or a folder in the "
    "layout of Hugging Face, with model.safetensors, pytorch_model.bin or shards.",
)
@_folder("--checkpoints", help="Folder with the weight files of several models.")
@_folder(
    "--out",
    show_default="the first of 'bundles' in xbench.toml",
    help="Folder for the bundle, which is named <model>-<variant>.",
)
@click.option(
    "--weights",
    type=Choice(["published", "stand-in"]),
    default="published",
    help="Weights to export. published: from --checkpoint; a file with an unknown sha256 counts as published only "
    "with --source, otherwise as own. stand-in: made-up weights of the same shapes, to test the export.",
)
@click.option(
    "--source",
    metavar="TEXT",
    help="Place where the authors published the file of --checkpoint. The bundle and every report print it.",
)
@click.option(
    "--variant",
    metavar="NAME",
    show_default="the model's first",
    help="Stand-in to make. "
    + "; ".join(f"{model}: {', '.join(facts.stand_ins)}" for model, facts in PUBLISHED.items())
    + ".",
)
@click.option("--resolution", type=click.IntRange(32, 4096), help=HELP["resolution"])
@_folder("--tokenizer", help="Folder with vocab.txt or tokenizer.json of the text encoder.")
@click.option("--text-encoder", type=click.Path(path_type=Path), help=HELP["text_encoder"])
@_file("--config", show_default=f"./{DEFAULT_FILE} if it exists", help="Configuration file.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    multiple=True,
    help="YAML or JSON file of prompts, whose sets replace or add to the built-in ones. MedKLIP, MAVL: a checkout of "
    "the authors' repository, or its JSON files, for the official sentences. Can be repeated.",
)
@click.option(
    "--saliency",
    metavar="NAME",
    shell_complete=complete_maps,
    show_default="the authors' own",
    help="Saliency map. Models with attention: "
    f"{', '.join((*ATTENTION_MAPS, PATCH_TEXT))}; -raw: the scores before the softmax, -head-max: the maximum over the "
    f"heads. CLIP, BiomedCLIP: {', '.join(PATCH_MAPS)}. --list describes each. A map that is not the authors' "
    "becomes part of the variant's name.",
)
@precision_options
@click.option(
    "--backend",
    type=Choice(["onnx", *FAMILIES]),
    default="onnx",
    help="Form to export. onnx: the graphs of the bundle, which every engine runs. tensorrt, tensorrt-rtx: a plan for "
    "the GPU of this machine too, in the types of --precision.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=GPU_BATCH,
    help="Maximum batch of the plan. eval needs a plan for its --batch.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of stand-in weights.")
@click.option("--force", is_flag=True, help="Replace an existing bundle.")
@click.option(
    "--list", "listing", is_flag=True, help="List the files, sources and licences of all models, or of --model."
)
@click.pass_context
def command(context: click.Context, /, **_: Any) -> int:
    """Turn a published checkpoint into a bundle that every engine runs.

    \b
    Examples:
      xbench-export --list
      xbench-export --model kad --checkpoint best_valid.pt --tokenizer Med-KEBERT --out bundles
      xbench-export --model clip --weights stand-in --variant vit-b-32 --out bundles
      xbench-export --model all --checkpoints downloads --out bundles
      xbench-export --model mine --config xbench.toml
      xbench-export --family open_clip --arch ViT-B-16 --checkpoint epoch_32.pt --name mine --out bundles

    The bundle holds image.onnx (grey 8-bit pixels and text features in, logits and saliency out), text.onnx, and the
    prompt sets of the seven datasets, already encoded.

    A prompt file maps set names to findings to texts, in the order to be asked:

    \b
      rsna:
        Pneumonia: [pneumonia]                       # positive texts
      my_set:
        Effusion: {positive: [fluid], negative: [no fluid]}

    A text that is itself a list is one query of several texts (MAVL: a description and eight aspects).

    A model of your own is a table of xbench.toml: its family or class, and any option but --out and --force.

    \b
      [models.mine]
      family = "open_clip"
      arch = "ViT-B-16"
      checkpoint = "weights.pt"
      [models.other]
      class = "my_package.my_model:MyModel"        # or "path/to/file.py:Class"
      checkpoint = "weights.pt"

    With several models (--model all, everything, or --model kad --model clip) each of their files found in
    --checkpoints is exported, in a separate process. --tokenizer DIR and --prompts DIR then mean the folder of the
    model's name inside DIR, and --text-encoder DIR that folder or, for MedKLIP and MAVL, DIR itself.
    Other models, also from [models], are exported by their own names.
    """
    if context.invoked_subcommand is not None:
        return 0
    flags = Flags.read(context)
    if flags.listing:
        from .list_models import list_models

        named = models_named(flags.models) or tuple(flags.table.find(name).name for name in flags.models)
        echo("\n".join(list_models(flags.checkpoints, flags.table, named)))
        return 0
    if bool(flags.models) == (flags.family is not None):
        raise click.UsageError("Give --model or --family, one of the two (or --list to see the models).")
    if flags.out is None:
        raise click.UsageError("Give --out, the folder for the bundle, or write 'bundles' in xbench.toml.")
    if models := models_named(flags.models):
        from .all_models import export_all

        return export_all(models, flags, _say)
    entry = flags.entry()
    flags = flags.joined(entry, context)
    flags.check()
    if flags.backend != "onnx":
        from .plan_command import build_plans, require_backend

        require_backend(flags.backend)
    result = _export(entry, flags)
    _summary(result)
    if flags.backend != "onnx":
        build_plans([result.bundle], flags.backend, flags.batch, say=_say)
    return 0


def _export(entry: ModelEntry, flags: Flags) -> ExportResult:
    from ..bundle_options import BundleOptions, Int8Options
    from ..pipeline import ModelSource, export_bundle
    from ..prompts.from_files import read_prompts

    metrics, trial, int8 = None, None, Int8Options()
    if flags.precision != "fp32":
        from .radiographs import EvaluationMetrics, open_radiographs

        metrics = EvaluationMetrics()
        texts = (flags.parity_data, flags.calibration)
        trial, calibration = open_radiographs(texts, flags.table, flags.data_option, _say)
        int8 = Int8Options(calibration, flags.int8_form, flags.percentile, flags.keep_float)

    assert flags.out is not None
    for line in flags.table.own_code(entry):
        _say(line)
    model_options = {"resolution": flags.resolution, "text_encoder": flags.text_encoder, **entry.options}
    if entry.family:  # its tokenizer is part of the model
        model_options["tokenizer"] = flags.tokenizer
    source = ModelSource(
        entry.target,
        entry.name,
        flags.checkpoint,
        flags.variant,
        flags.seed,
        flags.saliency,
        options=model_options,
        statement=flags.source,
    )
    with importable(flags.table.path):
        prompts = read_prompts(entry.target, flags.prompts)
        options = BundleOptions(
            flags.tokenizer,
            prompts,
            flags.precision,
            metrics,
            trial,
            flags.accept,
            int8,
            flags.force,
            progress=_say,
        )
        return export_bundle(source, flags.out, options)


def _summary(result: ExportResult) -> None:
    manifest = result.bundle.manifest
    size = sum(record.bytes for record in manifest.files.values()) / 1e6
    echo(str(result.bundle.path))
    echo(
        f"  {manifest.weights} weights, {len(manifest.prompt_sets)} prompt sets, {size:.0f} MB; parity: "
        f"{len(result.report.checks)} comparisons, largest error {result.report.needed:.1e} of full scale; "
        f"{sum(result.seconds.values()):.0f} s, {result.peak_memory_mib:.0f} MiB at most\n  {result.cost}",
        err=True,
    )


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Ends by an exception, so that unfinished files are removed."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    limit_blas()
    show_log()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        status = command.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except click.ClickException as error:
        show_usage_error(error)
        return error.exit_code
    except XBenchError as error:
        echo(f"xbench-export: {error}", err=True)
        return WRONG_USAGE if isinstance(error, ConfigError) else 1
    except OSError as error:
        where = error.filename if error.filename is not None else "the output"
        echo(f"xbench-export: {where} cannot be used: {error.strerror or error}; check it and its disk.", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        echo("xbench-export: interrupted; nothing was left behind.", err=True)
        return 130
    return status if isinstance(status, int) else 0
