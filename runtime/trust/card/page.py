"""A card -> its page: one file with its style and pictures inside, without scripts, printable on one sheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....engines.errors import MissingExtraError
from ...reporting.page.html import jpeg_uri
from ...reporting.page.viewing.assets import content_policy, page_environment, shared_asset
from ...reporting.tables.metric_names import p_value, percent
from .card import CardNumber, TrustCard
from .words import CHECKLISTS, CLAIMS

_ASSETS = Path(__file__).parent


def number_text(item: CardNumber) -> str:
    """A number with its interval, in its unit."""
    if item.value is None:
        return "-"
    if item.unit in ("share", "pointing", "gap"):
        signed = item.unit == "gap"
        value, *ends = (_percent(each, signed) for each in (item.value, item.low, item.high) if each is not None)
        unit = "points" if signed else "%"
    else:
        value, *ends = (f"{each:+.3f}" for each in (item.value, item.low, item.high) if each is not None)
        unit = ""
    around = f" [{ends[0]}, {ends[1]}]" if len(ends) == 2 else ""
    return f"{value}{around} {unit}".strip()


def _percent(value: float, signed: bool) -> str:
    text = percent(value, 1)
    return f"+{text}" if signed and value > 0 and not text.startswith("-") else text


def card_page(card: TrustCard, links: Sequence[tuple[str, str]]) -> str:
    """The page as HTML. links: words and address of the other files of the card. Raises MissingExtraError without
    Jinja2."""
    try:
        environment = page_environment(_ASSETS)
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError("A trust card needs Jinja2; install xbench-fast[report].") from error
    environment.filters |= {"number_text": number_text, "p_text": lambda item: p_value(item.p_holm, item.p_bound)}
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
