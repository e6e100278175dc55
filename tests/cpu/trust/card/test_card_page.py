"""The page and the figure of a card, and the cards of the demo model."""

from __future__ import annotations

import html
import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from axe_findings import serious
from card_world import MODEL, cards, command, make_card_world, say
from report_world import visits
from xbench_fast.runtime.reporting.presentation import Presentation
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.trust.card.forest import forest_figure
from xbench_fast.runtime.trust.card.making import make_cards
from xbench_fast.runtime.trust.card.words import CLAIMS, QUESTIONS

GOLDEN = Path(__file__).parents[3] / "golden"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two cards: that of the bundle has lines of every word but void."""
    for package in ("jinja2", "matplotlib"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_card_world(folder)
        say(folder / "trust", "randomisation", ("pass", "pass", "pass"))
        say(folder / "trust", "deletion", ("pass", "cannot tell", "pass", "pass"))
        say(folder / "trust", "region", ("fail", "fail"))
        command("report", "run", "--trust", "trust", "--quiet", "--replicates", 40)
    return folder / "run" / "report"


@pytest.fixture(scope="module")
def page(world: Path) -> Path:
    return world / "cards" / f"{MODEL}--coco.html"


@pytest.fixture
def visit(browser: Any, page: Path) -> Iterator[Callable[..., Any]]:
    with visits(browser, page.as_uri()) as start:
        yield start


class Seen(HTMLParser):
    """Texts by the class of the innermost element that has one, and all names of elements."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self._class = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self._class = dict(attributes).get("class") or tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.setdefault(self._class, []).append(data.strip())


def test_nine_lines_with_their_words_and_no_script(page: Path) -> None:
    seen = Seen(page)
    told = json.loads(page.with_suffix(".json").read_text())
    assert seen.texts["h3"] == [f"{number} {question}" for number, question in QUESTIONS.items()]
    assert seen.texts["verdict"] == [line["told"] for line in told["lines"]]
    assert seen.texts["finding"] == [line["finding"] for line in told["lines"]]
    assert {line["verdict"] for line in told["lines"]} >= {"pass", "fail", "cannot tell", "not run", "no verdict"}
    assert not {"script", "link", "iframe"} & set(seen.names) and seen.names.count("img") == 3
    text = html.unescape(page.read_text())
    assert all(claim in text for claim in CLAIMS) and "research use; not a medical device" in text
    assert "default-src 'none'" in text and "http" not in re.sub(r"http-equiv|data:[^\"]*", "", text)
    assert all((page.parent / target).is_file() for target in re.findall(r'href="([^"]+)"', text))


def test_the_report_leads_to_the_cards(world: Path) -> None:
    text = (world / "index.html").read_text()
    assert f'<a href="cards/{MODEL}--coco.html">{MODEL} on coco</a>' in text and '<a href="#cards">' in text
    assert '<a href="cards/baseline_center--coco.html">' in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_card_can_be_read_by_everybody(visit: Callable[..., Any], scheme: str) -> None:
    opened = visit(color_scheme=scheme, bypass_csp=True)
    assert serious(opened) == []
    # `cannot tell` is as large as `pass`, and no word has a colour of its own
    looks = opened.evaluate(
        "[...document.querySelectorAll('.verdict')].map((p) => { const s = getComputedStyle(p);"
        " return [s.fontSize, s.fontWeight, s.color, s.backgroundColor].join() })"
    )
    assert len(looks) == 9 and len(set(looks)) == 1


def test_nothing_is_wider_than_a_telephone_and_print_is_one_sheet(visit: Callable[..., Any], tmp_path: Path) -> None:
    opened = visit(viewport={"width": 380, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 380
    opened.pdf(path=tmp_path / "card.pdf", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "card.pdf").read_bytes())) == 1


def test_the_figure_has_a_row_for_each_number_with_a_verdict(world: Path, page: Path) -> None:
    told = json.loads(page.with_suffix(".json").read_text())
    drawing = ET.parse(page.with_suffix(".svg"))
    texts = ["".join(node.itertext()).strip() for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    judged = [item for line in told["lines"] for item in line["numbers"] if item["word"] and item["value"] is not None]
    assert sorted(text for text in texts if text in {item["word"] for item in judged}) == sorted(
        item["word"] for item in judged
    )
    for label in ("1 AP - chance", "2 AP - mean map of", "3 AP - other findings", "7 flips", "9 worst: "):
        assert any(text.startswith(label) for text in texts), label
    assert "8 The same for all: not run" in texts
    sizes = {
        float(size) for size in re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", page.with_suffix(".svg").read_text())
    }
    assert min(sizes) >= 7 and drawing.getroot().attrib["width"] == "237.6pt"
    caption = "".join(drawing.getroot().itertext())
    assert all(f"{line['line']} {line['question']}: {line['told']}" in caption for line in told["lines"])
    assert page.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_the_words_of_a_number_do_not_reach_the_figure(world: Path) -> None:
    """Its rows have labels of their own, and dashed lines by the criteria."""
    say(world.parents[1] / "trust", "prompts", ("pass",))
    card = cards(world.parents[1], world.parents[1] / "trust")[MODEL]

    def drawn(what: str) -> list[str]:
        lines = [
            replace(line, numbers=tuple(replace(item, what=what or item.what) for item in line.numbers))
            for line in card.lines
        ]
        root = ET.fromstring(forest_figure(replace(card, lines=tuple(lines)), "labels").svg)
        texts = ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]
        return [text for text in texts if re.match(r"\d \S", text)]

    found = drawn("")
    assert found == drawn("said in another way")
    for label in (
        "1 AP - chance",
        "2 AP - mean map of others",
        "3 AP - all other findings",
        "4 Spearman, random weights",
        "4 SSIM, random weights",
        "4 ROC AUC, random weights",
        "5 deletion, mean",
        "5 insertion, blur16",
        "6 region filled, mean",
        "7 flips",
    ):
        assert label in found, label


def test_the_figure_of_a_card_without_numbers_is_drawn(world: Path) -> None:
    """Of boxes, for example, lines 1 to 7 have none."""
    card = cards(world.parents[1])[MODEL]
    bare = replace(card, lines=tuple(replace(line, numbers=()) for line in card.lines))
    assert "9 Where it fails: no verdict" in forest_figure(bare, "bare").svg


def test_the_demo_answers_on_phantoms_what_it_does_not_on_radiographs(tmp_path: Path) -> None:
    """Lines 1 to 3 of the kept run; the others need forward passes (test_trained_and_random)."""
    shutil.copytree(GOLDEN / "run", tmp_path / "run")
    report = make_report(tmp_path / "run", Choices(replicates=200), Presentation(models=("kad-demo",)))
    found = make_cards(report, (), pictures=False)
    words = {card.dataset: [line.word for line in card.lines[:3]] for card in found}
    assert words["phantoms"] == ["pass", "pass", "pass"]
    assert words["chestxdet10"] == ["pass", "cannot tell", "cannot tell"]
    assert all("never saw a radiograph" in card.stamps[0] for card in found)
