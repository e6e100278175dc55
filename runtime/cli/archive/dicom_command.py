"""`xbench-fast dicom`: the answers of a model about films, as DICOM objects in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....engines.errors import ConfigError, DataError, ImageError
from ...host.paths import has_file, has_folder
from ...reporting.dicom.object_files import write_objects
from ..options.shared_options import Output, json_option
from .film_options import bundle_option, film_model, film_options

if TYPE_CHECKING:
    from ...reporting.dicom.dicom_object import DicomObject
    from ...reporting.dicom.film_header import FilmHeader
    from ...serving.inference.film_batches import ReadFilm
    from ...serving.inference.served_models import ServedModel


@click.command()
@click.argument("films", metavar="FILM...", nargs=-1, required=True, type=click.Path(path_type=Path))
@bundle_option
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the objects, a file each.",
)
@film_options
@json_option
def dicom(films: tuple[Path, ...], bundle: Path, out: Path, output: Output, **rest: Any) -> int:
    """Write a model's answers about films as DICOM objects, which an archive stores and a viewer shows.

    FILM is a DICOM file or a folder of them. For research only: not a medical device, and every object says so. The
    objects belong to the film's study and carry the patient's name and ID. Names that are burned into the pixels are
    not looked for. An object that exists already is kept, and one that differs from the existing one is refused. A
    file that is no radiograph gets one line, and the rest goes on. The exit status is 1 if a file
    got no objects or an object was refused.
    """
    from ...serving.inference.film_batches import answer_films

    for path in films:
        if not has_file(path) and not has_folder(path):
            raise ConfigError(f"{path} does not exist; give a DICOM file or a folder.")
    summary = Summary(out, output)
    with film_model(bundle, **rest) as (model, request):
        for batch in _batches(_paths(films), model, summary):
            answers = answer_films(model, request, [film for _, film in batch])
            for (path, film), objects in zip(batch, answers, strict=True):
                summary.add(path, film.header, objects)
    return summary.finish()


class Summary:
    """What became of each film: lines while the command runs, then counts, and all of it as JSON."""

    def __init__(self, out: Path, output: Output) -> None:
        self._out = out
        self._output = output
        self._films: list[dict[str, Any]] = []

    def refuse(self, path: Path, problem: str) -> None:
        """A file that gets no objects, and the sentence why."""
        self._films.append({"film": str(path), "problem": problem})
        self._output.say(problem)

    def add(self, path: Path, film: FilmHeader, objects: list[DicomObject] | DataError) -> None:
        """Writes the objects of a film. Raises RunError."""
        if isinstance(objects, DataError):
            self.refuse(path, str(objects))
            return
        record: dict[str, Any] = {"film": str(path), "written": [], "kept": [], "refused": []}
        for made, file, outcome in write_objects(objects, film.uid, self._out):
            shown = {"file": file.name, "kind": made.kind, "finding": made.finding, "uid": made.uid}
            record[outcome].append(shown)
            if outcome == "refused":
                self._output.say(
                    f"{file} differs from the object that this film has now, under the same UID; it was not replaced. "
                    "Remove it, or write to another folder."
                )
        if film.remark:
            record["remark"] = film.remark
        self._films.append(record)
        counts = ", ".join(f"{len(record[name])} {name}" for name in ("written", "kept", "refused") if record[name])
        self._output.say(f"{path}: {counts}{'; ' + film.remark if film.remark else ''}")

    def finish(self) -> int:
        """Prints the counts; the exit status."""
        sums = {name: sum(len(item.get(name, ())) for item in self._films) for name in ("written", "kept", "refused")}
        without = sum("problem" in item for item in self._films)
        made = len(self._films) - without
        self._output.say(
            f"{made} film{'s' * (made != 1)}: {sums['written']} objects written, {sums['kept']} kept, "
            f"{sums['refused']} refused; {without} files without objects"
        )
        self._output.write({"films": made, **sums, "without_objects": without, "results": self._films})
        return 1 if without or sums["refused"] or not made else 0


def _paths(given: Sequence[Path]) -> Iterator[Path]:
    """The files that were named, and the image files below the folders that were named."""
    from ...data.datasets.source.listing import tree
    from ...data.images.kinds import KIND_BYTES, image_kind

    for path in given:
        if has_file(path):
            yield path
            continue
        for file in tree(path):
            with file.open("rb") as stream:
                if image_kind(stream.read(KIND_BYTES)):
                    yield file


def _batches(paths: Iterator[Path], model: ServedModel, summary: Summary) -> Iterator[list[tuple[Path, ReadFilm]]]:
    """The films that can be read, as many at once as an engine on a CPU runs."""
    from ....engines.base import CPU_BATCH
    from ...data.images.decode import read_bytes
    from ...serving.inference.film_batches import read_film

    batch: list[tuple[Path, ReadFilm]] = []
    for path in paths:
        try:
            batch.append((path, read_film(read_bytes(path), str(path), model.geometry)))
        except ImageError as error:
            summary.refuse(path, str(error))
        if len(batch) == CPU_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
