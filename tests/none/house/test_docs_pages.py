"""docs/studies.md, saliency.md and troubleshooting.md say what the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from xbench_fast.export.models.saliency_maps import ATTENTION_MAPS, MAPS, PATCH_MAPS
from xbench_fast.runtime.cli.study_command import study
from xbench_fast.runtime.reporting.comparison.gate import NAMES


def page(root: Path, name: str) -> str:
    return (root / "docs" / name).read_text(encoding="utf-8")


def rows(text: str, heading: str) -> Iterator[list[str]]:
    """The rows of the first table after `heading`, as cells."""
    table = text.split(heading, 1)[1].split("\n| ", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def names(text: str, heading: str) -> list[str]:
    """The code words in the first column of that table."""
    return [word for row in rows(text, heading) for word in re.findall(r"`([^`]+)`", row[0])]


def test_every_study_has_its_row(root: Path) -> None:
    text = page(root, "studies.md")
    assert sorted(names(text, "## §2")) == sorted(study.commands)
    assert "`" + "`, `".join(NAMES) not in text  # the names of the gate are explained, not listed
    assert names(text, "compared.\n") == list(NAMES)


def test_every_saliency_map_has_its_row(root: Path) -> None:
    text = page(root, "saliency.md")
    assert sorted(names(text, "## §1")) == sorted(ATTENTION_MAPS)
    assert names(text, "## §2") == list(PATCH_MAPS)
    official = {
        model.lower().replace("-", "_"): row[1].strip("`")
        for row in rows(text, "## §3")
        for model in row[0].replace(",", " ").split()
    }
    assert official == {model: next(iter(maps)) for model, maps in MAPS.items()}


def spoken(root: Path) -> str:
    """Every text in the code, one after the other, with {} for what is filled in."""
    found = []
    for room in ("engines", "export", "runtime"):
        for path in (root / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


def test_the_messages_of_troubleshooting_are_the_codes(root: Path) -> None:
    text, said = page(root, "troubleshooting.md"), spoken(root)
    quoted = [quote for line in text.splitlines() if line.startswith('| "') for quote in re.findall(r'"([^"]+)"', line)]
    assert len(quoted) > 8
    assert not [quote for quote in quoted if quote not in said]


def test_the_index_lists_every_page(root: Path) -> None:
    index = page(root, "README.md")
    pages = {path.name for path in (root / "docs").iterdir() if path.suffix in (".md", ".ipynb")} - {"README.md"}
    assert not [name for name in sorted(pages) if f"({name})" not in index]


def test_every_figure_has_its_row(root: Path) -> None:
    """The names of files that the code of the figures gives."""
    code = "".join(path.read_text() for path in (root / "runtime/reporting/figures").glob("*.py"))
    assert sorted(names(page(root, "report.md"), "## 4. Figures")) == sorted(re.findall(r'"(figure-[a-z0-9-]+)"', code))


def test_the_pictures_are_shown_and_small(root: Path) -> None:
    shown = set(re.findall(r'(?:\(|src=")(docs/pictures/[^)"]+)', (root / "README.md").read_text(encoding="utf-8")))
    for path in (root / "docs").glob("*.md"):
        shown |= {f"docs/{name}" for name in re.findall(r"!\[[^]]+\]\((pictures/[^)]+)\)", path.read_text("utf-8"))}
    assert sorted(shown) == sorted(f"docs/pictures/{path.name}" for path in (root / "docs/pictures").iterdir())
    for name in shown:
        assert (root / name).read_bytes().startswith(b"\x89PNG") and (root / name).stat().st_size < 300_000
