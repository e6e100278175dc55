"""Counts the files and functions of the project that a trip enters: CONTRIBUTING.md, "Trips".

    trips.py count OUT.json xbench-fast report RUN
    trips.py more ONE.json TWO.json [ONE.json TWO.json ...]    # what was called more often, in each of the pairs

Bodies of classes count, because they run when their file is imported; bodies of modules, comprehensions and lambdas do
not.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

Calls = dict[tuple[str, str], int]


def count(command: str, arguments: list[str]) -> Calls:
    """Runs an installed command in this process; how often each function was called."""
    (found,) = (point for point in entry_points(group="console_scripts") if point.name == command)
    run, calls = found.load(), Counter[tuple[str, str]]()

    def entered(frame: FrameType, event: str, _: Any) -> None:
        name, code = str(frame.f_globals.get("__name__")), frame.f_code
        own = name.partition(".")[0] == "xbench_fast" and not code.co_filename.startswith("<")
        if event == "call" and own and "<" not in code.co_qualname.replace(".<locals>.", "."):
            calls[code.co_filename, code.co_qualname] += 1

    sys.argv = [command, *arguments]
    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        run()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return dict(calls)


def main(task: str, *arguments: str) -> None:
    """Writes or compares counts, and prints the number of files and functions."""
    if task == "count":
        out, command, *rest = arguments
        calls = count(command, rest)
        Path(out).write_text(json.dumps([[*key, number] for key, number in sorted(calls.items())]))
        shown = set(calls)
    else:
        read = [{(file, name): n for file, name, n in json.loads(Path(path).read_text())} for path in arguments]
        pairs = zip(read[::2], read[1::2], strict=True)
        shown = set.intersection(*({key for key in more if more[key] > few.get(key, 0)} for few, more in pairs))
        for file, name in sorted(shown):
            print(f"{file}: {name}")
    print(f"{len({file for file, _ in shown})} files, {len(shown)} functions", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
