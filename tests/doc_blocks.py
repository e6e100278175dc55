"""The code blocks of the documentation: each runs in a test, or an HTML comment above it says why it does not.

A block is fenced and has a language, or it is indented and begins with a command. The comment is
`<!-- not run: WHY -->`.
tests/cpu/house/test_docs_run.py runs the blocks of `FOLDERS` as they stand; `RUN_BY` names the tests that run others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CODE = {"sh", "bash", "console", "python"}
DATA = {"json", "jsonl", "toml", "yaml", "csv", "latex", "text"}
DIRECTIVES = {"{toctree}", "{eval-rst}"}
COMMANDS = ("xbench-fast ", "xbench-export ", "make ", "python", "pip ", "docker ", "openssl ", "kubectl ", "curl ")

FOLDERS = ("docs/tutorials", "docs/recipes", "README.md")
RUN_BY = {
    "docs/add-a-dataset.md": ("tests/none/house/test_docs_dataset.py", 2),
    "docs/add-a-model.md": ("tests/cpu/export/test_export_new_model.py", 2),
    "docs/first-steps.md": ("tests/cpu/house/test_way_in.py", 2),
    "docs/metrics.md": ("tests/none/results/test_own_metrics.py", 1),
    "docs/own-maps.md": ("tests/none/house/test_docs_maps.py", 1),
    "docs/protocols.md": ("tests/none/results/test_installed_packages.py", 1),
    "docs/python.md": ("tests/cpu/api/test_docs_python.py", 18),
    "docs/serve.md": ("tests/cpu/serving/test_docs_serve.py", 5),
}
"""Page -> the test that runs its blocks without a comment, and their number: a new block needs a look at the test."""

_NOT_RUN = re.compile(r"<!-- not run: (\S.*\S) -->")


@dataclass(frozen=True)
class Block:
    """A block of a page: its first line in the file, its language ("" if indented), its text, why it does not run."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def is_code(self) -> bool:
        """Whether somebody would run the block."""
        return self.language in CODE or (not self.language and self.text.startswith(COMMANDS))


def pages(root: Path) -> list[str]:
    """Every page with blocks that a reader may run, relative to the repository."""
    listed = [path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*.md"))]
    return [*listed, "README.md", "CONTRIBUTING.md", "SECURITY.md", "engines/README.md", "demo/DATA_CARD.md"]


def blocks(root: Path, page: str) -> Iterator[Block]:
    """The blocks of a page, in its order."""
    lines = (root / page).read_text(encoding="utf-8").split("\n")
    comment: str | None = None
    at = 0
    while at < len(lines):
        begin, line = at, lines[at]
        at += 1
        if line.startswith("```"):
            end = lines.index("```", at)
            yield Block(page, begin + 1, line[3:] or "text", "\n".join(lines[at:end]) + "\n", comment)
            at = end + 1
        elif line.startswith("    ") and (begin == 0 or not lines[begin - 1].strip() or comment):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            text = "\n".join(part[4:] for part in lines[begin:at])
            yield Block(page, begin + 1, "", text.rstrip() + "\n", comment)
        elif not line.strip():
            continue
        match = _NOT_RUN.fullmatch(line)
        comment = match[1] if match else None


def runs_as_it_stands(block: Block) -> bool:
    """Whether the generic test runs the block."""
    return block.is_code and block.reason is None and block.page.startswith(FOLDERS)
