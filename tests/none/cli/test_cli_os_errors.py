"""What becomes of the operating system's refusals that no command expected."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import make_bundle
from xbench_fast.engines import bundle
from xbench_fast.runtime.cli import main


def test_a_file_that_may_not_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "models" / "good-32")

    def refused(path: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(bundle, "sha256_of", refused)
    with pytest.raises(SystemExit) as ended:
        main(["models", "--bundles", "models"])
    told = capsys.readouterr().err.strip()
    assert ended.value.code == 1 and "Permission denied" in told and len(told.splitlines()) == 1, told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
def test_an_output_that_takes_nothing_is_one_sentence(tmp_path: Path) -> None:
    line = f"{sys.executable} -m xbench_fast.runtime.cli models --json - --bundles . > /dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: The output cannot be written: No space left on device; check its permissions and the room on its disk."
    ]
