"""Our objects about the invented film, as the viewer OHIF shows them.

`python tests/viewer_shown.py` (with XBENCH_OHIF) makes docs/pictures/viewer.png again.
"""

from __future__ import annotations

import datetime
import io
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.runtime.reporting.dicom.film_answer import FindingAnswer
from xbench_fast.runtime.reporting.dicom.film_header import FilmHeader
from xbench_fast.runtime.reporting.dicom.film_objects import ObjectOptions, film_objects
from xbench_fast.runtime.reporting.dicom.identity import ModelIdentity

if TYPE_CHECKING:
    from viewer_hands import Hands

ROOT = Path(__file__).resolve().parent.parent
SCALE, STUDY = 10, "2.25.20260102"
ROW, COLUMN = np.mgrid[:224, :224]
SOFT = np.exp(-(((COLUMN - 50) / 30.0) ** 2) - ((ROW - 148) / 50.0) ** 2).astype(np.float32)
MASK = SOFT >= 0.5
BOX = (np.flatnonzero(MASK.any(0))[0], np.flatnonzero(MASK.any(1))[0],
       np.flatnonzero(MASK.any(0))[-1] + 1, np.flatnonzero(MASK.any(1))[-1] + 1)  # fmt: skip
"""x0, y0, x1, y1 of the mask, half-open, on the grid of 224 x 224."""
LOGIT = 0.3  # a probability of 0.57
Picture = NDArray[np.uint8]


def enlarged_film() -> tuple[bytes, NDArray[np.uint16]]:
    """The invented film with each pixel as a square of `SCALE`, so that words fit on it; and its stored values."""
    import pydicom

    data = pydicom.dcmread(ROOT / "tests/formats/dicom/film.dcm")
    stored = np.frombuffer(data.PixelData, "<u2").reshape(data.Rows, data.Columns)
    stored = stored.repeat(SCALE, 0).repeat(SCALE, 1)
    data.Rows, data.Columns = stored.shape
    data.PixelData, data.StudyInstanceUID, data.SeriesInstanceUID = stored.tobytes(), STUDY, f"{STUDY}.1"
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = f"{STUDY}.2"
    stream = io.BytesIO()
    data.save_as(stream)
    return stream.getvalue(), stored


def film_and_objects() -> list[bytes]:
    """The film and its overlay, mask and report (series 9001, 9002 and 9003)."""
    film, _ = enlarged_film()
    x0, y0, x1, y1 = (float(value) / 224 for value in BOX)
    answer = FindingAnswer("Effusion", LOGIT, SOFT, MASK.astype(np.uint8), [(x0, y0, x1, y1, 1.0)])
    model = ModelIdentity("invented model", "b" * 64, "p" * 64, "fp32", "onnxruntime-cpu")
    clock = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    made = film_objects(FilmHeader.read(film, "the film"), [answer], model, ObjectOptions(clock=clock))
    return [film, *(item.content for item in made)]


def shots(hand: Hands) -> dict[str, Picture]:
    """RGB pictures [height, width, 3] of the viewport: the film alone, and each object."""
    pictures = {"film": shot(hand.opened())}
    hand.show(9001)
    hand.page.wait_for_timeout(2_000)
    pictures["overlay"] = shot(hand)
    hand.opened().show(9003)
    answered(hand)  # "continue tracking measurements?" would make other shapes of them
    # The viewer draws the shapes of a report when it draws next.
    for width in (1_300, 1_400):
        hand.page.set_viewport_size({"width": width, "height": 1_000})
        hand.page.wait_for_timeout(1_000)
    pictures["report"] = shot(hand)
    hand.opened().show(9002)
    hand.page.wait_for_timeout(2_000)
    answered(hand)  # "open this Segmentation?"; it is shown anyhow
    with suppress(Exception):
        hand.page.get_by_text("DICOM SEG import").first.wait_for(state="hidden", timeout=20_000)
    pictures["mask"] = shot(hand)
    return pictures


def answered(hand: Hands) -> None:
    hand.page.get_by_role("button", name="No", exact=True).click()
    hand.page.wait_for_timeout(1_500)


def shot(hand: Hands) -> Picture:
    hand.page.mouse.move(5, 990)
    hand.page.wait_for_timeout(300)
    left, top, width, height = hand.page.evaluate(
        "() => { const frame = services.cornerstoneViewportService.getCornerstoneViewport("
        "services.viewportGridService.getState().activeViewportId).canvas.getBoundingClientRect();"
        "return [frame.x, frame.y, frame.width, frame.height] }"
    )
    content = hand.page.screenshot(clip={"x": left, "y": top, "width": int(width), "height": int(height)})
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def main() -> None:
    from viewer_archive import orthanc, served, upload, viewer_site
    from viewer_hands import hands

    with tempfile.TemporaryDirectory() as folder, orthanc(Path(folder)) as archive:
        upload(archive, *film_and_objects())
        with served(viewer_site(), archive) as site, hands(site, STUDY) as hand:
            pictures = shots(hand)
    parts = [Image.fromarray(pictures[name]) for name in ("overlay", "mask", "report")]
    height = 460
    wide = round(parts[0].width * height / parts[0].height)
    sheet = Image.new("RGB", (3 * wide + 20, height), "white")
    for number, part in enumerate(parts):
        sheet.paste(part.resize((wide, height), Image.Resampling.LANCZOS), (number * (wide + 10), 0))
    sheet.save(ROOT / "docs/pictures/viewer.png", optimize=True)


if __name__ == "__main__":
    main()
