"""File names that hold the name of an image, and perhaps a class: "{class}/{image}.png"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from .....engines.errors import ConfigError

_FIELD = re.compile(r"\{(\w*)\}")


class NamePattern:
    """The form of file names below a folder. {image} is the name of an image, with folders; {class} is the name of a
    class.

    ends_with_image: nothing but the type of the file follows the image's name. Raises what `refuse` makes of the rest
    of a sentence for a form without {image}, or with another field or one twice.
    """

    def __init__(self, text: str, classes: Sequence[str], refuse: Callable[[str], ConfigError]) -> None:
        names = _FIELD.findall(text)
        if sorted(names) not in (["image"], ["class", "image"]) or text.startswith("/"):
            raise refuse(
                "must be a path with {image} and, where files are of one class, {class}, such as "
                f"{{class}}/{{image}}.png, not {text!r}"
            )
        stem, _, extension = text.rpartition("}")
        self.extension, self.by_class = extension.lower(), "class" in names
        self.text = f"{stem}}}{self.extension}"
        self.ends_with_image = names[-1] == "image" and self.extension.startswith(".")
        class_names = "|".join(re.escape(name) for name in sorted(classes, key=len, reverse=True))
        # A class may hold what separates it from the image: those that are known come first.
        self._forms = []
        for finding in [class_names] * bool(class_names) + ["[^/]+?"]:
            fields = {"image": "(?P<image>.+)", "class": f"(?P<class>{finding})"}
            parts = enumerate(_FIELD.split(self.text))
            form = "".join(fields[part] if index % 2 else re.escape(part) for index, part in parts)
            self._forms.append(re.compile(form))

    def read(self, name: str) -> tuple[str, str] | None:
        """(image, class) of a file's name below the folder, the class empty where it names none; None: another form."""
        match = next((match for form in self._forms if (match := form.fullmatch(name))), None)
        if match is None:
            return None
        return match["image"], match["class"].strip() if self.by_class else ""
