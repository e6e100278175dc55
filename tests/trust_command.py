"""The command trust on the small world of `synthetic`, in the current folder, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from xbench_fast.runtime.cli import main

__all__ = ["ENGINE", "asked", "entry", "rows"]

ENGINE = "synthetic:BlockEngine"


def asked(probe: str, *more: object, status: int = 0) -> None:
    """Runs a probe with two images in a part file."""
    line = [
        "trust",
        "--model",
        "blocks-32",
        "--bundles",
        "models",
        "--data",
        "coco=data",
        "--engine",
        ENGINE,
        "--threads",
        "1",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*line, "--probe", probe, "--chunk", "2", *map(str, more)])
    assert ended.value.code == status


def entry(out: str = "trust") -> dict[str, Any]:
    """The only cell of trust.json."""
    (found,) = json.loads(Path(out, "trust.json").read_text())["cells"].values()
    return dict(found)


def rows(out: str = "trust") -> Any:
    """The rows of the only cell."""
    return pq.read_table(Path(out) / entry(out)["file"]).replace_schema_metadata()
