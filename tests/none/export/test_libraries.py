"""What an export needs of other libraries; nothing here needs torch."""

from __future__ import annotations

import logging
import sys
import warnings

import pytest
from xbench_fast.engines.errors import MissingExtraError
from xbench_fast.export.libraries import quiet, required, short_reason


def test_the_reason_of_another_library_is_one_short_line() -> None:
    assert short_reason(ValueError("two\n  lines. ")) == "two lines"
    assert short_reason(ValueError("a" * 400)) == "a" * 200 and short_reason(ValueError("abc"), 2) == "ab"
    assert short_reason(KeyError()) == "KeyError"


def test_a_missing_library_is_named_as_pip_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert required("json", "This") is sys.modules["json"]
    monkeypatch.setitem(sys.modules, "open_clip", None)
    monkeypatch.setitem(sys.modules, "open_clip.model", None)  # an earlier test may have imported it
    words = r"^CLIP needs open_clip_torch, which is not installed; install xbench-fast\[export\]\.$"
    with pytest.raises(MissingExtraError, match=words):
        required("open_clip.model", "CLIP")


def test_quiet_hides_what_libraries_say_and_restores_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(record=True) as seen, pytest.raises(ValueError, match="raised"):
        warnings.simplefilter("always")
        with quiet():
            print("counted")
            warnings.warn("passes", stacklevel=1)
            logging.getLogger("library").warning("logged")
            raise ValueError("raised")
    logging.getLogger("library").warning("after")
    print("after")
    assert capsys.readouterr().out == "after\n" and not seen and caplog.messages == ["after"]
