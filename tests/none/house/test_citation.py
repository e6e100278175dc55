"""CITATION.cff can be read, and says what the package says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")


def test_the_citation_is_of_this_version(root: Path) -> None:
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= set(cited)
    assert (cited["title"], cited["version"], cited["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )
    (paper,) = cited["references"]
    assert paper["identifiers"][0]["value"].removeprefix("arXiv:") in (root / "README.md").read_text(encoding="utf-8")
