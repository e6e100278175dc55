"""The options of a dataset reader: which there are, and their values checked (docs/datasets.md §0.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from ....engines.errors import ConfigError
from ....engines.registry import did_you_mean
from ...host.paths import has_file, has_folder

PATIENTS: Final = {"patients": "a CSV file that names the patient of each image, default none"}
"""The option of readers whose files name no patient, for their `option_help`; `Dataset.cases` applies it."""

UNCERTAIN_LABELS: Final = {
    "uncertain": "policy for uncertain labels (-1, as in CheXpert): ignore (default; the label becomes unknown), "
    "positive or negative"
}
"""The option of readers with labels, for their `option_help`; `Dataset.cases` applies it."""


class ReaderOptions:
    """The folder `root` of a dataset called `name`, and the values of the options that `option_help` lists.

    An option that is None is not given. Raises ConfigError for options that do not exist.
    """

    name: str
    option_help: ClassVar[Mapping[str, str]] = {}

    def __init__(self, root: Path, options: Mapping[str, object]) -> None:
        self.root = Path(root)
        if faults := self.unknown_options(self.name, options):
            raise ConfigError(" ".join(faults))
        self.options = {key: value for key, value in options.items() if value is not None}

    @classmethod
    def unknown_options(cls, name: str, options: Mapping[str, object]) -> list[str]:
        """A sentence on each option that this reader does not have. name: the dataset's."""
        return [
            f"The dataset '{name}' has no option '{key}': {did_you_mean(key, cls.option_help)}."
            for key in options
            if key not in cls.option_help
        ]

    def option_error(self, key: str, text: str) -> ConfigError:
        """The error to raise for the value of an option; text: the rest of the sentence."""
        return ConfigError(f"The option '{key}' of the dataset '{self.name}' {text}.")

    def path_option(self, key: str, default: str) -> Path:
        """The file or folder named by the option `key`, relative to the root unless absolute."""
        value = self.options.get(key, default)
        if not isinstance(value, str | Path) or not str(value):
            raise self.option_error(key, f"must be a path, not {value!r}")
        return self.root / value

    def first_path(self, key: str, *defaults: str) -> Path:
        """The file or folder named by the option `key`, else the first of `defaults` that exists, else the first."""
        if key in self.options:
            return self.path_option(key, "")
        places = [self.root / name for name in defaults]
        return next((path for path in places if has_file(path) or has_folder(path)), places[0])

    def text_option(self, key: str, default: str) -> str:
        """The value of the option `key`, a text that is not empty or blank. Raises ConfigError."""
        value = self.options.get(key, default)
        if not isinstance(value, str) or not value.strip():
            raise self.option_error(key, f"must be a text, not {value!r}")
        return value.strip()

    def texts_option(self, key: str) -> tuple[str, ...]:
        """The value of the option `key`, a list of texts or one text; none if it is not given. Raises ConfigError."""
        given = self.options.get(key, [])
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise self.option_error(key, "must be a list of texts")
        return tuple(dict.fromkeys(text.strip() for text in texts))

    def flag_option(self, key: str) -> bool:
        """The value of the option `key`, true or false, by default false. Raises ConfigError."""
        value = self.options.get(key, False)
        if not isinstance(value, bool):
            raise self.option_error(key, f"must be true or false, not {value!r}")
        return value

    def list_option(self) -> tuple[str, Path | None]:
        """The options `split` (all, list, paper) and `list` together: the split, and the list's file unless it is all.

        A list implies its split. Raises ConfigError when the split needs a list and none is given, or the reverse.
        """
        listed = self.path_option("list", "") if "list" in self.options else None
        split = self.choice_option("split", ("all", "list", "paper"), "list" if listed else "all")
        if split != "all" and listed is None:
            raise ConfigError(f"The split '{split}' of the dataset '{self.name}' needs the option list=FILE.")
        if split == "all" and listed is not None:
            raise ConfigError(f"The dataset '{self.name}' has split=all and a list; leave one of the two out.")
        return split, listed

    def choice_option(self, key: str, choices: Sequence[str], default: str) -> str:
        """The value of the option `key`, one of `choices`. Raises ConfigError."""
        value = self.options.get(key, default)
        if value not in choices:
            hint = did_you_mean(str(value), choices)
            raise self.option_error(key, f"cannot be {value!r}: {hint}")
        return str(value)

    def side_option(self, key: str, default: int) -> int:
        """The value of the option `key`, a length in pixels from 1 to 32,768. Raises ConfigError."""
        value = self.options.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 32_768:
            raise self.option_error(key, f"must be a number of pixels, not {value!r}")
        return value
