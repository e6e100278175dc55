"""States of many files at once, against `Path.stat` of each."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from xbench_fast.runtime.data.images.contents import file_state
from xbench_fast.runtime.data.images.file_states import file_states

NONE = [-1] * 4


def asked(path):
    try:
        found = path.stat()
    except (OSError, ValueError):
        return NONE
    if not stat.S_ISREG(found.st_mode):
        return NONE
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def files(folder):
    """Files of many kinds, and what is none."""
    times = {
        "now.png": None,
        "before 1970.png": -1_500_000_001,
        "at 1970.png": 0,
        "far.png": 4_102_444_800_123_456_789,
        "ä ☃ \udce9.png": 1_700_000_000_999_999_999,
        "two\nlines.png": 1,
    }
    for place, (name, when) in enumerate(times.items()):
        (folder / name).write_bytes(b"x" * place)
        if when is not None:
            os.utime(folder / name, ns=(5, when))
    with (folder / "large.png").open("wb") as stream:
        stream.truncate(5 << 30)
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "link.png").symlink_to("now.png")
    (folder / "broken.png").symlink_to("nothing.png")
    (folder / "circle.png").symlink_to("circle.png")
    names = [*times, "large.png", "folder.png", "pipe.png", "link.png", "broken.png", "circle.png", "missing.png"]
    return [folder / name for name in [*names, "now.png/inside.png", "zero\0byte.png", "\0", "n" * 300, "now.png"]]


@pytest.mark.parametrize("relative", [False, True])
def test_many_states_are_those_of_each_file(tmp_path, monkeypatch, relative):
    paths = files(tmp_path)
    if relative:
        monkeypatch.chdir(tmp_path)
        paths = [path.relative_to(tmp_path) for path in paths]
    expected = [asked(path) for path in paths]
    found = file_states(paths)
    assert found.dtype == np.int64
    assert found.tolist() == expected
    assert sum(row == NONE for row in expected) == 9
    assert [file_states([path]).tolist()[0] for path in paths] == expected


def test_a_state_is_that_of_one_file(tmp_path):
    path = tmp_path / "image.png"
    path.write_bytes(b"image")
    assert tuple(file_states([path])[0].tolist()) == file_state(path)


def test_no_files_have_no_states():
    assert file_states([]).shape == (0, 4)


def test_a_file_that_cannot_be_accessed_has_no_state(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "image.png").write_bytes(b"image")
    folder.chmod(0)
    try:
        if os.access(folder, os.X_OK):
            pytest.skip("this user may read every folder")
        assert file_states([folder / "image.png", Path(__file__)])[:, 0].tolist() == [-1, Path(__file__).stat().st_size]
    finally:
        folder.chmod(0o700)
