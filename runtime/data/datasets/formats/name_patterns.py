"""File names that hold the name of an image, and perhaps a class: "{class}/{image}.png"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .....engines.errors import ConfigError

_FIELD = re.compile(r"\{(\w*)\}")


class NamePattern:
    """The form of file names below a folder. {image} is the name of an image, with folders; {class} that of a class.

    ends_with_image: nothing but the type of the file follows the image's name. Raises ConfigError for a form without
    {image}, or with another field or one twice.
    """

    def __init__(self, text: str, classes: Sequence[str], where: str) -> None:
        names = _FIELD.findall(text)
        if sorted(names) not in (["image"], ["class", "image"]) or text.startswith("/"):
            raise ConfigError(
                f"{where} must be a path with {{image}} and, where files are of one class, {{class}}, such as "
                f"{{class}}/{{image}}.png, not {text!r}."
            )
        stem, _, extension = text.rpartition("}")
        self.extension, self.by_class = extension.lower(), "class" in names
        self.text = f"{stem}}}{self.extension}"
        self.ends_with_image = names[-1] == "image" and self.extension.startswith(".")
        known = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True))
        # A class may hold what separates it from the image: those that are known come first.
        self._forms = [self._compiled(each) for each in ([known] if known else []) + ["[^/]+?"]]

    def _compiled(self, finding: str) -> re.Pattern[str]:
        forms = {"image": "(?P<image>.+)", "class": f"(?P<class>{finding})"}
        parts = enumerate(_FIELD.split(self.text))
        return re.compile("".join(forms[part] if place % 2 else re.escape(part) for place, part in parts))

    def read(self, name: str) -> tuple[str, str] | None:
        """(image, class) of a file's name below the folder, the class empty where it names none; None: another form."""
        found = next((found for form in self._forms if (found := form.fullmatch(name))), None)
        if found is None:
            return None
        return found["image"], found["class"].strip() if self.by_class else ""
