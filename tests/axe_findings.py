"""What axe-core finds in a page."""

from __future__ import annotations

from typing import Any

import pytest


def serious(page: Any) -> list[str]:
    """The serious and critical findings with an example each; the page must allow scripts that it does not hold."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = [item for item in found if item["impact"] in ("serious", "critical")]
    return [f"{item['impact']}: {item['help']}: {item['nodes'][0]['html'][:200]}" for item in bad]
