"""Reads a file of boxes line by line, or entry by entry: bounded UTF-8, strict JSON, and a hash of the bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from ....engines.errors import DataError
from ....engines.strict_json import distinct_keys
from .bad_line import BadLine, printable

MAX_LINE: Final = 8 << 20
"""Bytes of a line; an answer is a few thousand."""

MAX_DOCUMENT: Final = 256 << 20
"""Bytes of a JSON file that is no JSON Lines."""

_BOM: Final = b"\xef\xbb\xbf"
_PIECE: Final = 1 << 20  # bytes read at once, so that a file without line ends does not fill memory
_SPACE: Final = re.compile(r"[ \t\n\r]*")


class HashedFile:
    """The lines of a file that are not blank; after the last one, `sha256` is the hash of the file.

    Raises DataError when the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sha = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._sha.hexdigest()

    def lines(self) -> Iterator[tuple[int, bytes | None]]:
        """(1-based number, bytes without white space around them); None instead of a line above `MAX_LINE`."""
        try:
            with self.path.open("rb") as stream:
                for number, line in enumerate(self._raw(stream), 1):
                    if number == 1 and line is not None:
                        line = line.removeprefix(_BOM)
                    if line is None or (line := line.strip()):
                        yield number, line
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def _raw(self, stream: BinaryIO) -> Iterator[bytes | None]:
        while line := stream.readline(MAX_LINE + 1):
            self._sha.update(line)
            if len(line) <= MAX_LINE or line.endswith(b"\n"):
                yield line
                continue
            while (rest := stream.readline(_PIECE)) and not rest.endswith(b"\n"):
                self._sha.update(rest)
            self._sha.update(rest)
            yield None


def _unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file of boxes that cannot be opened or read."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"The file {path} does not exist; correct its path.")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder; name the file of boxes in it.")
    return DataError(f"The file {path} cannot be read: {error.strerror or error}.")


def opening(path: Path) -> bytes:
    """The first byte of a file that is no white space; empty if there is none. Raises DataError."""
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_PIECE):
                if mark := piece.removeprefix(_BOM).lstrip()[:1]:
                    return mark
    except OSError as error:
        raise _unreadable(path, error) from error
    return b""


class JsonFile:
    """A JSON file that is read as a text and can be parsed entry by entry. sha256: of its bytes.

    Raises DataError for what is no JSON.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = bytearray()
        try:
            with path.open("rb") as stream:
                while len(content) <= MAX_DOCUMENT and (piece := stream.read(_PIECE)):
                    content += piece
        except OSError as error:
            raise _unreadable(path, error) from error
        if len(content) > MAX_DOCUMENT:
            problem = f"is larger than {MAX_DOCUMENT >> 20} MiB; write it as JSON Lines (docs/boxes.md §1)"
            raise DataError(f"{path} {problem}.")
        self.sha256 = hashlib.sha256(content).hexdigest()
        with self._parsing():
            self.text = content.decode().removeprefix("\ufeff")

    def document(self) -> Any:
        """The value of the file."""
        with self._parsing():
            return json.loads(self.text, object_pairs_hook=distinct_keys)

    def entries(self) -> Iterator[tuple[str, Any]]:
        """The key, empty in a list, and the value of each entry of a list or an object, one in memory at a time."""
        decode = json.JSONDecoder(object_pairs_hook=distinct_keys).raw_decode
        text, seen = self.text, set[str]()
        with self._parsing():
            at = _after_space(text, 0)
            close = {"[": "]", "{": "}"}.get(text[at : at + 1])
            if close is None:
                raise json.JSONDecodeError("Expecting a list or an object", text, at)
            mark, at = ",", _after_space(text, at + 1)
            if text.startswith(close, at):
                mark = close
            while mark == ",":
                key = ""
                if close == "}":
                    if not text.startswith('"', at):
                        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
                    key, at = decode(text, at)
                    distinct_keys([(key, None)] * (1 + (key in seen)))
                    seen.add(key)
                    at = _after_space(text, at)
                    if not text.startswith(":", at):
                        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
                    at = _after_space(text, at + 1)
                value, at = decode(text, at)
                yield key, value
                at = _after_space(text, at)
                mark = text[at : at + 1]
                if mark not in (",", close):
                    raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
                at = _after_space(text, at + 1) if mark == "," else at
            if (at := _after_space(text, at + 1)) < len(text):
                raise json.JSONDecodeError("Extra data", text, at)

    @contextmanager
    def _parsing(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
            raise DataError(printable(f"{self.path} is not a JSON file: {reason}; correct it.")) from error


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def json_object(line: bytes | None) -> dict[str, Any]:
    """A line as a JSON object. Raises BadLine."""
    if line is None:
        raise BadLine("", f"it is longer than {MAX_LINE >> 20} MiB; write one answer a line")
    try:
        # NaN and Infinity pass here, so that the message can name their key.
        value = json.loads(line.decode(), object_pairs_hook=distinct_keys)
    except UnicodeDecodeError:
        raise BadLine("", "it is not UTF-8; write the file in UTF-8") from None
    except RecursionError:
        raise BadLine("", "it is nested too deeply; write one object without nesting") from None
    except ValueError as error:  # also a key twice, and a number of thousands of digits
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise BadLine("", f"it is not valid JSON ({reason}); write one object a line") from None
    if not isinstance(value, dict):
        raise BadLine("", "it is not a JSON object; write one object a line")
    return value
