"""The page at /docs, which shows the description at /openapi.json without a script and without other files."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from ...reporting.page.viewing.assets import content_policy, shared_asset
from .accept import JSON, offering
from .openapi import openapi

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

_STYLE = """
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
section { border-top: 1px solid var(--line); margin-top: 1.5rem; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; }
dt { font-weight: 600; margin-top: .4rem; }
dd { margin-left: 1.5rem; }
summary { cursor: pointer; }
"""


def docs_routes(root_path: str = "") -> list[BaseRoute]:
    """/openapi.json and /docs; `root_path`: the prefix of all paths behind a proxy."""
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    document = openapi(root_path)
    text = docs_text(document)
    headers = {
        "content-security-policy": content_policy(_style(), "", more=("frame-ancestors 'none'",)),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }

    async def described(request: Request) -> Response:
        return JSONResponse(document)

    async def page(request: Request) -> Response:
        return HTMLResponse(text, headers=headers)

    return [Route("/openapi.json", offering(JSON, described)), Route("/docs", offering("text/html", page))]


def docs_text(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    info = document["info"]
    parts = [f"<h1>{_escape(info['title'])} {_escape(info['version'])}</h1><p>{_escape(info['description'])}</p>"]
    parts.append('<p>For programs: <a href="openapi.json">openapi.json</a></p>')
    root = document["servers"][0]["url"]
    if root != "/":
        parts.append(f"<p>Every path begins with <code>{_escape(root)}</code>.</p>")
    for path, item in document["paths"].items():
        shared = item.get("parameters", [])
        parts += [_operation(verb, path, item[verb], shared) for verb in ("get", "post") if verb in item]
    parts.append("<section><h2>Bodies</h2>")
    for name, schema in document["components"]["schemas"].items():
        text = json.dumps(schema, indent=1)
        parts.append(f'<details id="{_escape(name)}"><summary>{_escape(name)}</summary><pre>{_escape(text)}</pre>')
        parts.append("</details>")
    parts.append("</section>")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_escape(info["title"])}'
    return (
        f'<!doctype html><html lang="en"><head>{head}</title><style>{_style()}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>"
    )


def _operation(verb: str, path: str, operation: dict[str, Any], shared: list[dict[str, Any]]) -> str:
    rows = [
        f"<dt>{_escape(item['name'])} ({_escape(item['in'])})</dt><dd>{_escape(item['description'])}</dd>"
        for item in (*shared, *operation.get("parameters", ()))
    ]
    if "requestBody" in operation:
        rows.append(f"<dt>body</dt><dd>{_contents(operation['requestBody']['content'])}</dd>")
    for status, answer in operation["responses"].items():
        rows.append(
            f"<dt>{_escape(status)}</dt><dd>{_escape(answer['description'])} {_contents(answer['content'])}</dd>"
        )
    return (
        f"<section><h2>{verb.upper()} {_escape(path)}</h2><p>{_escape(operation['summary'])}</p>"
        f"<dl>{''.join(rows)}</dl></section>"
    )


def _contents(content: dict[str, Any]) -> str:
    """Content types, each with its schema."""
    types = []
    for media_type, item in content.items():
        name = item["schema"].get("$ref", "").rpartition("/")[2]
        schema = f'<a href="#{_escape(name)}">{_escape(name)}</a>' if name else item["schema"].get("description", "")
        types.append(f"<code>{_escape(media_type)}</code> {schema}")
    return "; ".join(types)


def _style() -> str:
    return shared_asset("base.css") + _STYLE


def _escape(text: str) -> str:
    return html.escape(str(text))
