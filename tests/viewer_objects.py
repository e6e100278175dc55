"""What is drawn on the invented film in the viewer OHIF, and the objects that the viewer stores of it.

`python tests/viewer_objects.py` (with XBENCH_OHIF) draws tests/formats/ohif again: the files of OHIF 3.12.10, with new
UIDs and dates. The shapes keep a tenth of a pixel of distance to all centres of pixels: a mouse has whole steps.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from viewer_hands import Hands

HEIGHT, WIDTH = 43, 61
CENTRE, RADIUS = (30.5, 33.5), 4.75
MIDDLE, RADII = (36.0, 9.5), (8.0, 6.5)
CORNERS = ((45.5, 23.0), (53.0, 28.0), (51.0, 36.0), (43.5, 31.0))
BEFORE_FIRST = (45.4, 23.4)  # a stroke that ends here is closed by the viewer
EMPTY = "Empty"
STROKES = (("Effusion", ((10.0, 25.0), (16.0, 25.0), (16.0, 30.0))), ("Nodule", ((46.0, 10.0), (50.0, 15.0))))
ROOT = Path(__file__).resolve().parent.parent


def inside(x: float, y: float) -> bool:
    """Whether a point is in the polygon of `CORNERS`: an odd number of its sides is to the right."""
    odd = False
    for (ax, ay), (bx, by) in zip(CORNERS, CORNERS[1:] + CORNERS[:1], strict=True):
        if (ay > y) != (by > y) and x < ax + (y - ay) * (bx - ax) / (by - ay):
            odd = not odd
    return odd


DRAWN: dict[str, Callable[[float, float], bool]] = {
    "Effusion": lambda x, y: (7 < x < 20 and 20 < y < 37) or (55 < x < 60 and 38 < y < 42),
    "Opacity": lambda x, y: ((x - MIDDLE[0]) / RADII[0]) ** 2 + ((y - MIDDLE[1]) / RADII[1]) ** 2 < 1,
    "Mass": lambda x, y: math.dist((x, y), CENTRE) < RADIUS,
    "Nodule": inside,
}


def drawn_mask(finding: str) -> NDArray[np.bool_]:
    """bool [height, width]: the pixels whose centre is in what was drawn of a finding, by a loop over pixels."""
    rows = range(HEIGHT)
    return np.array([[DRAWN[finding](column + 0.5, row + 0.5) for column in range(WIDTH)] for row in rows])


def draw_regions(hand: Hands) -> None:
    """With all tools whose regions the viewer stores."""
    hand.draw("RectangleROI", "Effusion", lambda: hand.drag((7, 20), (20, 37)))
    hand.draw("RectangleROI", "Effusion", lambda: hand.drag((60, 42), (58, 41), (55, 38)))  # from the other corner
    hand.draw("EllipticalROI", "Opacity", lambda: hand.drag(MIDDLE, (MIDDLE[0] + RADII[0], MIDDLE[1] + RADII[1])))
    hand.draw("CircleROI", "Mass", lambda: hand.drag(CENTRE, (CENTRE[0] + RADIUS, CENTRE[1])))
    hand.draw("PlanarFreehandROI", "Nodule", lambda: hand.drag(*CORNERS, BEFORE_FIRST))


def draw_lost_region(hand: Hands) -> None:
    """A stroke that ends exactly where it began: the viewer shows it, measures nothing, and stores its label alone."""
    hand.draw("RectangleROI", "Effusion", lambda: hand.drag((7, 20), (20, 37)))
    hand.draw("PlanarFreehandROI", "Nodule", lambda: hand.drag(*CORNERS, CORNERS[0]))


def draw_without_area(hand: Hands) -> None:
    """With tools that measure, and a circle that nobody labelled; the last two the viewer does not store."""
    hand.draw("Length", "Tube", lambda: hand.drag((5, 5), (15, 8)))
    hand.draw("Bidirectional", "Enlarged", lambda: hand.drag((25, 4), (33, 4)))
    hand.draw("Angle", "Kyphosis", lambda: (hand.drag((3, 10), (10, 10)), hand.click((10, 16)))[0])
    hand.draw("CobbAngle", "Scoliosis", lambda: (hand.drag((3, 39), (8, 40)), hand.click((4, 41), (8, 42)))[0])
    hand.draw("ArrowAnnotate", "Pneumothorax", lambda: hand.drag((50, 38), (46, 34)))
    hand.draw("Probe", "Spot", lambda: hand.click((25, 28)))
    hand.draw("PlanarFreehandROI", "Line", lambda: hand.drag((22, 22), (28, 24), (32, 22)))
    hand.draw("CircleROI", "", lambda: hand.drag((52, 32), (55, 32)))
    spline = ((12.0, 22.5), (17.0, 24.0), (18.0, 30.0), (13.0, 33.0))
    hand.draw("SplineROI", "Fibrosis", lambda: hand.click(*spline, spline[0]))

    def livewire() -> None:
        hand.click((20, 10), (26, 12), (24, 18))
        hand.page.mouse.dblclick(*hand.place((21, 15)))

    hand.draw("LivewireContour", "Livewire", livewire)


DRAWINGS = {
    "sr_regions": draw_regions,
    "sr_without_area": draw_without_area,
    "sr_lost_region": draw_lost_region,
}
"""Name of a report -> what is drawn for it."""


def stretched(film: bytes) -> bytes:
    """The film with pixels that are not square: 0.3 mm down, 0.2 mm across."""
    import pydicom

    data = pydicom.dcmread(io.BytesIO(film))
    data.ImagerPixelSpacing = [0.3, 0.2]
    stream = io.BytesIO()
    data.save_as(stream)
    return stream.getvalue()


def drawn_objects(film: bytes, draw: Callable[[Hands], None], *more: bytes) -> dict[str, bytes]:
    """Name -> what the viewer stores while `draw` uses it on the film, in an archive that has `more` too."""
    import pydicom
    from viewer_archive import fetch, orthanc, served, upload, viewer_site
    from viewer_hands import hands

    study = str(pydicom.dcmread(io.BytesIO(film)).StudyInstanceUID)
    site_folder = viewer_site()
    with tempfile.TemporaryDirectory() as folder, orthanc(Path(folder)) as archive:
        upload(archive, film, *more)
        with served(site_folder, archive) as site, hands(site, study) as hand:
            draw(hand)
        return {name: content for kind in ("SR", "SEG") for name, content in fetch(archive, kind, study) if name}


def main() -> None:
    out = ROOT / "tests/formats/ohif"
    film = (ROOT / "tests/formats/dicom/film.dcm").read_bytes()

    def all_tools(hand: Hands) -> None:
        for name, draw in DRAWINGS.items():
            draw(hand.opened())
            hand.report(name)
        labels = hand.opened("segmentation").segment(*STROKES, (EMPTY, ()))
        hand.store_segmentation("seg_brush")
        np.savez_compressed(out / "label_map.npz", labels=labels)

    def continued(hand: Hands) -> None:
        hand.opened().show(10)
        hand.page.get_by_role("button", name="Yes", exact=True).click()  # "continue tracking measurements?"
        hand.page.wait_for_timeout(2_000)
        hand.report("sr_continued")

    def not_square(hand: Hands) -> None:
        draw_regions(hand.opened())
        hand.report("sr_not_square")
        hand.opened("segmentation").segment(*STROKES)
        hand.store_segmentation("seg_not_square")

    objects = drawn_objects(film, all_tools)
    objects |= drawn_objects(film, continued, (ROOT / "tests/formats/dicom/sr_tid1500.dcm").read_bytes())
    objects |= drawn_objects(stretched(film), not_square)
    for name, content in objects.items():
        (out / f"{name}.dcm").write_bytes(content)


if __name__ == "__main__":
    main()
