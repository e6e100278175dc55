"""The page as one HTML file: style and scripts inside; it may only send requests to this server."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from ...host.machine_record import code_version
from ...reporting.page.viewing.assets import content_policy, one_script, shared_asset
from ..inference.metadata import NOTICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

_FOLDER = Path(__file__).parent
_SHARED = ("elements", "theme", "saliency", "drawing")
_SCRIPTS = ("protocol", "regions", "question", "bars", "card", "results", "sharing", "start")


def page_endpoint(root_path: str = "") -> Callable[[Request], Awaitable[Response]]:
    """The page at `/`, for an application that needs no token there: the page itself asks the user for it.
    `root_path`: the prefix of the server's addresses behind a proxy."""
    from starlette.responses import Response

    text = page_text(root_path)
    headers = {
        "content-security-policy": page_policy(),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-cache",
    }

    async def page(request: Request) -> Response:
        return Response(text, media_type="text/html", headers=headers)

    return page


def page_text(root_path: str = "") -> str:
    """The document with its style and scripts; `root_path`: the prefix of the addresses it asks."""
    document = (_FOLDER / "page.html").read_text(encoding="utf-8")
    parts = {"notice": html.escape(NOTICE), "version": html.escape(code_version())}
    parts["root_path"] = html.escape(root_path)
    for name, text in {**parts, "style": _style(), "script": _script()}.items():
        document = document.replace("{{ " + name + " }}", text)
    return document


def page_policy() -> str:
    """The page's Content-Security-Policy; scripts can neither load nor create others, nor turn text into elements."""
    more = (
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return content_policy(_style(), _script(), more=more)


def _style() -> str:
    return shared_asset("base.css") + (_FOLDER / "page.css").read_text(encoding="utf-8")


def _script() -> str:
    page_scripts = ((_FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    return one_script([*(shared_asset(f"{name}.js") for name in _SHARED), *page_scripts])
