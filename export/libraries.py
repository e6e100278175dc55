"""What an export needs of other libraries: that they are installed, their versions, their silence and their reasons."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from typing import Any

from ..engines.errors import MissingExtraError
from ..engines.extras import missing_package

_PACKAGES = ("xbench-fast", "torch", "onnx", "onnxscript", "onnxruntime", "tokenizers", "open_clip_torch", "numpy")


def require_packages() -> None:
    """Raises MissingExtraError before any work starts, if a package of the export is not installed."""
    for name in ("torch", "onnx", "onnxscript", "onnxruntime"):
        try:
            missing = importlib.util.find_spec(name) is None
        except ValueError:  # the name is blocked in this process
            missing = True
        if missing:
            extras = "export,cpu" if name == "onnxruntime" else "export"
            raise MissingExtraError(missing_package(name, extras, user="An export"))


def required(module: str, user: str) -> Any:
    """The module `module` of a library. Raises MissingExtraError with the `user` that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("open_clip", "open_clip_torch")
        raise MissingExtraError(missing_package(package, "export", user=user)) from error


def versions() -> dict[str, str]:
    """Package -> version, of Python and of the installed packages that an export uses."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def short_reason(error: Exception, most: int = 200) -> str:
    """The message of another library's error, on one line of at most `most` characters; without one its class."""
    return " ".join(str(error).split())[:most].rstrip(".") or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Hides warnings, logs and prints: the exporter of torch warns of its own passes, and the quantisation of ONNX
    Runtime prints what it counts for percentiles. Failures are raised as exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
