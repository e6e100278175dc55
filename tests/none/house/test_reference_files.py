"""The reference files in the repository are copies of those that the fixture `shared` names."""

from __future__ import annotations

from pathlib import Path


def test_copies_are_the_originals(shared: Path, reference_files: Path) -> None:
    files = [path for path in sorted(reference_files.rglob("*")) if path.is_file() and path.name != "README.md"]
    assert len(files) > 30
    for file in files:
        assert file.read_bytes() == (shared / file.relative_to(reference_files)).read_bytes(), file
