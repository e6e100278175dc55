"""Hands for the viewer OHIF: a page in headless Chromium that is used with the mouse, in coordinates of the film."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Point = tuple[float, float]

# A software renderer: there is no GPU.
CHROMIUM = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
READY = """() => { try { return !!services.cornerstoneViewportService.getCornerstoneViewport(
  services.viewportGridService.getState().activeViewportId).getCurrentImageId() } catch (error) { return false } }"""
# The corner of the first pixel of the film is (0, 0). By the grid that is drawn, not by the page's own function for
# points of an image, which exchanges the two spacings of pixels that are not square.
PLACE = """([x, y]) => { const view = services.cornerstoneViewportService.getCornerstoneViewport(
    services.viewportGridService.getState().activeViewportId);
  const frame = view.canvas.getBoundingClientRect();
  const point = view.worldToCanvas(view.getImageData().imageData.indexToWorld([x - 0.5, y - 0.5, 0]));
  return [point[0] + frame.x, point[1] + frame.y] }"""
TOOL = """([toolName, itemId]) => { commandsManager.run('setToolActiveToolbar',
  {toolName, itemId, toolGroupIds: ['default']}) }"""
LABEL_MAP = """() => { const known = services.segmentationService.getSegmentations()[0].segmentationId;
  const held = cornerstoneTools.segmentation.state.getSegmentation(known).representationData.Labelmap;
  const image = cornerstone.cache.getImage(held.imageIds[0]);
  return [image.rows, image.columns, Array.from(image.voxelManager.getScalarData())] }"""


class Hands:
    """One page of the viewer. Points are (x, y) on the film, from the corner of its first pixel."""

    def __init__(self, page: Any, site: str, study: str) -> None:
        self.page, self.site, self.study, self.toured = page, site, study, False

    def opened(self, mode: str = "viewer") -> Hands:
        """Opens the study in a mode and waits for the film."""
        self.page.goto(f"{self.site}/{mode}?StudyInstanceUIDs={self.study}")
        self.page.wait_for_selector("canvas", timeout=120_000)
        self.page.wait_for_function(READY, timeout=120_000)
        if not self.toured:  # a tour through the viewer, at its first use
            self.page.get_by_text("Skip all").first.click()
            self.toured = True
        self.page.wait_for_timeout(1_000)
        return self

    def place(self, point: Point) -> Point:
        """Where a point of the film is on the page."""
        x, y = self.page.evaluate(PLACE, list(point))
        return x, y

    def use(self, tool: str, item: str = "") -> None:
        self.page.evaluate(TOOL, [tool, item or tool])
        self.page.wait_for_timeout(200)

    def drag(self, *points: Point) -> None:
        self.page.mouse.move(*self.place(points[0]))
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*self.place(point), steps=8)
        self.page.mouse.up()
        self.page.wait_for_timeout(300)

    def click(self, *points: Point) -> None:
        for point in points:
            self.page.mouse.move(*self.place(point), steps=3)
            self.page.mouse.down()
            self.page.mouse.up()
            self.page.wait_for_timeout(200)

    def draw(self, tool: str, label: str, move: Callable[[], None]) -> None:
        """Draws with a tool and gives the measurement a label, as its entry in the list does; empty: none."""
        before = len(self.measured())
        self.use(tool)
        move()
        self.page.wait_for_timeout(300)
        if not before:
            self.page.get_by_role("button", name="Yes", exact=True).click()  # "Track measurements for this series?"
            self.page.wait_for_timeout(500)
        if tool == "ArrowAnnotate":
            self.said(label)
        assert len(self.measured()) == before + 1, tool
        if label and tool != "ArrowAnnotate":
            uid = self.measured()[-1][0]
            self.page.evaluate("uid => { commandsManager.run('renameMeasurement', {uid}) }", uid)
            self.said(label)

    def said(self, text: str) -> None:
        """Fills in the text of a dialog and saves."""
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill(text)
        dialog.get_by_role("button", name="Save").click()
        dialog.wait_for(state="detached")
        self.page.wait_for_timeout(200)

    def show(self, series: int) -> None:
        """Opens a series by its number, as its entry in the list of series does."""
        self.page.get_by_text(f"S:{series}", exact=True).first.dblclick()
        self.page.wait_for_timeout(1_000)

    def measured(self) -> list[list[str]]:
        """UID, tool and label of the measurements."""
        found: list[list[str]] = self.page.evaluate(
            "() => services.measurementService.getMeasurements().map(one => [one.uid, one.toolName, one.label])"
        )
        return found

    def report(self, name: str) -> None:
        """Stores all measurements as a structured report in the archive."""
        button = self.page.get_by_role("button", name="Create SR")
        if not button.count():
            panel = "@ohif/extension-measurement-tracking.panelModule.trackedMeasurements"
            self.page.evaluate("panel => { services.panelService.activatePanel(panel, true) }", panel)
        button.click()
        dialog = self.page.get_by_role("dialog")
        if not dialog.get_by_role("textbox").is_enabled():  # it offers the series of the report that is continued
            dialog.get_by_role("combobox").click()
            self.page.get_by_role("option", name="Create new series").click()
        with self.page.expect_response(lambda answer: answer.request.method == "POST"):
            self.said(name)

    def segment(self, *strokes: tuple[str, tuple[Point, ...]]) -> NDArray[np.uint8]:
        """Paints segments with a brush, in the mode `segmentation`; the viewer's label map [height, width].

        A segment without points stays empty.
        """
        self.page.get_by_text("Add segmentation").click()
        self.page.wait_for_timeout(1_500)
        self.use("CircularBrush", "Brush")
        self.page.evaluate("() => { commandsManager.run('setBrushSize', {value: 0.5, toolNames: ['CircularBrush']}) }")
        for number, (label, points) in enumerate(strokes, 1):
            if number > 1:
                self.page.get_by_text("Add Segment", exact=True).click()
                self.page.wait_for_timeout(800)
            if points:
                self.drag(*points)
            self._segment_command("editSegmentLabel", number)
            self.said(label)
        rows, columns, values = self.page.evaluate(LABEL_MAP)
        return np.array(values, np.uint8).reshape(rows, columns)

    def store_segmentation(self, name: str) -> None:
        self._segment_command("storeSegmentation", 1)
        with self.page.expect_response(lambda answer: answer.request.method == "POST"):
            self.said(name)

    def _segment_command(self, command: str, number: int) -> None:
        self.page.evaluate(
            """([command, segmentIndex]) => { commandsManager.run(command, {segmentIndex,
              segmentationId: services.segmentationService.getSegmentations()[0].segmentationId}) }""",
            [command, number],
        )
        self.page.wait_for_timeout(400)


@contextmanager
def hands(site: str, study: str) -> Iterator[Hands]:
    """A page of the viewer; the test is skipped without Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=CHROMIUM)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        yield Hands(page, site, study)
        browser.close()
