"""Which case and class a file of maps belongs to, by its name (docs/own-maps.md).

A name is a case, a separator and a class. The case is written as in a file of boxes: its id, or the name of its image
file with or without the extension. Programs cannot write every id and class into a file name, so "/", a backslash, a
space and "_" are one separator, and letters of a class are compared without case.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ....engines.errors import DataError
from ...data.datasets.source.image_names import portable_name
from .map_arrays import MapFile

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case

_BETWEEN: Final = re.compile(r"[\s_/-]+")
_ONE: Final = str.maketrans("/ ", "__")
_END: Final = "_map"


class _Fit(NamedTuple):
    """A pair that a name can mean; `exact`: case and class are spelled as the dataset spells them."""

    case_id: str
    finding: str
    exact: bool


class NamedMaps:
    """The maps of the pairs of a dataset. unfit: the names of maps of no pair; count: of all maps.

    Raises DataError for two maps of one pair, and for a name that can mean two pairs.
    """

    def __init__(
        self, listed: Iterable[Sequence[tuple[str, MapFile]]], cases: Sequence[Case], classes: Sequence[str]
    ) -> None:
        """listed: for each file the names of its maps, without folder of the maps and extension, and the maps."""
        self._cases = _case_names(cases)
        self._findings: dict[str, list[str]] = defaultdict(list)
        for name in classes:
            self._findings[_finding_key(name)].append(name)
        self._maps: dict[tuple[str, str], MapFile] = {}
        self._damaged: dict[str, MapFile] = {}
        self.unfit: list[str] = []
        self.count = 0
        for held in listed:
            self._enter(held)

    def find(self, case_id: str, finding: str) -> MapFile | None:
        """The map of a case and finding; None if there is none. A damaged archive counts for all maps of its case."""
        return self._maps.get((case_id, finding), self._damaged.get(case_id))

    @property
    def pairs(self) -> Mapping[tuple[str, str], MapFile]:
        """(case id, class) -> its map."""
        return self._maps

    @property
    def fits(self) -> int:
        """The number of maps that belong to a pair, and of damaged archives of a case."""
        return len(self._maps) + len(self._damaged)

    def _enter(self, held: Sequence[tuple[str, MapFile]]) -> None:
        unfit: dict[str | None, str] = {}
        fitting: set[str | None] = set()
        for name, item in held:
            if self._put(portable_name(name), item):
                fitting.add(item.member)
            else:
                unfit.setdefault(item.member, name)
        members = dict.fromkeys(item.member for _, item in held)
        self.count += len(members)
        self.unfit += [unfit[member] for member in members if member not in fitting]

    def _put(self, name: str, item: MapFile) -> bool:
        fit = self._fit(name, item)
        if fit is None:
            case_id = self._case_of(name) if item.problem else None
            if case_id is None:
                return False
            self._damaged.setdefault(case_id, item)
            return True
        pair = fit.case_id, fit.finding
        other = self._maps.get(pair)
        if other is not None and other.path != item.path:
            raise DataError(
                f"{item.path} and {other.path} both hold the map of '{fit.finding}' in the case '{fit.case_id}'; keep "
                "one of them."
            )
        self._maps.setdefault(pair, item)
        return True

    def _fit(self, name: str, item: MapFile) -> _Fit | None:
        """The pair of a name; folders before it, e.g. of a model or a split, are ignored."""
        parts = name.split("/")
        for first in range(len(parts)):
            fits = set(self._meanings("/".join(parts[first:])))
            if len({fit[:2] for fit in fits}) > 1:
                fits = {fit for fit in fits if fit.exact}
                if len(fits) != 1:
                    self._refuse(name, item, "/".join(parts[first:]))
            if fits:
                return next(iter(fits))
        return None

    def _meanings(self, name: str) -> Iterator[_Fit]:
        plain = name.translate(_ONE)
        for at in [index for index, mark in enumerate(plain) if mark == "_"]:
            cases = self._cases.get(plain[:at])
            if cases is None:
                continue
            rest = name[at + 1 :]
            for text in [rest, rest[: -len(_END)]] if rest.lower().endswith(_END) else [rest]:
                for finding in self._findings.get(_finding_key(text), ()):
                    spelled = text in (finding, finding.replace(" ", "_"))
                    for case_id in cases:
                        yield _Fit(case_id, finding, spelled and name[:at] == portable_name(case_id))

    def _case_of(self, name: str) -> str | None:
        """The one case that a name, or its end, belongs to."""
        parts = name.split("/")
        for first in range(len(parts)):
            cases = self._cases.get("/".join(parts[first:]).translate(_ONE), ())
            if len(cases) == 1:
                return cases[0]
        return None

    def _refuse(self, name: str, item: MapFile, part: str) -> None:
        pairs = sorted({fit[:2] for fit in self._meanings(part)})
        (a, one), (b, other) = pairs[:2]
        raise DataError(
            f"The map '{name}' of {item.path} can be the map of '{one}' in the case '{a}' or of '{other}' in the case "
            f"'{b}'; name it by the id of its case and its class, as '{a}/{one}'."
        )


def _case_names(cases: Sequence[Case]) -> dict[str, list[str]]:
    """What a case can be called -> the ids of the cases called so. An id is before the name of an image file."""
    ids, names, stems = (defaultdict[str, dict[str, None]](dict) for _ in range(3))
    for case in cases:
        ids[_plain(case.case_id)][case.case_id] = None
        names[_plain(case.image.name)][case.case_id] = None
        stems[_plain(case.image.stem)][case.case_id] = None
    # Where the file name of one case is the id of another, maps of ids without a case would be taken for files.
    if any(stem in ids and ids[stem].keys() != held.keys() for stem, held in stems.items()):
        stems.clear()
    return {name: list(held) for name, held in {**stems, **names, **ids}.items()}


def _plain(name: str) -> str:
    return portable_name(name).translate(_ONE)


def _finding_key(name: str) -> str:
    return _BETWEEN.sub("_", portable_name(name).casefold()).strip("_")
