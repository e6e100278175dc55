"""The page at `/`: a radiograph in, scores and maps of several models side by side, in one file that calls only `/v2`.

render     the file, its policy, and its route
page.html  the document; page.css its style, after the viewer's
*.js       its scripts, after the scripts of the viewer: protocol (V2 with raw bytes), regions (boxes), question (the
           request), bars (scores), card (a model's answer), results (all of them), sharing (JSON and PNG), start
"""

from __future__ import annotations

from .render import page_endpoint, page_policy, page_text

__all__ = ["page_endpoint", "page_policy", "page_text"]
