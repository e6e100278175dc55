"""The options of `xbench-export`: options of a lower precision, values joined with a model's entry in `xbench.toml`,
and checks on combinations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ...engines.commands import Choice, data_option
from ...engines.errors import ConfigError, XBenchError
from ...engines.manifest import PAPER_MODELS
from ...engines.precisions import PRECISIONS
from ...engines.quantised import FORMS
from ...engines.registry import did_you_mean
from ..bundle_options import ACCEPT
from ..models.model_registry import MODELS
from ..models.published_checkpoints import PUBLISHED
from ..models.saliency_maps import ATTENTION_MAPS, MAPS, PATCH_MAPS
from .models_in_config import ModelEntry, ModelTable, of_family, read_models

F = TypeVar("F", bound=Callable[..., Any])
_GROUPS = {"all": PAPER_MODELS, "everything": tuple(PUBLISHED)}

HELP = {
    "family": "Family of a model that needs no adapter. open_clip (with --arch) and transformers (CLIP or SigLIP, with "
    "the folder of config.json as --checkpoint) take everything else from the model's own configuration. dual (two "
    "towers with projections) and classifier (a tower with a linear head) have options in xbench.toml.",
    "arch": "Name of the architecture in open_clip, or its open_clip_config.json. dual, classifier: the image tower, "
    "as timm:NAME, torchvision:NAME or a folder with a config.json of transformers.",
    "text_encoder": "Weights of the text encoder, a file or folder. MedKLIP, MAVL: weights of Bio_ClinicalBERT, which "
    "their files do not hold. BioViL, BioViL-T: the text weights, if they are not in the folder of the image file. "
    "dual: the folder with the config.json of the text tower.",
    "resolution": "Side of the picture in pixels, a multiple of the patch. At another size than the weights were "
    "trained with, positions are resampled and convolutions run on more or fewer cells; the variant ends in -at-SIDE, "
    "and the bundle and every table say it. KAD: also says which size its file is of, where the file does not.",
}

_ALWAYS = (
    "out",
    "seed",
    "precision",
    "parity_data",
    "data_option",
    "accept",
    "calibration",
    "percentile",
    "int8_for",
    "keep_float",
    "backend",
    "batch",
    "force",
)  # what several models are given as it is


_PRECISION_OPTIONS = (
    click.option(
        "--precision",
        type=Choice(PRECISIONS),
        default=PRECISIONS[0],
        help="Type of weights and matrix products. Softmax, norms, reductions, the last products, inputs and outputs "
        "stay fp32. The parity report says how tensors and metrics change. int8 is for the image graph on ONNX Runtime "
        "on a CPU or on TensorRT, and needs --calibration. bf16 is for TensorRT: ONNX Runtime emulates it on a CPU, "
        "and with CUDA it may leave the pooling of models with a ResNet or a DenseNet to the CPU.",
    ),
    click.option(
        "--parity-data",
        metavar="FOLDER|DATASET",
        help="Images on which the metrics are compared below fp32: a dataset of the configuration, NAME=PATH as in "
        "--data of eval, or a folder with annotations.csv and images/ (the dataset csv).  [default: probe pictures "
        "with made-up regions; for int8 the images of --calibration that are not calibrated on]",
    ),
    data_option("data_option"),
    click.option(
        "--accept",
        type=click.FloatRange(0, 100),
        show_default=f"{ACCEPT:g} for int8, no bound for fp16 and bf16",
        help="Maximum change of pointing, Dice and AUC on these images in percentage points, up or down, that the 95 % "
        "interval may reach. A graph that changes more leaves no bundle.",
    ),
    click.option(
        "--calibration",
        metavar="FOLDER|DATASET",
        help="Radiographs for the ranges of layers in int8: as --parity-data, or any folder of images. About 128 are "
        "used, and they never judge the result.",
    ),
    click.option(
        "--percentile",
        type=click.FloatRange(50, 100, min_open=True),
        show_default="the smallest to the largest value",
        help="Percentage of the values of a layer that its range covers in int8, e.g. 99.99.",
    ),
    click.option(
        "--int8-for",
        type=Choice(["auto", *FORMS]),
        default="auto",
        help="Form of int8. "
        + "; ".join(f"{name}: {words}" for name, words in FORMS.items())
        + ". auto: vnni where this processor has VNNI or is not x86, otherwise any-cpu.",
    ),
    click.option(
        "--keep-float",
        metavar="NAME|auto",
        multiple=True,
        help="Layer that stays in float32 in int8. auto: the layers with the largest errors, until the change is "
        "accepted. Can be repeated.",
    ),
)


def precision_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_PRECISION_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Flags:
    """The options of the command under their own names; `given` are those that were written down.

    `table` is what the file given with --config, or ./xbench.toml, says of models.
    """

    models: tuple[str, ...]
    family: str | None
    arch: str | None
    name: str | None
    checkpoint: Path | None
    checkpoints: Path | None
    out: Path | None
    weights: str
    source: str | None
    variant: str | None
    resolution: int | None
    tokenizer: Path | None
    text_encoder: Path | None
    prompts: tuple[Path, ...]
    saliency: str | None
    precision: str
    backend: str
    batch: int
    parity_data: str | None
    data_option: tuple[str, ...]
    accept: float | None
    calibration: str | None
    percentile: float | None
    int8_for: str
    keep_float: tuple[str, ...]
    seed: int
    force: bool
    listing: bool
    given: frozenset[str]
    table: ModelTable

    @classmethod
    def read(cls, context: click.Context) -> Flags:
        """The flags of `context` and the configuration file. Raises ConfigError for a broken file."""
        values = {item.name: context.params[item.name] for item in fields(cls) if item.name in context.params}
        given = {name for name in values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
        table = read_models(context.params["config"])
        values["out"] = values["out"] or table.out
        return cls(**values, given=frozenset(given), table=table)

    def entry(self) -> ModelEntry:
        """The model that the flags name: one of `table`, a known one, or one of a family. Raises ConfigError."""
        if self.family is None:
            entry = self.table.find(self.models[0])
            if self.name is not None:
                raise click.UsageError("--name goes with --family; a model of xbench.toml has the name of its table.")
        else:
            entry = of_family(self.family, self.name or self.family)
        if self.arch is not None:
            if not entry.family:
                raise click.UsageError("--arch goes with --family, or with a model of xbench.toml that has a family.")
            entry = replace(entry, options={**entry.options, "arch": self.arch})
        return entry

    def joined(self, entry: ModelEntry, context: click.Context) -> Flags:
        """With the settings of `entry` wherever no flag was given. Raises ConfigError for a value out of range."""
        hidden = {"checkpoint": ("weights", "variant", "source")}
        if self.weights == "stand-in":
            hidden["weights"] = ("checkpoint", "resolution", "source")
        flagged = {*self.given, *(name for flag in self.given for name in hidden.get(flag, ()))}
        options = {option.name: option for option in context.command.params}
        settings = {}
        for name, value in entry.settings.items():
            try:
                settings[name] = options[name].type_cast_value(context, value)
            except click.BadParameter as error:
                raise ConfigError(
                    f"{self.table.path}: the key 'models.{entry.name}.{name}' does not fit: {error.message}"
                ) from error
        return replace(self, **{name: value for name, value in settings.items() if name not in flagged})

    def check(self) -> None:
        """Raises UsageError for options of one export that exclude each other, ConfigError for a missing file."""
        if self.weights == "published" and self.checkpoint is None:
            raise click.UsageError("Give --checkpoint FILE (see --list), or --weights stand-in for made-up weights.")
        if self.weights == "stand-in" and self.checkpoint is not None:
            raise click.UsageError("--checkpoint and --weights stand-in exclude each other.")
        if self.source is not None and (self.weights == "stand-in" or not self.source.strip()):
            raise click.UsageError("--source says in words where the file of --checkpoint was published.")
        if self.checkpoint is not None and not self.checkpoint.exists():
            raise ConfigError(f"There is no file {self.checkpoint}; give the path of the checkpoint (see --list).")
        given = {"calibration": self.calibration, "percentile": self.percentile, "keep-float": self.keep_float}
        for name, value in given.items() if self.precision != "int8" else ():
            if value:
                raise click.UsageError(f"--{name} goes with --precision int8.")
        given = {"parity-data": self.parity_data, "data-option": self.data_option}
        for name, value in given.items() if self.precision == "fp32" else ():
            if value:
                raise click.UsageError(f"--{name} goes with --precision fp16, bf16 or int8.")
        if self.checkpoints is not None:
            raise click.UsageError("--checkpoints goes with several models or --list; give one file with --checkpoint.")

    @property
    def int8_form(self) -> str:
        """The form of an INT8 graph: plans need TensorRT's."""
        return "tensorrt" if self.int8_for == "auto" and self.backend != "onnx" else self.int8_for

    def check_all(self) -> None:
        """The same for several models."""
        if self.saliency is not None:
            raise click.UsageError("--saliency names one model's map; several models have their official ones.")
        if self.source is not None:
            raise click.UsageError("--source is about one file; export the models one by one to state it.")
        if self.checkpoint is not None or self.variant is not None or self.resolution is not None:
            raise click.UsageError("Several models take neither --checkpoint, --variant nor --resolution.")
        if (self.checkpoints is None) != (self.weights == "stand-in"):
            raise click.UsageError("With several models give --checkpoints DIR or --weights stand-in, one of the two.")
        if self.checkpoints is not None and not self.checkpoints.is_dir():
            raise ConfigError(
                f"There is no folder {self.checkpoints}; give the folder with the checkpoints (see --list)."
            )
        if self.tokenizer is not None and not self.tokenizer.is_dir():
            raise ConfigError(
                f"There is no folder {self.tokenizer}; give --tokenizer a folder with one for each model."
            )
        if self.text_encoder is not None and not self.text_encoder.exists():
            raise ConfigError(f"There is no file or folder {self.text_encoder}; give --text-encoder one that is there.")

    def common(self) -> list[str]:
        """The options that every export of several models is given."""
        arguments: list[str] = []
        for name in _ALWAYS:
            value: Any = getattr(self, name)
            flag = f"--{name.replace('_', '-')}"
            for item in value if isinstance(value, tuple) else (value,):
                if item is not None and item is not False:
                    arguments += [flag] if item is True else [flag, str(item)]
        return arguments


def complete_models(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """What a shell completes for --model."""
    with suppress(XBenchError, OSError):
        names = (*read_models(context.params.get("config")).entries, *MODELS.names(), "all", "everything")
        return [name for name in names if name.startswith(incomplete)]
    return []


def complete_maps(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """What a shell completes for --saliency: the maps of the model, or of all."""
    maps = MAPS.get("".join(context.params.get("models") or ()), (*ATTENTION_MAPS, *PATCH_MAPS))
    return [name for name in maps if name.startswith(incomplete)]


def models_named(names: Sequence[str]) -> tuple[str, ...]:
    """The built-in models that several --model name, of which `all` are the paper's and `everything` all known ones;
    empty for a single model, which can be any. Raises ConfigError for another model among several."""
    models = tuple(dict.fromkeys(model for name in names for model in _GROUPS.get(name, (name,))))
    if len(models) < 2:
        return ()
    for name in models:
        if name not in PUBLISHED:
            raise ConfigError(f"--model: '{name}' is not among the built-in models: {did_you_mean(name, PUBLISHED)}.")
    return models
