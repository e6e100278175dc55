"""The page at `/`: a radiograph in, scores and maps of several models side by side, in one file that asks only `/v2`.

render      the file, its policy, and the route it stands at
page.html   the document; page.css its style, after runtime/viewing's
*.js        its scripts, after those of runtime/viewing: protocol (V2 with raw bytes), regions (boxes), question (what
            is asked), bars (scores), card (a model's answer), results (all of them), sharing (JSON and PNG), start
"""

from __future__ import annotations

from .render import page_policy, page_route, page_text

__all__ = ["page_policy", "page_route", "page_text"]
