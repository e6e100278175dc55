"""The page at `/` in headless Chromium: how it is used, what it refuses, and whom it asks.

Starting three servers and Chromium takes most of the time, 15 to 60 s in all, and one test exports a small model.
"""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from axe_findings import serious
from serving_pages import Visit, answered, drop, maps, visiting
from serving_process import ServerProcess, film
from xbench_fast.runtime.serving.page import page_policy, page_text

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")
playwright = pytest.importorskip("playwright.sync_api")

TOKEN = "correct-horse-battery-staple"


def chooser_by_enter(page: Any) -> Any:
    """The file chooser that Enter opens; the browser now and then drops the key when the machine is busy."""
    for _ in range(4):
        page.locator("#file").focus()
        try:
            with page.expect_file_chooser(timeout=5000) as chooser:
                page.keyboard.press("Enter")
            return chooser.value
        except playwright.TimeoutError:
            continue
    raise AssertionError("Enter opens no file chooser")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_nothing_serious(visit: Visit, folder: Path, scheme: str, width: int) -> None:
    page = visit(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page.locator(".model-choice").first.wait_for()
    assert serious(page) == []
    drop(page, film(folder))
    answered(page)
    assert serious(page) == []


def test_everything_by_keyboard(visit: Visit, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "chosen.png"
    path.write_bytes(film(folder))
    page = visit()
    page.locator(".model-choice").first.wait_for()
    focus = "document.activeElement.id || document.activeElement.value || document.activeElement.className"
    seen = []
    for _ in range(7):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(focus))
    assert seen == ["skip", "theme", "file", "crop-32", "several-32", "whole-32", "set"]
    for _ in range(2):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")  # unticks several-32
    chooser_by_enter(page).set_files(path)
    answered(page, 2)
    order = page.locator(".card[data-model=crop-32] .bars .name").all_inner_texts()
    page.locator(".card[data-model=crop-32] .bars button[tabindex='0']").focus()
    assert page.locator(".card[data-model=crop-32] .bars button[tabindex='0']").count() == 1
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.finding") == order[1]
    page.keyboard.press("Enter")
    assert set(maps(page)) == {("crop-32", order[1]), ("whole-32", order[1])}
    assert page.evaluate("document.activeElement.dataset.finding") == order[1]  # the focus stays
    assert page.locator("#status").inner_text() == f"Shown: {order[1]}."


def test_models_and_sets_can_be_changed(visit: Visit, server: ServerProcess, folder: Path) -> None:
    page = visit()
    drop(page, film(folder))
    answered(page)
    asked = sum(line.get("status") == 200 and "model" in line for line in server.lines())
    page.locator("input[value=crop-32]").uncheck()
    assert page.locator(".card").count() == 2
    page.locator("input[value=crop-32]").check()
    answered(page)
    assert sum(line.get("status") == 200 and "model" in line for line in server.lines()) == asked  # nothing anew
    page.locator("#set").select_option("other")
    page.locator(".card[data-state=refused]").first.wait_for()
    answered(page, 2, "refused")
    assert "set “other”" in page.locator(".card[data-model=several-32] .facts-line").inner_text()
    assert "has no prompt set 'other': known are coco" in page.locator(".card[data-model=whole-32] .error").inner_text()
    visit.forget("status of 400")


def test_a_file_that_is_no_radiograph(visit: Visit, folder: Path) -> None:
    page = visit()
    drop(page, b"GIF89a", "cat.gif")
    answered(page, 3, "refused")
    sentence = "Image 0 cannot be read: it is GIF, neither PNG, JPEG nor DICOM; save it as one of them."
    assert page.locator(".error").first.inner_text() == sentence
    assert page.locator(".error").first.get_attribute("role") == "alert"
    assert not page.locator("#controls").is_visible() and page.get_by_role("button", name="Ask again").count() == 0
    visit.forget("status of 400")
    drop(page, film(folder))
    answered(page)
    assert len(maps(page)) == 3


def test_a_busy_server_can_be_asked_again(visit: Visit, folder: Path) -> None:
    page = visit()
    sentence = "whole-32 is working on 64 of 64 images; try again later."
    body = json.dumps({"error": sentence, "code": "RESOURCE_EXHAUSTED"})
    page.route("**/whole-32/infer", lambda route: route.fulfill(status=429, body=body, headers={"Retry-After": "3"}))
    drop(page, film(folder))
    answered(page, 2)
    assert page.locator(".error").inner_text() == sentence
    page.unroute("**/whole-32/infer")
    page.get_by_role("button", name="Ask again").click()
    answered(page)
    visit.forget("status of 429")
    page.route("**/infer", lambda route: route.abort())
    drop(page, film(folder, 1))
    answered(page, 3, "refused")
    assert page.locator(".error").first.inner_text().startswith("The server cannot be reached")
    visit.forget("net::ERR_FAILED")


def test_own_texts(browser: Any, folder: Path, kad_demo: Any) -> None:
    """Where a bundle has a text graph; a model without one says so."""
    (folder / "own").mkdir()
    (folder / "own" / "models").mkdir()
    (folder / "own" / "models" / "kad-demo").symlink_to(kad_demo.folder)
    (folder / "own" / "models" / "whole-32").symlink_to(folder / "models" / "whole-32")
    process = ServerProcess(folder / "own" / "models", folder / "own")
    with process as server, visiting(browser, server.url) as visit:
        page = visit()
        page.locator(".model-choice").first.wait_for()
        page.locator("#set").select_option("own texts")
        drop(page, film(folder))
        page.get_by_text("Write at least one text and press Ask.").wait_for()
        page.locator("#texts").fill("rib fracture | no rib fracture\n\n  large mass \nrib fracture | normal film")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator(".card[data-model=kad-demo][data-state=answered]").wait_for()
        page.locator(".card[data-model=whole-32][data-state=refused]").wait_for()
        assert "no text graph" in page.locator(".error").inner_text()
        names = page.locator(".card[data-model=kad-demo] .bars .name").all_inner_texts()
        assert sorted(names) == ["large mass", "rib fracture"]
        page.locator("[name=score]").select_option("pair")
        pairs = page.locator(".card[data-model=kad-demo] .bars button").all_inner_texts()
        assert pairs[0].startswith("rib fracture") and "–" in pairs[1]
        visit.forget("status of 400")


def test_a_token_is_asked_for_and_not_kept(browser: Any, folder: Path) -> None:
    (folder / "guarded").mkdir()
    secret = folder / "guarded" / "token"
    secret.write_text(TOKEN)
    process = ServerProcess(folder / "models", folder / "guarded", "--token-file", secret, "--model", "whole-32")
    with process as server, visiting(browser, server.url) as visit:
        page = visit()
        field_ = page.get_by_label("The server's token")
        field_.wait_for()
        assert page.evaluate("document.activeElement.id") == "token"
        assert "needs a token" in page.locator("#token-reason").inner_text()
        field_.fill("wrong")
        with page.expect_response("**/v2/repository/index") as again:
            page.keyboard.press("Enter")
        assert again.value.status == 401 and field_.is_visible()
        page.locator("#token:focus").wait_for()
        field_.fill(TOKEN)
        page.get_by_role("button", name="Use").click()
        page.locator(".model-choice").wait_for()
        assert not field_.is_visible()
        drop(page, film(folder))
        answered(page, 1)
        kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        assert TOKEN not in page.evaluate(kept) + page.content()
        page.reload()
        field_.wait_for()
        visit.forget("status of 401")


def brightness(page: Any) -> float:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_nothing_is_wider_than_the_window(visit: Visit, folder: Path, width: int) -> None:
    page = visit(viewport={"width": width, "height": 800}, color_scheme="dark")
    drop(page, film(folder))
    answered(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert brightness(page) < 60
    page.locator("#theme").click()
    assert brightness(page) > 200
    first, second = (page.locator(".card").nth(n).bounding_box() for n in (0, 1))
    assert (first["y"] == second["y"]) == (width > 400)  # side by side where there is room


def test_the_page_asks_nobody_else(server: ServerProcess) -> None:
    answer = httpx.get(f"{server.url}/", timeout=60)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert answer.text == page_text() and answer.headers["content-security-policy"] == page_policy()
    rules = dict(rule.strip().split(" ", 1) for rule in page_policy().split(";"))
    assert rules["default-src"] == "'none'" and rules["connect-src"] == "'self'" and rules["img-src"] == "data:"
    assert rules["frame-ancestors"] == "'none'" and "unsafe" not in page_policy()
    assert answer.headers["x-content-type-options"] == "nosniff"
    addresses = set(re.findall(r"https?://[^\s'\"<>)]+", answer.text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a format, not an address
    assert "{{" not in re.sub(r"<(script|style)>.*?</\1>", "", answer.text, flags=re.S)
    assert "innerHTML" not in answer.text and "eval(" not in answer.text


def test_everything_the_page_is_made_of_is_installed(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    files = [path.name for path in (root / "runtime" / "serving" / "page").iterdir() if path.is_file()]
    files = [name for name in files if not name.endswith(".py")]
    assert {"page.html", "page.css", "start.js"} <= set(files)
    assert all(any(fnmatch(name, pattern) for pattern in settings["package-data"]["*"]) for name in files)
