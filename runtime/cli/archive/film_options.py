"""The options of commands that write DICOM objects: the model, what it is asked, and the kinds of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ....engines.commands import Choice, echo
from ...host.options import EvalConfig
from ...reporting.dicom.dicom_object import DEFAULT_KINDS, KINDS
from ..options.declared_options import options_of, repeated

if TYPE_CHECKING:
    from ...serving.inference.served_models import ServedModel
    from ...serving.protocol.requests import Request

F = TypeVar("F", bound=Callable[..., Any])

bundle_option = click.option(
    "--bundle", metavar="FOLDER", required=True, type=click.Path(path_type=Path), help="Bundle of the model to ask."
)


def film_options(function: F) -> F:
    """--finding, --prompt-set, --tau, --kind, and the options of the engine"""
    decorators = (
        repeated(
            "--finding",
            "findings",
            metavar="NAME",
            help="Finding of the prompt set to write objects of.",
            default="the one with the highest probability in the film",
        ),
        click.option(
            "--prompt-set",
            metavar="NAME",
            help="Prompt set of the bundle to ask.  [default: the one with the most findings]",
        ),
        click.option(
            "--tau",
            type=click.FloatRange(0, 1),
            default=0.5,
            show_default=True,
            help="Threshold of the mask, the outline and the boxes.",
        ),
        repeated(
            "--kind",
            "kinds",
            type=Choice(KINDS),
            help="Kind of object: overlay (Secondary Capture), mask (binary Segmentation), report (structured report), "
            "fractions (fractional Segmentation) or map (Parametric Map).",
            default=", ".join(DEFAULT_KINDS),
        ),
        options_of(EvalConfig, "engine", "gpu", "threads"),
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


@contextmanager
def film_model(
    bundle: Path,
    *,
    findings: tuple[str, ...],
    prompt_set: str | None,
    tau: float,
    kinds: tuple[str, ...],
    engine: str,
    gpu: int | None,
    threads: int | None,
) -> Iterator[tuple[ServedModel, Request]]:
    """The open model and what it is asked about every film. Raises BadRequest for a finding that does not exist."""
    from ....engines.base import CPU_BATCH, EngineOptions
    from ....engines.bundle import Bundle
    from ....engines.select import check_engine, choose, open_engine
    from ...serving.inference.served_models import ServedModel
    from ...serving.protocol.requests import Request

    check_engine(engine)
    if gpu is not None:
        choose(engine, gpu)
    opened = Bundle.load(bundle)
    # One thread for each pair on a CPU, one shape for each batch on a GPU: a film has the same object on a machine with
    # more threads, and beside other films.
    how = EngineOptions(CPU_BATCH, pad=True, device=gpu or 0, throughput=True, say=lambda line: echo(line, err=True))
    with open_engine(opened, engine, threads=threads, options=how) as running:
        model = ServedModel(opened, running, default_set=prompt_set)
        request = Request(
            model.name, findings=findings or None, tau=tau, highest_only=not findings, kinds=kinds or DEFAULT_KINDS
        )
        model.select(request)
        yield model, request
