"""The rooms inside the packages: which may import which, no circles between files, sizes that can be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from test_house import ARROWS, modules, package, parsed

ROOMS = {
    "host": set[str](),
    "data": {"host"},
    "results": {"data", "host"},
    "evaluation": {"results", "data", "host"},
    "asking": {"evaluation", "results", "data", "host"},
    "reporting": {"asking", "evaluation", "results", "data", "host"},
    "trust": {"reporting", "evaluation", "results", "data", "host"},
    "serving": {"reporting", "evaluation", "results", "data", "host"},
    "benching": {"reporting", "evaluation", "results", "data", "host"},
}
"""Room of runtime/ -> the rooms of runtime/ it may import. `cli` may import all of them, and none imports `cli`."""

MOST_LINES, MOST_FILES, MOST_PARAMETERS = 300, 22, 6


@cache
def files(root: Path) -> dict[str, Path]:
    """Module name -> file, of all packages."""
    return {name: path for room in ARROWS for name, path in modules(root, room)}


def imported(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """(line, module of this project) for each import of `path`; a package stands for its __init__."""
    here, known = package(root, path.parent), files(root)
    for node in parsed(path).imports:
        if not node.level:
            continue
        base = ".".join((*here[: len(here) - node.level + 1], *((node.module or "").split(".") if node.module else ())))
        for alias in node.names:
            found = next((name for name in (f"{base}.{alias.name}", base) if name in known), None)
            if found is not None:
                yield node.lineno, found


def room_of(name: str) -> str:
    """ "xbench_fast.runtime.data.images.dicom" -> "images"; "" outside runtime's rooms."""
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["runtime"] and len(parts) > 2 else ""


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_runtime_follow_the_arrows(root: Path, room: str) -> None:
    assert (root / "runtime" / room).is_dir(), f"there is no room runtime/{room}"
    wrong = [
        f"{path.relative_to(root)}:{line}: {room} must not import {room_of(target)}"
        for name, path in files(root).items()
        if room_of(name) == room
        for line, target in imported(root, path)
        if room_of(target) not in {"", room, *ROOMS[room]}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_of_runtime_is_guarded(root: Path) -> None:
    found = {path.name for path in (root / "runtime").iterdir() if (path / "__init__.py").is_file()}
    assert found == {*ROOMS, "cli"}


def test_only_its_command_imports_the_demo(root: Path) -> None:
    """An evaluation never depends on the data of the package."""
    outside = {name: path for name, path in files(root).items() if not name.startswith("xbench_fast.demo")}
    importing = {
        name
        for name, path in outside.items()
        if any(target.startswith("xbench_fast.demo") for _, target in imported(root, path))
    }
    assert importing == {"xbench_fast.runtime.cli.demo_command"}


def test_no_two_files_import_each_other(root: Path) -> None:
    """Also inside functions, where a circle works and still is one."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name, path in files(root).items():
        if path.name != "__init__.py":
            edges[name] = {target for _, target in imported(root, path) if target != name}
    state: dict[str, int] = {}
    stack: list[str] = []
    circles: list[str] = []

    def visit(name: str) -> None:
        state[name] = 1
        stack.append(name)
        for target in sorted(edges.get(name, ())):
            if state.get(target) == 1:
                circles.append(" -> ".join([*stack[stack.index(target) :], target]))
            elif target not in state:
                visit(target)
        stack.pop()
        state[name] = 2

    for name in sorted(files(root)):
        if name not in state:
            visit(name)
    assert not circles, "\n".join(circles)


def test_folders_are_small_enough_to_be_read(root: Path) -> None:
    crowd = Counter(str(path.parent.relative_to(root)) for path in files(root).values())
    assert not {folder: count for folder, count in crowd.items() if count > MOST_FILES}


def test_files_are_short_enough_to_be_read(root: Path) -> None:
    long = {
        str(path.relative_to(root)): lines
        for path in files(root).values()
        if "generated" not in path.name and not path.name.endswith("_pb2.py")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES
    }
    assert not long


def test_functions_take_few_parameters(root: Path) -> None:
    """Commands take their options, and ONNX's operators its attributes, by name."""
    many = []
    for name, path in files(root).items():
        if ".cli" in name:
            continue
        for node in parsed(path).functions:
            named = [] if ".torch_graph." in name else node.args.kwonlyargs
            taken = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *named)]
            count = len(taken) - (taken[:1] in (["self"], ["cls"]))
            if count > MOST_PARAMETERS:
                many.append(f"{path.relative_to(root)}:{node.lineno}: {node.name} takes {count}")
    assert not many, "\n".join(many)


def test_no_public_class_name_stands_twice(root: Path) -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in files(root).values():
        for name in parsed(path).classes:
            if not name.startswith("_"):
                where[name].append(str(path.relative_to(root)))
    twice = {name: found for name, found in where.items() if len(found) > 1}
    assert not twice, "\n".join(f"{name}: {', '.join(found)}" for name, found in sorted(twice.items()))
