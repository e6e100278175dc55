"""Read the style and scripts of the pages, and make the Content-Security-Policy that allows only these."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .....engines.visible_text import visible_text

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent


def shared_asset(name: str) -> str:
    """The text of a file that pages share."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def page_environment(folder: Path) -> Environment:
    """The templates in `folder`, for HTML: what a page shows of a text is text, and its hidden signs are shown. Raises
    ImportError without Jinja2."""
    import jinja2
    from markupsafe import Markup

    def visible(value: Any) -> Any:
        return visible_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, undefined=jinja2.StrictUndefined, finalize=visible
    )


def one_script(parts: Iterable[str]) -> str:
    """Scripts joined into one, strict and without global names in the window."""
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def content_policy(style: str, script: str, *, more: Iterable[str] = ()) -> str:
    """A Content-Security-Policy: nothing may be fetched, and no style or script but these two runs.

    `more`: directives that allow or forbid more, such as "connect-src 'self'".
    """
    rules = ["default-src 'none'", "img-src data:"]
    for kind, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        rules.append(f"{kind}-src 'sha256-{digest}'")
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'", *more])
