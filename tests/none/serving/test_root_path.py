"""A server behind a proxy's prefix: its paths with the prefix and without, and what the token keeps."""

from __future__ import annotations

import asyncio
import io
import json
import re
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.serving.access_log import AccessLog
from xbench_fast.runtime.serving.settings import HttpSettings

for package in ("starlette", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

from xbench_fast.runtime.serving.http.http_app import create_app, create_health_app  # noqa: E402
from xbench_fast.runtime.serving.prometheus_metrics import Metrics  # noqa: E402

TOKEN = {"Authorization": "Bearer a-token"}


class Pretender:
    """As much of a service as the routes here need."""

    ready = True

    def __init__(self) -> None:
        self.metrics = Metrics()


def got(*requests: tuple[str, dict[str, str]], root: str = "/models/xray", health: bool = False) -> list[Any]:
    """The answers to these paths and headers, by a server with a token; then the lines of its log."""
    stream = io.StringIO()
    make = create_health_app if health else create_app
    app = make(Pretender(), HttpSettings(token="a-token", page=True, root_path=root), AccessLog(stream))  # type: ignore[arg-type]

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(path, headers=headers) for path, headers in requests]

    return [*asyncio.run(ask()), [json.loads(line) for line in stream.getvalue().splitlines()]]


@pytest.mark.parametrize("prefix", ["", "/models/xray"])
def test_paths_with_the_prefix_and_without_are_the_same(prefix: str) -> None:
    paths = ("/v2", "/v2/health/live", "/", "/docs", "/openapi.json", "/metrics", "/absent")
    *answers, log = got(*((prefix + path, TOKEN) for path in paths))
    assert [answer.status_code for answer in answers] == [*[200] * 6, 404]
    assert [line["route"] for line in log] == [*paths[:-1], "other"]
    assert answers[0].json()["name"] == "xbench-fast"
    (bare, _) = got((prefix or "/", {}))
    assert bare.status_code == 200 and "<h1>xbench-fast</h1>" in bare.text
    *answers, _ = got((f"{prefix}/v2/health/ready", {}), (f"{prefix}/v2", TOKEN), health=True)
    assert [answer.status_code for answer in answers] == [200, 404]


def test_the_token_is_asked_for_below_the_prefix() -> None:
    paths = ("/v2", "/models/xray/v2", "/models/xray/models/xray/v2", "/models/xray/metrics", "/models/xray//docs")
    paths += ("/models/xrayv2", "/models/xray/models/xray/", "/models/xray/docs/../v2", "/models/xray%2Fv2")
    *answers, _ = got(*((path, {}) for path in paths))
    assert [answer.status_code for answer in answers] == [401] * len(paths)
    *answers, _ = got(*((f"/models/xray{path}", {}) for path in ("/", "/docs", "/openapi.json", "/v2/health/live")))
    assert [answer.status_code for answer in answers] == [200] * 4


def test_a_redirect_keeps_the_prefix() -> None:
    answer, _ = got(("/v2/models/", TOKEN))
    assert answer.status_code == 307 and answer.headers["location"] == "http://localhost/models/xray/v2/models"


def test_the_pages_ask_below_the_prefix() -> None:
    page, docs, described, _ = got(*((path, {}) for path in ("/", "/docs", "/openapi.json")))
    assert re.findall(r'<meta name="root-path" content="([^"]*)">', page.text) == ["/models/xray"]
    assert "fetch(ROOT + path" in page.text
    assert "Every path begins with <code>/models/xray</code>" in docs.text and 'href="openapi.json"' in docs.text
    assert described.json()["servers"] == [{"url": "/models/xray"}]
    page, docs, described, _ = got(*((path, {}) for path in ("/", "/docs", "/openapi.json")), root="")
    assert '<meta name="root-path" content="">' in page.text and "begins with" not in docs.text
    assert described.json()["servers"] == [{"url": "/"}]


def test_a_prefix_that_a_client_names_is_not_believed() -> None:
    forged = {"X-Forwarded-Prefix": "/evil", "X-Forwarded-Path": "/evil", "X-Script-Name": "/evil"}
    page, described, absent, _ = got(("/", forged), ("/openapi.json", forged), ("/evil/v2", {**TOKEN, **forged}))
    assert "evil" not in page.text + described.text and absent.status_code == 404


@pytest.mark.parametrize(
    "root",
    [
        "xray",
        "/",
        "/xray/",
        "//xray",
        "/x//y",
        "/../x",
        "/x/..",
        "/x y",
        "/x%2F",
        '/"><b>',
        "/v2",
        "/docs/x",
        "/metrics",
    ],
)
def test_a_prefix_that_is_no_path_is_refused(root: str) -> None:
    with pytest.raises(ConfigError, match="--root-path"):
        HttpSettings(root_path=root)
