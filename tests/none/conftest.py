"""What holds for the quick tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="240pt" height="180pt" viewBox="0 0 240 180"></svg>'


@pytest.fixture(scope="module", autouse=True)
def empty_drawings() -> Iterator[None]:
    """Figures are laid out and get their captions, but their files hold no picture: rendering them as PNG, SVG and PDF
    takes most of the time of a report or study. tests/cpu reads the real ones."""
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
