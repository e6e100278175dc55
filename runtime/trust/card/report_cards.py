"""Cards -> their part of a report: a table, the files of its folder cards/ and plain data.

The page of a card is one file with its style and pictures inside, without scripts, printable on one sheet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ....engines.errors import MissingExtraError
from ....engines.extras import missing_package
from ....engines.file_names import joined, unique_stems
from ...reporting.appendix import Appendix
from ...reporting.page.html import jpeg_uri
from ...reporting.page.viewing.assets import content_policy, page_environment, shared_asset
from ...reporting.tables.metric_names import NONE
from ...reporting.tables.table import Column, Item, Table
from .card import CardLine, CardNumber, TrustCard
from .words import CHECKLISTS, CLAIMS, USE

FOLDER = "cards"
_ASSETS = Path(__file__).parent


def card_appendix(
    cards: Sequence[TrustCard], *, page: bool = True, say: Callable[[str], None] = lambda line: None
) -> Appendix:
    """The cards as a part of a report. page: also pages and figures. say: called with a sentence on what a missing
    package cannot draw."""
    files: dict[str, bytes] = {}
    links = []
    for card, name in zip(cards, unique_stems([joined(card.model, card.dataset) for card in cards]), strict=True):
        stem = f"{FOLDER}/{name}"
        files[f"{stem}.json"] = (json.dumps(card.to_json, indent=1, allow_nan=False) + "\n").encode("utf-8", "replace")
        if page:
            files |= _drawn(card, stem, say)
        if f"{stem}.html" in files:
            links.append((f"{card.model} on {card.title}", f"{stem}.html"))
    data = [card.to_json for card in cards]
    return Appendix("cards", FOLDER, (_table(cards),) if cards else (), files, tuple(links), data)


def _page(card: TrustCard, links: Sequence[tuple[str, str]]) -> str:
    """The page as HTML. links: words and address of the other files of the card. Raises MissingExtraError without
    Jinja2."""
    try:
        environment = page_environment(_ASSETS)
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError(missing_package("Jinja2", "report", user="A trust card")) from error
    style = shared_asset("base.css") + (_ASSETS / "card.css").read_text(encoding="utf-8")
    return environment.get_template("card.html.j2").render(
        card=card,
        links=links,
        claims=CLAIMS,
        checklists=CHECKLISTS,
        pictures=[(each.caption, None if each.png is None else jpeg_uri(each.png)) for each in card.pictures],
        policy=content_policy(style, ""),
        style=Markup(style),
    )


def _drawn(card: TrustCard, stem: str, say: Callable[[str], None]) -> Mapping[str, bytes]:
    from .forest import forest_figure

    files: dict[str, bytes] = {}
    name = stem.partition("/")[2]
    try:
        figure = forest_figure(card, name)
        files |= {f"{FOLDER}/{file}": content for file, content in figure.files.items()}
    except MissingExtraError as error:
        say(str(error))
    kinds = {"pdf": "figure as PDF", "svg": "as SVG", "json": "JSON"}
    links = [(words, f"{name}.{kind}") for kind, words in kinds.items() if kind == "json" or f"{stem}.{kind}" in files]
    try:
        files[f"{stem}.html"] = _page(card, [("Report", "../index.html"), *links]).encode("utf-8", "replace")
    except MissingExtraError as error:
        say(str(error))
    return files


def _table(cards: Sequence[TrustCard]) -> Table:
    heads = ("model", "dataset", "line", "question", "verdict", "number", "value", "p (Holm)", "m", "pairs", "patients")
    rows = [row for card in cards for line in card.lines for row in _rows(card, line)]
    notes = (
        "[low, high]: 95 % intervals over patients; p: corrected for m tests that were declared together; "
        "docs/trust-card.md §8",
        "there is no total; what may not be claimed stands on each card",
        USE,
    )
    stamps = tuple(dict.fromkeys(line for card in cards for line in card.stamps))
    what = "The lines of the trust cards, each with its verdict and numbers."
    return Table("Trust cards", tuple(map(Column, heads)), tuple(rows), stamps, notes, "cards", first=True,
                 caption=what, lead=4)  # fmt: skip


def _rows(card: TrustCard, line: CardLine) -> list[tuple[Item, ...]]:
    lead = (card.model, card.title, str(line.number), line.question, line.text)
    shown: list[CardNumber] = [item for item in line.numbers if item.word is not None or line.word == "no verdict"]
    if not shown:
        return [(*lead, *([NONE] * 6))]
    return [
        (
            *lead,
            item.what,
            item.text,
            item.p_text,
            NONE if item.p_holm is None else str(item.family),
            NONE if item.pairs is None else str(item.pairs),
            NONE if item.patients is None else str(item.patients),
        )
        for item in shown
    ]
