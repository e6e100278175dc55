"""The documentation site: it builds without a warning, its links have targets, and its search works from disk.

About 15 s of CPU time for the build, and a few for the browser.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import unquote, urlsplit

import pytest
import xbench_fast as xb
from xbench_fast.options import EvaluateOptions, ReportOptions

for package in ("sphinx", "myst_parser", "pydata_sphinx_theme"):
    pytest.importorskip(package, reason="the extra docs is not installed")


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    (line,) = (line for line in (root / "Makefile").read_text().splitlines() if "-m sphinx" in line)
    words = line.replace("build/site-cache", str(folder / "cache")).replace("build/site", str(folder / "html")).split()
    done = subprocess.run([sys.executable, *words[1:]], cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "build succeeded" in done.stdout, done.stdout[-2000:] + done.stderr
    return (folder / "html").resolve()


class Page(HTMLParser):
    """The addresses that a page uses, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.anchors = list[str](), set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects both."""
        values = dict(attrs)
        self.anchors.update(value for key in ("id", "name") if (value := values.get(key)))
        self.links += [value for key in ("href", "src") if (value := values.get(key))]


def test_every_internal_link_has_a_target(site: Path) -> None:
    """Also those that Sphinx does not check: of the docstrings, the theme and the index of options."""
    pages = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 50
    dead, anchored = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            anchored += bool(parts.fragment)
            anchors = {"", *pages[target].anchors} if target in pages else {parts.fragment}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead
    assert anchored > 500


def test_the_reference_has_types_shapes_and_errors(site: Path) -> None:
    """Of every public function each parameter with its type, and of every option of `evaluate` its text."""
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "docs/api").glob("*.html"))
    functions = {name: value for name in xb.__all__ if inspect.isfunction(value := getattr(xb, name))}
    assert len(functions) > 10
    for name, function in functions.items():
        described = text.split(f'id="xbench_fast.{name}"', 1)[1].split("</dl>\n</dd></dl>", 1)[0]
        for parameter in inspect.signature(function).parameters:
            assert f"<strong>{parameter}</strong> (" in described, f"{name}: {parameter}"
    for option in get_type_hints(EvaluateOptions).keys() | get_type_hints(ReportOptions).keys():
        assert re.search(rf"<strong>{option}</strong> \(.*\) – \w", text), option
    for part in ("int32 [P, 101]", "Raises ValueError", "NDArray", "../metrics.html#"):
        assert part in text, part


def search(page: Any, site: Path, words: str) -> list[str]:
    """The addresses of all hits, in their order."""
    page.goto(f"{(site / 'search.html').as_uri()}?q={words}")
    page.get_by_text(re.compile("Search finished|did not match")).wait_for(timeout=60_000)
    return [link.get_attribute("href") for link in page.locator("#search-results li > a").all()]


def test_the_search_works_from_disk(site: Path, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    foreign: list[str] = []
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else foreign.append(request.url)
    )
    assert "docs/metrics.html" in search(page, site, "cross-fitted")
    hits = search(page, site, "--fail-if")
    assert hits[0] == "docs/reference.html#xbench-fast-compare---fail-if"
    page.locator("#search-results li > a").first.click()
    page.wait_for_url("**/docs/reference.html*")
    row = page.locator("tr", has=page.locator("[id='xbench-fast-compare---fail-if']"))
    assert "Condition under which the exit status is 1" in row.inner_text()
    assert "docs/api/evaluating.html#xbench_fast.evaluate" in search(page, site, "evaluate")
    assert not search(page, site, "qwertzuiop")
    assert not foreign, "the site asks nobody"
    context.close()


def test_the_first_page_is_reached_from_the_top(site: Path, browser: Any) -> None:
    page = browser.new_context().new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/docs/index.html")
    assert page.locator("h1").inner_text().startswith("xbench-fast")
    assert page.locator("img[src*=overlay]").evaluate("image => image.naturalWidth") > 100
    titles = page.locator(".bd-header .navbar-nav a").all_inner_texts()
    assert {"Tutorials", "Recipes", "Reference", "Explanations", "Project"} <= {title.strip() for title in titles}
    page.context.close()
