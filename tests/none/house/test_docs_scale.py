"""docs/scale.md: its commands have the flags they use, and its arithmetic is right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from xbench_fast.runtime.cli.evaluate_command import evaluate
from xbench_fast.runtime.cli.run_command import merge
from xbench_fast.runtime.serving.ray_serve import build


@pytest.fixture(scope="module")
def text() -> str:
    return (Path(__file__).parents[3] / "docs" / "scale.md").read_text()


def commands(text: str, name: str) -> list[list[str]]:
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.S)).replace("\\\n", " ")
    return [shlex.split(found, comments=True) for found in re.findall(rf"{name} [^'\n]*", blocks)]


def test_flags_exist(text: str) -> None:
    for name, command in (("xbench-fast eval", evaluate), ("xbench-fast merge", merge)):
        known = {flag for option in command.params for flag in option.opts}
        found = commands(text, name)
        assert found
        for line in found:
            used = {word for word in line if word.startswith("--")}
            assert used and used <= known, used - known


def test_the_deployment_takes_these_settings(text: str, tmp_path: Path) -> None:
    (line,) = commands(text, "serve run")
    settings = dict(word.split("=") for word in line[3:])
    assert settings.keys() >= {"bundles", "replicas"}
    # The first thing that is wrong must be the folder, not a setting.
    with pytest.raises(Exception, match="holds no bundle"):
        build({**settings, "bundles": str(tmp_path)})


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        ("200 core-hours", 1e8 * 7.2e-3 / 3600),
        ("12.5 h on 16 cores", 1e8 * 7.2e-3 / 3600 / 16),
        ("12 min on 1,024", 1e8 * 7.2e-3 / 60 / 1024),
        ("37.6 TB", 1e8 * 367 * 1024 / 1e12),
        ("8.4 h on one 10 Gbit/s link", 1e8 * 367 * 1024 / 1.25e9 / 3600),
        ("9.3 days on one link", 1e8 * 10e6 / 1.25e9 / 86400),
        ("3.5 h on 64", 1e8 * 10e6 / 1.25e9 / 3600 / 64),
        ("5.0 TB", 1e8 * 50.2e3 / 1e12),
        ("67 min to read over one link", 1e8 * 50.2e3 / 1.25e9 / 60),
        ("51 min on one H200", 1e8 / 33_000 / 60),
        ("7 GB", 1.4e9 * 5 / 1e9),
        ("238 cores", 33_000 * 7.2e-3),
        ("2,220 images/s", 16 / 7.2e-3),
        ("45 s", 1e5 * 7.2e-3 / 16),
        ("2.3 h **in one process", 1e8 * 82e-6 / 3600),
        ("390,625 chunks", 1e8 / 256),
        ("3.9 h, if none", 1e8 / 256 * 36e-3 / 3600),
        ("24,414 parts", 1e8 / 4096),
        ("33,000 images/s", 0.4 * 788e12 / (2 * 4.75e9)),
    ],
)
def test_the_arithmetic(text: str, stated: str, value: float) -> None:
    assert stated in text
    number = float(re.sub(r"[^\d.]", "", stated.split()[0]))
    assert abs(number - value) / value < 0.03
