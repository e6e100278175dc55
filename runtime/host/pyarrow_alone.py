"""Starts pyarrow without pandas, for commands that only read results."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ImportError(f"{fullname} is not looked for")


def without_pandas() -> None:
    """Lets pyarrow find no pandas when it looks for it.

    At the first value that it converts, pyarrow imports pandas to see whether the value is one of pandas: 0.25 s of CPU
    time, of 1.5 s of a report without page. Code that imports pandas later has it, and `to_pandas` imports it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
