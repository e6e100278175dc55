"""Measures the house: product lines, files and arrows of each room, and the files that share a name.

    house.py           # a line a room, then the totals
    house.py arrows    # also every arrow between two rooms, with its number of imports
    house.py names     # also every name that two files have, with the files

Product lines are the lines of the Python files that git tracks in `PRODUCT`, as `wc -l` counts them. A room is a
folder of runtime/, and each other package of the product. An arrow goes from a room to a room that one of its files
imports. `__init__.py` and `__main__.py` share no name.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("api", "demo", "engines", "export", "metrics_gpu", "runtime")
Arrows = Counter[tuple[str, str]]


def product_files(root: Path) -> list[Path]:
    """The product's Python files, relative to `root`."""
    listed = subprocess.run(["git", "ls-files", "-z", *PRODUCT], cwd=root, check=True, capture_output=True, text=True)
    paths = (Path(name) for name in listed.stdout.split("\0"))
    return [path for path in paths if path.suffix == ".py" and (root / path).is_file()]


def room(path: Path) -> str:
    """The room of a file: `runtime/cli` for `runtime/cli/app.py`, `export` for `export/cli/main.py`."""
    return "/".join(path.parts[:2]) if path.parts[0] == "runtime" and len(path.parts) > 2 else path.parts[0]


def imports(root: Path, path: Path) -> list[Path]:
    """What the relative imports of a file name, as paths without suffix; api/ is installed above the other rooms."""
    parts = path.parts[1:-1] if path.parts[0] == "api" else path.parts[:-1]
    found = []
    for node in ast.walk(ast.parse((root / path).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = Path(*parts[: len(parts) - node.level + 1], *(node.module or "").split("."))
            found += [base / alias.name for alias in node.names]
    return found


def arrows(root: Path, files: list[Path]) -> Arrows:
    """(importing room, imported room) -> number of imported names; an import in a function counts too."""
    rooms, counted = {room(path) for path in files}, Arrows()
    for path in files:
        for target in imports(root, path):
            reached = room(target / "name")
            if reached != room(path) and reached in rooms:
                counted[room(path), reached] += 1
    return counted


def same_names(files: list[Path]) -> dict[str, list[Path]]:
    """File name -> the files that have it, where there are several."""
    named = defaultdict(list)
    for path in files:
        if not path.name.startswith("__"):
            named[path.name].append(path)
    return {name: paths for name, paths in sorted(named.items()) if len(paths) > 1}


def main(shown: str = "", root: Path = ROOT) -> None:
    """Prints the measures of a checkout, by default the one of this file."""
    files = product_files(root)
    lines = {path: (root / path).read_bytes().count(b"\n") for path in files}
    found, shared = arrows(root, files), same_names(files)
    for name in sorted({*map(room, files)}):
        held = [path for path in files if room(path) == name]
        out = sum(1 for one, _ in found if one == name)
        print(f"{name:<20} {sum(lines[path] for path in held):>7} lines {len(held):>4} files {out:>3} arrows")
    if shown == "arrows":
        for (one, other), number in sorted(found.items()):
            print(f"{one} -> {other}: {number}")
    if shown == "names":
        for name, paths in shared.items():
            print(f"{name}: {' '.join(map(str, paths))}")
    inside = [pair for pair in found if all(name.startswith("runtime/") for name in pair)]
    rooms = {room(path) for path in files if room(path).startswith("runtime/")}
    print(f"{sum(lines.values())} product lines in {len(files)} files")
    print(f"{len(rooms)} rooms of runtime, {len(inside)} arrows between them, {len(found)} arrows in all")
    print(f"{sum(map(len, shared.values()))} files share their name with another")


if __name__ == "__main__":
    main(*sys.argv[1:])
