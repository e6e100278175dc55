"""The options of `xbench-export` about a lower precision: how graphs are written in it, and which images judge it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...engines.commands import Choice, data_option
from ...engines.quantised import FORMS
from ...engines.rounding import PRECISIONS
from ..bundle_options import ACCEPT

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--precision",
        type=Choice(PRECISIONS),
        default=PRECISIONS[0],
        help="Type of weights and matrix products; softmax, norms, reductions, the last products, inputs and outputs "
        "stay fp32. The report says what it does to tensors and metrics. int8: of the image graph, for ONNX Runtime on "
        "a CPU or for TensorRT; needs --calibration. For bf16 take TensorRT: ONNX Runtime emulates it on a CPU, and "
        "with CUDA may leave the pooling of models with a ResNet or a DenseNet to the CPU.",
    ),
    click.option(
        "--parity-data",
        metavar="FOLDER|DATASET",
        help="Below fp32: images on which the metrics are compared. A dataset of the configuration, NAME=PATH as in "
        "eval --data, or a folder with annotations.csv and images/ (the dataset csv).  [default: probe pictures with "
        "made-up regions; for int8 the images of --calibration that are not calibrated on]",
    ),
    data_option("data_option"),
    click.option(
        "--accept",
        type=click.FloatRange(0, 100),
        show_default=f"{ACCEPT:g} for int8, no bound for fp16 and bf16",
        help="On these images: how many points the 95 % interval of a change of pointing, Dice and AUC may reach, up "
        "or down. A graph that changes more leaves no bundle.",
    ),
    click.option(
        "--calibration",
        metavar="FOLDER|DATASET",
        help="int8: radiographs that the ranges of layers are taken from, as --parity-data or any folder of images; "
        "about 128 are used, and they never judge the result.",
    ),
    click.option(
        "--percentile",
        type=click.FloatRange(50, 100, min_open=True),
        show_default="the smallest to the largest value",
        help="int8: share of a layer's values that its range covers, e.g. 99.99.",
    ),
    click.option(
        "--int8-for",
        type=Choice(["auto", *FORMS]),
        default="auto",
        help="; ".join(f"{name}: {words}" for name, words in FORMS.items()) + ". auto: vnni where this processor has "
        "VNNI or is no x86, else any-cpu.",
    ),
    click.option(
        "--keep-float",
        metavar="NAME|auto",
        multiple=True,
        help="int8: a layer that stays in float32; can be repeated. auto: those with the largest errors, until the "
        "change is accepted.",
    ),
)


def precision_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
