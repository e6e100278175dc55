"""Values of a TOML file as types, checked by msgspec; a message names the file, the key and what must stand there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from .errors import ConfigError

Text = Annotated[str, msgspec.Meta(min_length=1)]

WORDS: Final = {
    "`str": "a text in quotes",
    "`int` <= {}": "a whole number of at most {}",
    "`int` >= {}": "a whole number of at least {}",
    "`int | float": "a number",
    "`int": "a whole number",
    "`float": "a number",
    "`bool": "true or false",
    "`array": "a list",
    "`object": "a table, written as [{key}]",
}
"""What a value must be, by the start of the type that msgspec expects."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise ConfigError(f"{path} is not a TOML file: {error}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def convert(value: object, target: Any, key: str, file: Path, words: Mapping[str, str] = WORDS) -> Any:
    """`value`, found at `key` of `file`, as `target`; a Path in it is relative to the file. words: as
    `WORDS`, where a file has better ones.

    Raises ConfigError, naming the key inside it.
    """

    def absolute_path(_: Any, text: object) -> Path:
        if not isinstance(text, str) or not text:
            raise ValueError("Expected `str`")
        return file.parent / Path(text).expanduser()

    try:
        return msgspec.convert(value, target, dec_hook=absolute_path)
    except msgspec.ValidationError as error:
        fault, _, inside = str(error).partition(" - at `$")
        where = f"{key}{inside.partition('[')[0]}".strip("`.")
        limit = "".join(re.findall(r"[<>]= (\d+)", fault))
        word = next(word for start, word in words.items() if f"Expected {start.format(limit)}" in fault)
        raise ConfigError(f"{file}: the key '{where}' must be {word.format(limit, key=where)}.") from error
