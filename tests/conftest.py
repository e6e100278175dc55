"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# One profile for all: the same examples in every run and no limits of time, since a busy machine is no failure.
# XBENCH_FUZZ=N looks for new examples, N times as many where a test says so.
settings.register_profile(
    "xbench",
    deadline=None,
    derandomize="XBENCH_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("xbench")

# OpenBLAS waits for its threads in busy loops: on a busy machine a small fit takes a hundred times as long with them.
# This must be set before NumPy is imported; commands that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A test run started in the background ignores Ctrl-C, and so would every command it starts, also those that a test
# interrupts on purpose.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONG = ("cpu/export", "cpu/trust", "cpu/house", "cpu/evaluation/scaling")
"""Folders with files of tests that take minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quick tests first, then the folders with long files: one of them at the end would leave a process idle."""

    def turn(item: pytest.Item) -> int:
        name = item.path.relative_to(ROOT / "tests").as_posix()
        return 0 if name.startswith("none/") else 1 if name.startswith(LONG) else 2

    items.sort(key=turn)


EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="240pt" height="180pt" viewBox="0 0 240 180"></svg>'


@pytest.fixture(scope="module")
def empty_drawings() -> Iterator[None]:
    """Figures are laid out and get their captions, but their files hold no picture: rendering them as PNG, SVG and PDF
    takes most of the time of a report or study. The other tests of tests/cpu read the real ones."""
    if find_spec("matplotlib") is None:
        yield
        return
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    def writing(content: Any) -> Any:
        return lambda drawing, stream, **how: stream.write(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", writing(b"\x89PNG\r\n\x1a\n"))
        patch.setattr(FigureCanvasPdf, "print_pdf", writing(b"%PDF-1.4\n"))
        patch.setattr(FigureCanvasSVG, "print_svg", writing(EMPTY))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared tables, goldens and real radiographs; tests that need it skip where it is absent."""
    path = Path(os.environ.get("XBENCH_SHARED", ROOT.parent / "shared"))
    if not (path / "spec").is_dir():
        pytest.skip("the shared goldens and radiographs are not on this machine (set XBENCH_SHARED)")
    return path


@pytest.fixture(scope="session")
def reference_files() -> Path:
    """The small part of that folder which the repository holds too, under the same names."""
    return ROOT / "tests" / "golden" / "shared"


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return ROOT
