"""XML files as a tree whose elements know their line. Document types are refused: they can expand without limit."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from .....engines.errors import DataError
from ..file_rows import fail, number
from ..source.documents import refuse_pointer, unreadable


@dataclass
class Element:
    """An element: its name, attributes, text, children, and the file and line where it begins."""

    tag: str
    attributes: dict[str, str]
    file: Path
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    @property
    def where(self) -> tuple[Path, int]:
        """File and line."""
        return self.file, self.line

    def all(self, tag: str) -> Iterator[Element]:
        """The children with this name."""
        return (child for child in self.children if child.tag == tag)

    def first(self, *path: str) -> Element | None:
        """The first element at a path of names below this one, None if there is none."""
        element: Element | None = self
        for tag in path:
            element = next(element.all(tag), None) if element else None
        return element

    def below(self) -> Iterator[Element]:
        """All elements below this one, at any depth."""
        waiting = [*self.children]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += element.children

    def content(self, *path: str) -> str:
        """The text of the element at a path, without white space at its ends; empty if there is none.

        Raises DataError where an element of the path is there twice: nothing says which of the two counts.
        """
        element: Element = self
        for tag in path:
            same = list(element.all(tag))
            if len(same) > 1:
                raise fail(*same[1].where, f"<{element.tag}> has <{tag}> twice; keep one of them")
            if not same:
                return ""
            element = same[0]
        return element.text.strip()

    def value(self, key: str) -> float:
        """The number in an attribute, or in the child of that name. Raises DataError without one."""
        text = self.attributes.get(key)
        return number(self.content(key) if text is None else text, *self.where, f"{key} of <{self.tag}>")

    def side(self, *path: str) -> int:
        """The number of pixels at a path, 0 if it is not stated. Raises DataError."""
        text = self.content(*path) or "0"
        value = number(text, *self.where, path[-1])
        if value < 0 or value != int(value):
            raise fail(*self.where, f"{path[-1]} is {text}, not a number of pixels")
        return int(value)


def read_xml(file: Path, root: str) -> Element:
    """The element `root` of an XML file. Raises DataError for a file that is none."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from error
    refuse_pointer(data, file)
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    plain = data.decode("utf-16", "replace").encode("utf-8", "replace") if utf16 else data
    if b"\0" in plain:
        raise fail(file, None, "its text is neither UTF-8 nor UTF-16 with a byte order mark")
    if b"<!DOCTYPE" in plain or b"<!ENTITY" in plain:
        raise fail(file, None, "it has a document type, which is not read; remove the line <!DOCTYPE ...>")
    top = Element("", {}, file, 0)
    stack = [top]
    parser = expat.ParserCreate("utf-16" if utf16 else None)
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, file, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def text(more: str) -> None:
        stack[-1].text += more

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = text
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DataError(f"{file} is not an XML file: {error}.") from error
    except (ValueError, LookupError) as error:  # an encoding that is unknown
        raise DataError(f"{file} is not an XML file: {str(error).rstrip('.')}.") from error
    (child,) = top.children
    if child.tag != root:
        raise fail(*child.where, f"it begins with <{child.tag[:40]}>, not with <{root}>")
    return child
