"""The attributes of all cases of a dataset, from one source: a table that is given, the reader, a file of the dataset,
or the headers of its images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .....engines.errors import DataError, ImageError
from ...images.dicom.open_dicom import open_data_set
from ...images.kinds import KIND_BYTES, image_kind
from ..dataset import Case, Dataset
from ..patients import read_indices
from ..source.image_names import TableNames, stem_of
from .attribute_tables import read_table
from .values import NAMES, Attributes, Value, read_value

_TAGS: Final = ("ViewPosition", "PatientSex", "PatientAge", "Manufacturer")


@dataclass(frozen=True)
class CaseAttributes:
    """cases: the attributes of each wanted case, in their order. source: where they are from, in words. notes: counts
    of what the source does not say."""

    cases: tuple[Attributes, ...]
    source: str
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that at least one case has."""
        return tuple(dict.fromkeys(name for case in self.cases for name in case))


def look_up(wanted: Sequence[str], dataset: Dataset | None, file: Path | None = None) -> CaseAttributes:
    """The attributes of the cases with the ids `wanted`.

    dataset: None if its folder is not there; cases are then found in `file` by their ids alone. file: a table that
    replaces what the dataset says. Raises DataError for a table that cannot be read or fits no case.
    """
    cases = {} if dataset is None else {case.case_id: case for case in dataset.cases()}
    if file is None and dataset is not None:
        if any(case.attributes is not None for case in cases.values()):
            return _of_reader(wanted, cases, dataset)
        file = dataset.attribute_file()
    if file is None:
        return _of_headers(wanted, cases)
    table = read_table(file)
    if not table.names:
        return CaseAttributes(tuple({} for _ in wanted), file.name, (f"{file.name} has no attributes",))
    names = TableNames(table.rows)
    images = [cases[case_id].image if case_id in cases else None for case_id in wanted]
    if table.by_index:
        indices = _indices(wanted, images, dataset)
        keys = [names.of(f"{stem_of(index)}.png", Path(stem_of(index))) for index in indices]
    else:
        keys = [names.of(case_id, image) for case_id, image in zip(wanted, images, strict=True)]
    missing = keys.count(None)
    if missing == len(keys):
        must = "its column of cases must hold case ids, file names of images, or these without their extension"
        if dataset is None:
            must = "its column of cases must hold case ids, or the dataset must be there to give the images' names"
        elif table.by_index:
            must = "the option patients of the dataset must name NIH's image of each case, in a column nih_image_index"
        example = f", the first of which is '{wanted[0][:80]}'" if wanted else ""
        raise DataError(f"{file} names none of the {len(keys)} cases{example}; {must}.")
    notes = []
    if missing:
        notes.append(f"{file.name} has no row for {missing} of {len(keys)} cases; their attributes are unknown")
    unused = len(table.rows) - len(set(keys) - {None})
    if unused and not table.by_index:
        notes.append(f"{unused} rows of {file.name} name no case of these results")
    if table.outside:
        notes.append(f"{table.outside} ages in {file.name} are not between 0 and 120 years, so unknown")
    rows = tuple({} if key is None else table.rows[key] for key in keys)
    return CaseAttributes(rows, file.name, tuple(notes))


def _indices(wanted: Sequence[str], images: Sequence[Path | None], dataset: Dataset | None) -> list[str]:
    """NIH's image index of each case: what the dataset's option `patients` says of it, else its file name."""
    indices: dict[str, str] = {}
    if dataset is not None and "patients" in dataset.options:
        indices = read_indices(dataset.path_option("patients", ""))
    names = TableNames(indices)
    keys = [names.of(case_id, image) for case_id, image in zip(wanted, images, strict=True)]
    files = [case_id if image is None else image.name for case_id, image in zip(wanted, images, strict=True)]
    return [name if key is None else indices[key] for key, name in zip(keys, files, strict=True)]


def _of_reader(wanted: Sequence[str], cases_by_id: dict[str, Case], dataset: Dataset) -> CaseAttributes:
    stated = [cases_by_id[case_id].attributes or {} if case_id in cases_by_id else {} for case_id in wanted]
    cases = []
    for case_id, given in zip(wanted, stated, strict=True):
        attributes: dict[str, Value] = {}
        for name, value in given.items():
            name = NAMES.get(name.lower(), name)
            try:
                read = read_value(name, str(value))
            except ValueError as error:
                raise DataError(
                    f"The reader of '{dataset.name}' gives the case '{case_id}' an attribute '{name}' that {error}."
                ) from None
            if read is not None:
                attributes[name] = read
        cases.append(attributes)
    return CaseAttributes(tuple(cases), f"the reader {dataset.name}")


def _of_headers(wanted: Iterable[str], cases_by_id: dict[str, Case]) -> CaseAttributes:
    headers = [read_header(cases_by_id[case_id].image) if case_id in cases_by_id else None for case_id in wanted]
    notes = []
    others = headers.count(None)
    if others == len(headers):
        notes.append("its files have no attributes: no table has any, and no image is DICOM with a header")
    elif others:
        notes.append(f"{others} of {len(headers)} images are not DICOM, or missing; their attributes are unknown")
    return CaseAttributes(
        tuple(header or {} for header in headers), f"DICOM headers ({', '.join(_TAGS)})", tuple(notes)
    )


def read_header(image: Path) -> Attributes | None:
    """The attributes in the header of a DICOM `image`, of which nothing is ever printed; None: it is another file, or
    cannot be read.

    A value that does not have the form that its tag demands is not known, apart from an age without a unit, which is
    years.
    """
    try:
        with image.open("rb") as stream:
            if image_kind(stream.read(KIND_BYTES)) != "dicom":
                return None
            stream.seek(0)
            header = open_data_set(stream, _TAGS, pixels=False)
    except (OSError, ImageError):
        return None
    attributes = {}
    for tag in _TAGS:
        name = NAMES[tag.lower()]
        try:
            value = read_value(name, header.text(tag))
        except (ValueError, ImageError):
            continue
        if value is not None:
            attributes[name] = value
    return attributes
