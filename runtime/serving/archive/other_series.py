"""What a study has besides films, so that nothing is left out without a word (docs/pacs.md §1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ...reporting.dicom.film_objects import film_label
from ...reporting.dicom.identity import is_hashed_uid
from .archive import Archive

_NAMED: Final = frozenset({
    "CR", "CT", "DOC", "DX", "ECG", "ES", "IO", "KO", "MG", "MR", "NM", "OT", "PR", "PT", "PX", "REG", "RF", "RG",
    "RTDOSE", "RTIMAGE", "RTPLAN", "RTSTRUCT", "SEG", "SM", "SR", "US", "XA", "XC",
})  # fmt: skip
"""Terms of Modality (PS3.3 C.7.3.1.1.1) that are printed. No other text of an archive is: it can hold a name."""


def unasked_series(archive: Archive, study: str, modalities: Collection[str]) -> Iterator[str]:
    """A sentence for each series of another modality in a study, except those that this project stored.

    Nothing is fetched: the archive lists the modality of a series and the number of its instances. Raises ArchiveError.
    """
    for uid, modality, count in archive.series_of(study):
        if modality and modality not in modalities and not is_hashed_uid(uid):
            shown = modality if modality in _NAMED else "another one"
            size = "" if count is None else f" ({count} instance{'s' * (count != 1)})"
            series = f"The series {film_label(uid)} of the study {film_label(study)}"
            yield f"{series} was not asked about: its Modality is {shown}{size}, not {' or '.join(modalities)}."
