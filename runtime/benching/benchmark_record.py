"""The numbers of a benchmark as a JSON file, with a description of the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..host.machine_record import code_version, describe_machine


def write_record(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes `figures`, the version of the code and the machine to `path`, and creates its folders. Raises OSError."""
    record = {**figures, "code_version": code_version(), "machine": describe_machine()}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")  # whole or not at all: a long benchmark writes it again and again
    draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
