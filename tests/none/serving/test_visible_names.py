"""Names of others on the server's page, in its log and in the log of its requests: hidden signs are shown."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from xbench_fast.engines import visible_text as shown
from xbench_fast.engines.commands import show_log
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.serving.access_log import AccessLog

EVIL = "Mass\u202egnp.\x1b[2J\x9b\u2066\U000e0041\x7f\ud800é\n"
EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


def script(root: Path, name: str = "reporting/page/viewing/elements") -> str:
    return (root / "runtime" / f"{name}.js").read_text(encoding="utf-8")


def test_the_page_shows_the_signs_that_a_terminal_shows(root: Path) -> None:
    """The class of signs in the script is that of engines/visible_text.py, for every character there is."""
    (signs,) = re.findall(r"const HIDDEN =\s*/(\[.*\])/gu;", script(root))
    pattern = re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: f"\\U{int(match[1], 16):08x}", signs)
    assert re.findall(pattern, EVERY) == shown._SIGN.findall(EVERY) != []


def test_every_text_of_the_page_is_written_by_what_shows_them(root: Path) -> None:
    """A script that writes a text by itself writes a name as it is."""
    raw = re.compile(
        r"\.textContent\s*=|\.(?:inner|outer)HTML|insertAdjacent|\.innerText|new Option\(|createTextNode"
        r"|\.title\s*=|setAttribute\(\"aria-(?:label|valuetext)"
    )
    scripts = sorted((root / "runtime" / "serving" / "page").glob("*.js"))
    assert len(scripts) > 5
    for path in scripts:
        assert not raw.findall(path.read_text(encoding="utf-8")), path.name
    assert "lines.map(visible)" in script(root, "serving/page/sharing")
    assert "visibleJson(JSON.stringify(" in script(root, "serving/page/sharing")


def test_the_script_writes_them_as_python_does(root: Path, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    code = """
const made = (name) => ({
  name, attributes: {}, children: [],
  setAttribute(key, value) { this.attributes[key] = value; },
  append(...children) { this.children.push(...children); },
});
const document = { createElement: made };
class Option { constructor(text, value) { Object.assign(this, { text, value }); } }
SCRIPT
const evil = JSON.parse(require("fs").readFileSync(0, "utf8"));
const item = make("b", { textContent: evil, title: evil, value: evil, "aria-label": evil }, evil, make("i", {}));
const empty = make("b", { textContent: undefined }).textContent;
console.log(JSON.stringify([item, option(evil, evil), visibleJson(JSON.stringify({ [evil]: evil })), empty]));
"""
    path = tmp_path / "try.js"
    path.write_text(code.replace("SCRIPT", script(root)), encoding="utf-8")
    done = subprocess.run(
        [node, str(path)], input=json.dumps(EVIL), capture_output=True, text=True, timeout=60, check=True
    )
    item, option, text, empty = json.loads(done.stdout)
    expected = shown.visible_text(EVIL)
    assert (item["textContent"], item["title"], item["attributes"]["aria-label"]) == (expected,) * 3
    assert item["children"][0] == expected and item["children"][1]["name"] == "i" and item["value"] == EVIL
    assert option == {"text": expected, "value": EVIL} and empty == ""
    assert json.loads(text) == {EVIL: EVIL} and not shown._SIGN.search(text)


def test_a_line_of_the_log_shows_them_with_its_traceback() -> None:
    handler = logging.lastResort
    assert handler is not None
    before = handler.formatter
    try:
        for start in (show_log, lambda: main(["--version"])):
            handler.setFormatter(before)
            with suppress(SystemExit):
                start()
            try:
                raise ValueError(EVIL)
            except ValueError:
                record = logging.LogRecord(
                    "x", logging.ERROR, "f", 1, "A request for %s failed", (EVIL,), sys.exc_info()
                )
            text = handler.format(record)
            assert text.startswith(f"A request for {shown.visible_text(EVIL)} failed\nTraceback (most recent")
            assert "ValueError: Mass\\u202egnp" in text and not shown._SIGN.search(text)
    finally:
        handler.setFormatter(before)


def test_a_line_of_a_request_shows_them() -> None:
    stream = io.StringIO()
    AccessLog(stream).write(client="\x7f\x9b", model=EVIL)
    line = stream.getvalue()
    assert json.loads(line)["model"] == EVIL and not shown._SIGN.search(line) and line.count("\n") == 1
