"""Runs the code blocks of a page one after the other in one folder, as a reader would."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doc_blocks import Block, blocks, runs_as_it_stands
from goldens import command

NUMBER = re.compile(r"-?\d+\.\d+")
NUMBER_IN_PATTERN = re.compile(r"(?:\\-)?\d+\\\.\d+")
TOLERANCE = 0.1
"""Largest difference of a shown number with a decimal point: another processor rounds otherwise."""
AFTER_TRAINING = 0.3
"""The same on the page that trains a network: 240 steps add these differences up."""


def run_page(root: Path, page: str) -> Iterator[tuple[Block, str, Block | None]]:
    """Each block that runs, what it printed, and the block of text that shows its output; in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    listed = list(blocks(root, page))
    for block, after in zip(listed, [*listed[1:], None], strict=True):
        if runs_as_it_stands(block):
            printed = run_python(block, names) if block.language == "python" else run_commands(block)
            shown = after if after is not None and after.language == "text" else None
            yield block, printed, shown


def run_python(block: Block, names: dict[str, Any]) -> str:
    """What the code prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * block.line + block.text, block.page, "exec"), names)
    return output.getvalue()


def run_commands(block: Block) -> str:
    """What the commands print. A block of `sh` has one command a line and runs in this process; `bash` is a script."""
    if block.language == "sh":
        lines = [shlex.split(line, comments=True) for line in block.text.splitlines()]
        return "".join(command(*words) for words in lines)
    text = block.text
    if "--port 8000" in text:
        with socket.create_server(("127.0.0.1", 0)) as free:
            text = text.replace("8000", str(free.getsockname()[1]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
    done = subprocess.run(["bash", "-ec", text], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def same(shown: str, printed: str, tolerance: float = TOLERANCE) -> bool:
    """Whether the page shows what was printed: equal words, equal integers, and other numbers within the tolerance.

    A line `...` stands for any lines. Spaces at the end of a line are ignored.
    """
    shown, printed = (re.sub(r" +$", "", text, flags=re.MULTILINE) for text in (shown, printed))
    parts = [part.strip("\n") for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    escaped = (NUMBER_IN_PATTERN.sub(r"(-?\\d+\\.\\d+)", re.escape(part)) for part in parts)
    pattern = ".*".join(re.sub(r"(?:\\ )+", r"\\s+", part) for part in escaped)
    match = re.fullmatch(rf"\s*{pattern}\s*", printed, re.DOTALL)
    numbers = NUMBER.findall(shown)
    return match is not None and all(
        abs(float(one) - float(other)) <= tolerance for one, other in zip(numbers, match.groups(), strict=True)
    )
