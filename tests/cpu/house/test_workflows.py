"""The files of the forge: workflows and dependabot have their schema, and workflows are safe by zizmor's rules.

No workflow runs here: what they call is the Makefile, `.ci/run` and commands that other tests run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
SCHEMAS = {
    ".github/workflows/checks.yml": "vendor.github-workflows",
    ".github/workflows/release.yml": "vendor.github-workflows",
    ".github/dependabot.yml": "vendor.dependabot",
    ".github/ISSUE_TEMPLATE/fault.yml": "vendor.github-issue-forms",
    ".github/ISSUE_TEMPLATE/proposal.yml": "vendor.github-issue-forms",
}


def schema_errors(schema: str, path: Path) -> str:
    """What check-jsonschema says about a file, from the schemas that it brings; empty if the file is valid."""
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def jobs(root: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((root / ".github/workflows" / name).read_text())
    return dict(content["jobs"])


def test_every_file_of_the_forge_has_its_schema(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    forge = {path.relative_to(root).as_posix() for path in (root / ".github").rglob("*.yml")}
    assert forge == set(SCHEMAS)
    for name, schema in SCHEMAS.items():
        assert not (errors := schema_errors(schema, root / name)), errors
    broken = tmp_path / "checks.yml"
    broken.write_text((root / ".github/workflows/checks.yml").read_text().replace("runs-on:", "run-on:"))
    assert "run-on" in schema_errors("vendor.github-workflows", broken)


def test_workflows_are_safe(root: Path, tmp_path: Path) -> None:
    """Pinned actions, the least permissions, no stored credentials, no expression inside a shell line."""
    zizmor = shutil.which("zizmor", path=sysconfig.get_path("scripts"))
    if zizmor is None:
        pytest.skip("zizmor is not installed")

    def findings(folder: Path) -> subprocess.CompletedProcess[str]:
        line = [zizmor, "--offline", "--persona=auditor", str(folder)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    clean = findings(root / ".github")
    assert clean.returncode == 0, clean.stdout
    workflow = tmp_path / ".github" / "workflows" / "checks.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(re.sub(r"@[0-9a-f]{40}", "@v6", (root / ".github/workflows/checks.yml").read_text()))
    assert "unpinned-uses" in findings(tmp_path / ".github").stdout


def test_workflows_call_what_a_contributor_calls(root: Path) -> None:
    """The tests run on each Python that pyproject.toml names, and every `make` target exists."""
    checks = jobs(root, "checks.yml")
    pythons = checks["tests"]["strategy"]["matrix"]["python"]
    project = (root / "pyproject.toml").read_text()
    assert pythons == re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    assert {"run": ".ci/run"} in checks["tests"]["steps"]
    makefile = (root / "Makefile").read_text()
    lines = [
        step.get("run", "")
        for name in ("checks.yml", "release.yml")
        for job in jobs(root, name).values()
        for step in job["steps"]
    ]
    targets = [target for line in lines for target in re.findall(r"\bmake (\w+)", line)]
    assert targets and all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_a_release_is_published_by_identity_alone(root: Path) -> None:
    """Only jobs that sign or publish have an identity. Publishing waits for the packages, their test and a person."""
    release = jobs(root, "release.yml")
    assert {name for name, job in release.items() if "id-token" in job["permissions"]} == {"attest", "publish"}
    assert release["publish"]["environment"] == "pypi" and release["publish"]["needs"] == "attest"
    assert release["attest"]["needs"] == "build"
    assert "secrets." not in (root / ".github/workflows/release.yml").read_text()
    images = release["image"]["strategy"]["matrix"]["target"]
    assert {f"Dockerfile.{image}" for image in images} == {
        path.name for path in (root / "containers").glob("Dockerfile.*")
    }
