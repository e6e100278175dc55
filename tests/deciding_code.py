"""Digests of the code that decides results, by the part that has a number (`runtime/host/code_numbers.py`).

    python tests/deciding_code.py              records the parts whose number was raised
    python tests/deciding_code.py --harmless   records all parts: what changed can change no value

The digests are in deciding_code.json beside this file. They cover what the code does: comments, docstrings, formatting,
the order of definitions, the names of modules and files, and imports within the project are left out. So moving code
changes no digest of a part, unless the part then imports other code too; a changed body or name does.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.host import source_code
from xbench_fast.runtime.host.code_numbers import NUMBERS
from xbench_fast.runtime.results.cell_key import reader_part
from xbench_fast.runtime.trust.probes.probe import PROBES

RECORD: Final = Path(__file__).with_suffix(".json")
ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("engines", "metrics_gpu", "runtime")

_REFERENCE = "reference.reference_sources reference.reference_cell sweep.sweep"
_BEGIN: Final = {
    "cpu": "evaluation.cell sweep.sweep",
    "gpu": "evaluation.cell gpu.device_cell sweep.sweep",
    "live": "evaluation.cell evaluation.live_model sweep.sweep",
    "baseline": _REFERENCE,
    "maps": _REFERENCE,
    "boxes": "reference.box_files reference.reference_cell",
    "pixels": "images.decode images.resizing",
    "dali": "images.dali",
    "masks": "datasets.region_grid",
    "tiles": "images.tiles",
    "view": "images.views",
    "dicom": "dicom.film_objects inference.response_outputs inference.request_images",
}
"""Part -> the modules that its code begins with: what they import belongs to the part too."""

# Bundle, engine and reader are named by other parts of a key. Storing or judging a row does not change it, and neither
# do the wording of errors and the look-up of names.
_NEVER = (
    "engines.base engines.bundle engines.manifest engines.errors engines.extras engines.registry engines.select "
    "backends.device backends.gpu datasets.dataset reference.map_orientation results.storage host.machine_record "
    "host.source_code host.code_numbers host.former_code"
)
_NO_IMAGES = "sweep.gpu evaluation.cell images.decode"
_OF_BOXES = "reference.box_files reference.box_models"
_NOT: Final = {
    "cpu": "sweep.gpu",
    "live": "sweep.gpu",
    "baseline": f"{_NO_IMAGES} reference.map_files {_OF_BOXES}",
    "maps": f"{_NO_IMAGES} {_OF_BOXES}",
    "boxes": f"{_NO_IMAGES} reference.map_files sweep.sweep",
    "dali": "images.decode images.resizing",
}
_OF_A_READER = "engines.errors engines.registry host.machine_record host.source_code host.code_numbers host.former_code"
_JUDGES = "probes.directory probes.effects trust.verdicts results.load_rows results.stored_maps results.read_images"
"""What stores the rows of probes, and what judges them each time they are read."""
_DECODED: Final = ("cpu", "gpu", "live")
"""Parts whose keys name the decoder, so that the number of `pixels` covers it."""


def digests() -> dict[str, str]:
    """The digest of each part."""
    return {part: _digest(statements) for part, statements in parts().items()}


def parts() -> dict[str, set[str]]:
    """Part -> digests of its statements. A statement that a key names by another part is in that part alone."""
    classes = [reader for reader in map(DATASETS.load, DATASETS.names()) if is_own(reader)]
    readers = {str(reader_part(reader)): closure([reader.__module__], _OF_A_READER) for reader in classes}
    reading = set.intersection(*readers.values())
    found = {part: closure(modules(words), f"{_NEVER} {_NOT.get(part, '')}") for part, words in _BEGIN.items()}
    rows_of_probes = modules("probes.probe_rows decoded_blocks")
    for name in PROBES.names():
        found[f"trust {name}"] = closure([PROBES.load(name).__module__, *rows_of_probes], f"{_NEVER} {_JUDGES}")
    for part in found:
        if part in _DECODED or part.startswith("trust "):
            found[part] -= found["pixels"]
        if part not in ("pixels", "dali"):
            found[part] -= reading
    return {"reading": reading, **found, **{part: statements - reading for part, statements in readers.items()}}


def is_own(reader: type) -> bool:
    """Whether a class is of the project and not of an installed package that adds a dataset."""
    return reader.__module__.startswith(f"{source_code.PROJECT}.")


def modules(words: str) -> list[str]:
    """The one module of the project that ends with each word."""
    ends = {word: [name for name in sources() if name.endswith(f".{word}")] for word in words.split()}
    assert all(len(names) == 1 for names in ends.values()), ends
    return [names[0] for names in ends.values()]


@cache
def sources() -> dict[str, Path]:
    """The modules of the project that can decide something: name -> file."""
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.name != "__init__.py"]
    return {".".join((source_code.PROJECT, *path.relative_to(ROOT).with_suffix("").parts)): path for path in files}


def closure(roots: Iterable[str], aside: str) -> set[str]:
    """The digests of the statements of these modules and of all that they import, but for those `aside`."""
    files = source_code.closure(list(roots), modules(aside))
    return set().union(*(statement_digests(path, path.read_bytes()) for path in files.values()))


@cache
def statement_digests(path: Path, content: bytes) -> frozenset[str]:
    """A digest of each statement of a module, and of each file beside it that it names, such as a kernel."""
    if path.suffix != ".py":
        return frozenset({hashlib.sha256(content).hexdigest()})
    tree = _WithoutImports().visit(ast.parse(content))
    tokens: list[str] = []
    source_code._write(tree, tokens, [], "")
    found = {_digest([file.read_bytes().hex()]) for file in source_code._data_files(tokens, path.parent)}
    for statement in source_code._effective(tree, tree.body):
        written: list[str] = []
        source_code._write(statement, written, [], "")
        found.add(_digest(written))
    return frozenset(found)


class _WithoutImports(ast.NodeTransformer):
    """Leaves out what is imported from the project under its own name: the place of code is not what it does."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if not node.level and (node.module or "").partition(".")[0] != source_code.PROJECT:
            return node
        renamed = [alias for alias in node.names if alias.asname not in (None, alias.name)]
        return ast.ImportFrom("", renamed, 0) if renamed else None


def _digest(texts: Iterable[str]) -> str:
    ordered = sorted(texts) if isinstance(texts, set) else texts
    return hashlib.sha256("\0".join(ordered).encode(errors="surrogatepass")).hexdigest()


def recorded() -> dict[str, tuple[int, str]]:
    """Part -> its number and digest, as recorded last."""
    return {part: (number, digest) for part, (number, digest) in json.loads(RECORD.read_text()).items()}


def undecided(record: Mapping[str, tuple[int, str]], now: Mapping[str, tuple[int, str]]) -> tuple[list[str], list[str]]:
    """The parts whose code changed and whose number did not, and those whose number was raised and not recorded."""
    other = [part for part in sorted({*record, *now}) if record.get(part) != now.get(part)]
    same_number = [part for part in other if record.get(part, (1, ""))[0] == now.get(part, (1, ""))[0]]
    return same_number, [part for part in other if part not in same_number]


def current() -> dict[str, tuple[int, str]]:
    """Part -> its number and digest now."""
    return {part: (NUMBERS.get(part, 1), digest) for part, digest in digests().items()}


def main(arguments: list[str]) -> str:
    """Records what was decided, and returns what happened in words."""
    now, record = current(), recorded() if RECORD.exists() else {}
    changed, raised = undecided(record, now)
    if changed and "--harmless" not in arguments:
        return advice(changed, [])
    lines = [f'  "{part}": [{number}, "{digest}"]' for part, (number, digest) in sorted(now.items())]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    told = [f"{part}: number {now[part][0]}" if part in now else f"{part}: gone" for part in raised]
    return "\n".join([*told, *(f"{part}: changed, with the same values" for part in changed)]) or "nothing changed"


def advice(changed: list[str], raised: list[str]) -> str:
    """What to do about changed code and raised numbers that are not recorded."""
    lines = []
    if changed:
        lines += [
            f"The code of these parts changed: {', '.join(changed)}.",
            "Can a value of a result change, even one bit of one row? Then raise the part's number in "
            "runtime/host/code_numbers.py, write behind it what was wrong, and run: python tests/deciding_code.py",
            "If no value can change (a rename, a move, a faster way): python tests/deciding_code.py --harmless",
        ]
    if raised:
        lines.append(f"Record the new numbers of {', '.join(raised)}: python tests/deciding_code.py")
    return "\n".join(lines)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
