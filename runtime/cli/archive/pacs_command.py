"""`xbench-fast pacs`: films of an archive through a model, and the answers back into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ....engines.commands import echo
from ...serving.archive.pacs_options import PacsOptions
from ..options.declared_options import options_of
from ..options.shared_options import Output, json_option
from .film_options import bundle_option, film_model, film_options


@click.command()
@click.option(
    "--from",
    "source",
    metavar="URL",
    required=True,
    help="DICOMweb address of the archive, e.g. https://archive/dicom-web.",
)
@click.option("--to", "target", metavar="URL", help="Address that objects are stored at.  [default: that of --from]")
@bundle_option
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the log of films that are done.",
)
@options_of(PacsOptions)
@film_options
@json_option
def pacs(source: str, target: str | None, bundle: Path, out: Path, output: Output, **rest: Any) -> int:
    """Ask a model about the films of an archive, and store its answers there as DICOM objects.

    For research only: not a medical device, and every object says so. Films are searched by modality, and fetched and
    stored by DICOMweb. An object that the archive has is not stored again, and one that differs from the archive's is
    refused. An interrupted run continues with the same command. A film or a study with a problem gets one line, and the
    rest goes on. Lines name films by a hash of their UID. Names that are burned into the pixels are not looked for. The
    exit status is 1 if there was a problem.
    """
    from dataclasses import fields

    from ....engines.base import CPU_BATCH
    from ...evaluation.progress import progress_for
    from ...serving.archive.film_maker import ModelMaker
    from ...serving.archive.run_transfer import connect, transfer

    options = PacsOptions(**{item.name: rest.pop(item.name) for item in fields(PacsOptions)})
    connection = connect(source, target, options)
    with film_model(bundle, **rest) as (model, request):
        maker = ModelMaker(model, request, CPU_BATCH)
        summary = transfer(connection, maker, out, progress_for(output.console()))
    output.say(summary.line(dry_run=options.dry_run))
    output.write(summary.document())
    if summary.stopped:
        echo(f"Error: {summary.stopped}.", err=True)
    return 1 if summary.stopped or summary.problem_count else 0
