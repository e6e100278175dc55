""".ci/audit.py: known vulnerabilities end in failure; an unreachable list is said and does not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FAULT = {"id": "PYSEC-1", "fix_versions": ["2.1"]}
CLEAN: dict[str, Any] = {"name": "numpy", "version": "2.0", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "not found on the index"}


@pytest.fixture
def audit(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the script on what pip-audit prints: `packages`, or nothing and `error`."""
    spec = importlib.util.spec_from_file_location("audit", root / ".ci" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*packages: dict[str, Any], error: str = "") -> int:
        out = "" if error else json.dumps({"dependencies": packages, "fixes": []})
        monkeypatch.setattr(subprocess, "run", lambda *line, **how: SimpleNamespace(stdout=out, stderr=error))
        return int(module.main())

    return run


def test_a_vulnerability_is_named_and_fails(audit: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(CLEAN, {**CLEAN, "name": "pillow", "vulns": [FAULT]}, SKIPPED) == 1
    said = capsys.readouterr().out
    assert "pillow 2.0: PYSEC-1, fixed in 2.1" in said and "2 packages looked up, 1 unknown, 1 vulnerabilities" in said


def test_no_vulnerability(audit: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(CLEAN, SKIPPED) == 0 and "1 packages looked up, 1 unknown, 0" in capsys.readouterr().out


def test_a_list_that_cannot_be_reached_is_said(audit: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(SKIPPED, SKIPPED) == 0 and "skipped, " in capsys.readouterr().out
    assert audit(error="Traceback\nConnectionError: no route") == 0
    assert "cannot be reached: ConnectionError: no route" in capsys.readouterr().out
