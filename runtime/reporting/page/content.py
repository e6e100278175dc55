"""What a page shows. Every text is data: the page escapes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...tables.table import Table

if TYPE_CHECKING:
    from ..figures.figure import Figure
    from ..gallery.model import Gallery

__all__ = ["PageContent"]


@dataclass(frozen=True)
class PageContent:
    """stamps: what the numbers are worth, shown above everything. facts: a line of them under the title. provenance:
    name -> text, number, list, nested mapping, or list of mappings with the same keys (a small table).

    gallery_reason: why there is no gallery, one sentence. coverage: tables that stand apart, behind the gallery.
    models: their rows are sorted; the rows above the first of them (n, chance) describe the data and stay on top.
    """

    title: str
    stamps: Sequence[str]
    provenance: Mapping[str, Any]
    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    gallery: Gallery | None = None
    gallery_reason: str = ""
    facts: Sequence[str] = ()
    coverage: Sequence[Table] = ()
    models: Sequence[str] = field(default=())
