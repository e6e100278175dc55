"""The site's table of contents names every page once, and its reference every public name of Python."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import xbench_fast as xb

START = "docs/index.md"


def patterns(root: Path) -> list[str]:
    """The pages that docs/site/conf.py includes, as it writes them."""
    tree = ast.parse((root / "docs/site/conf.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "include_patterns"
    )
    listed = ast.literal_eval(value)
    assert isinstance(listed, list)
    return listed


def entries(page: Path) -> Iterator[str]:
    """The pages that the toctrees of a page name, relative to its folder and without suffix."""
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                titled = re.fullmatch(r".*<(.+)>", line)
                yield titled[1] if titled else line


def named(root: Path) -> Counter[str]:
    """How often each page is named, from the first page on."""
    count, waiting = Counter({START: 1}), [START]
    while waiting:
        page = root / waiting.pop()
        for entry in entries(page):
            path = (page.parent / f"{entry}.md").resolve()
            assert path.is_file(), f"{page.relative_to(root)} names {entry}"
            name = path.relative_to(root.resolve()).as_posix()
            count[name] += 1
            if count[name] == 1:
                waiting.append(name)
    return count


def test_the_contents_name_every_page_once(root: Path) -> None:
    pages = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    others = set(patterns(root)) - {"docs/**.md"}
    assert all((root / name).is_file() for name in others) and len(others) < len(patterns(root))
    assert dict(named(root)) == dict.fromkeys(pages | others, 1)


def test_a_forge_shows_the_contents_too(root: Path) -> None:
    """A toctree is a block of code there, so each page that has one links the same pages, in the same order."""
    count = 0
    for page in sorted((root / "docs").rglob("*.md")):
        named_here = [f"{entry}.md" for entry in entries(page)]
        links = re.findall(r"^- \[.+\]\((.+\.md)\)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        if named_here and page != root / START:  # the first page has a table of ways in
            assert links == named_here, page.relative_to(root)
            count += 1
    assert count == 5


def test_the_reference_has_every_public_name_once(root: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "docs/api").glob("*.md")))
    described = re.findall(r"^\.\. auto\w+:: xbench_fast\.(\w+)$", text, re.MULTILINE)
    assert sorted(described) == sorted(set(xb.__all__) - {"__version__"})


def test_the_reference_has_every_error_once(root: Path) -> None:
    """The classes of engines/errors.py, in the order of the file."""
    module = ast.parse((root / "engines/errors.py").read_text(encoding="utf-8"))
    classes = [node.name for node in module.body if isinstance(node, ast.ClassDef) and node.name != "XBenchError"]
    text = (root / "docs/api/errors.md").read_text(encoding="utf-8")
    assert re.findall(r"errors\.(\w+)$", text, re.MULTILINE) == classes
