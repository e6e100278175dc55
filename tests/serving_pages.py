"""The server's page in headless Chromium: a folder of three models, visits that notice what should not happen."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthetic import make_bundle, make_dataset, prompt_set, save_graph
from xbench_fast.engines.geometry import Geometry

GEOMETRIES = {
    "crop-32": Geometry("crop", 32, 36, "bilinear"),
    "several-32": Geometry("squash", 32, 32, "bilinear"),
    "whole-32": Geometry("squash", 32, 32, "bilinear"),
}
WEIGHTS = {"crop-32": "stand-in", "several-32": "demo", "whole-32": "published"}
PROMPTS = {name: prompt_set(several=name == "several-32") for name in GEOMETRIES}


def make_models(root: Path) -> Path:
    """Three models under root/models, one of them with two prompt sets and negative prompts, and three films."""
    graph = save_graph(root / "blocks.onnx")
    for name, geometry in GEOMETRIES.items():
        several = name == "several-32"
        sets = ("coco", "other") if several else ("coco",)
        path = root / "models" / name
        make_bundle(path, graph=graph, geometry=geometry, weights=WEIGHTS[name], several=several, sets=sets)
    make_dataset(root / "data", 3)
    return root


@dataclass
class Visit:
    """Opens pages of one server and notes what should not have happened."""

    browser: Any
    url: str
    seen: list[str] = field(default_factory=list)

    def __call__(self, **options: Any) -> Any:
        context = self.browser.new_context(
            **{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options}
        )
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("request", lambda request: self.unwanted(request.url))
        page.goto(self.url)
        return page

    def unwanted(self, address: str) -> None:
        if not address.startswith((f"{self.url}/", "data:", f"blob:{self.url}/")):
            self.seen.append(address)

    def forget(self, words: str) -> None:
        """Takes out messages that are meant, at least one: the browser itself reports every refused request."""
        kept = [line for line in self.seen if words not in line]
        assert len(kept) < len(self.seen), self.seen
        self.seen[:] = kept


@contextmanager
def visiting(browser: Any, url: str) -> Iterator[Visit]:
    """In the end there must have been no message, no error and no request but to the server."""
    made = Visit(browser, url)
    yield made
    for context in browser.contexts:
        context.close()
    assert made.seen == []


def drop(page: Any, data: bytes, name: str = "film.png") -> None:
    """Drops a file on the page, as a hand would."""
    code = """([text, name]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
        return transfer;
    }"""
    transfer = page.evaluate_handle(code, [base64.b64encode(data).decode(), name])
    page.locator(".model-choice").first.wait_for()
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})


def answered(page: Any, count: int = 3, state: str = "answered") -> None:
    """Waits for COUNT cards in STATE and for no card that waits; by selectors, since the page's policy forbids eval."""
    there = f"body:not(:has(.card[data-state=waiting])) .card[data-state={state}]"
    page.locator(there).nth(count - 1).wait_for(state="attached")
    assert page.locator(there).count() == count


def maps(page: Any) -> dict[tuple[str, str], dict[str, str]]:
    """(model, finding) -> what is noted of its map, once it is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    code = "(figures) => figures.map((figure) => [figure.closest('.card').dataset.model, {...figure.dataset}])"
    found = page.locator(".map[data-finding]").evaluate_all(code)
    return {(name, data["finding"]): data for name, data in found}
