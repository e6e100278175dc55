"""Makes the pictures of README.md from the demo's report: the page, and one overlay.

In a checkout after `make demo`, with Chromium and playwright installed beside xbench-fast:

    python docs/make_pictures.py [REPORT]    # a folder with index.html, by default demo/out/run/report
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COLOURS, MOST = 256, 300_000  # of a picture; its bytes


def main(report: Path) -> None:
    """Writes docs/pictures/page.png and overlay.png; exits with a sentence if that cannot be done."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is not installed.")
    if not (report / "index.html").is_file():
        sys.exit(f"{report} has no index.html; run make demo first.")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light", reduced_motion="reduce")
        page.goto((report / "index.html").resolve().as_uri())
        write("page", page.screenshot())
        write("overlay", overlay(page))
        browser.close()


def overlay(page: Any) -> bytes:
    """The large view of the first overlay of a radiograph whose maximum lies in the region, by Dice."""
    page.locator('[name="dataset"]').select_option(label="ChestX-Det10")
    page.locator('[name="outcome"]').select_option("hit")
    page.locator('[name="order"]').select_option("best")
    page.locator(".enlarge").first.click()
    page.locator('dialog[data-drawn="all"]').wait_for()
    picture: bytes = page.locator("dialog canvas").screenshot()
    return picture


def write(name: str, data: bytes) -> None:
    """Writes a picture, a large one with a palette."""
    from PIL import Image

    path = ROOT / "docs" / "pictures" / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    with Image.open(io.BytesIO(data)) as image:
        whole = image.convert("RGB")
    whole.save(path, optimize=True)
    if path.stat().st_size > MOST:
        whole.quantize(COLOURS, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
    if path.stat().st_size > MOST:
        sys.exit(f"{path} has {path.stat().st_size} bytes; at most {MOST} are wanted.")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "demo" / "out" / "run" / "report")
