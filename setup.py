"""Names the packages, and makes the text for the package index. Everything else is in pyproject.toml.

A package is every folder of a room that has an __init__.py. The text is README.md. A package index does not have the
files that README links to, so a build changes these links. The variable README_BASE can be the address of the
repository's files at the release, as the release workflow knows it; the links then lead there. Without it a link
becomes the name of its file, and a picture is left out.
"""

import os
import re
from pathlib import Path

from setuptools import setup

NAME, ROOMS = "xbench_fast", ("demo", "engines", "export", "metrics_gpu", "runtime")
OTHER = r"(?![a-z]+:|#)"  # a file of the repository: neither an address nor a heading
LINK = re.compile(rf"(?<!!)\[([^][]+)\]\({OTHER}([^()\s]+)\)")
PICTURE = re.compile(rf'(!\[[^][]*\]\(|<img src="){OTHER}([^()"\s]+)([^>\n]*[)>])')


def text_of_index(readme: str, base: str) -> str:
    """README with absolute links. base: the address that relative links begin with, or empty."""
    parts = re.split(r"(^```.*?^```$)", readme, flags=re.M | re.S)  # every second part is a block of code
    for place, part in enumerate(parts[::2]):
        if base:
            root = base.rstrip("/")
            changed = LINK.sub(rf"[\1]({root}/\2)", PICTURE.sub(rf"\1{root}/\2?raw=true\3", part))
        else:
            named = LINK.sub(lambda link: f"{link[1]} (`{link[2]}`)" if link[1] != link[2] else f"`{link[1]}`", part)
            changed = re.sub(r"\n{3,}", "\n\n", PICTURE.sub("", named))
        parts[2 * place] = changed
    return "".join(parts)


folders = sorted(path.parent for room in ROOMS for path in Path(room).rglob("__init__.py"))
readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")

setup(
    packages=[NAME, *(".".join((NAME, *folder.parts)) for folder in folders)],
    package_dir={NAME: "api", **{f"{NAME}.{room}": room for room in ROOMS}},
    long_description=text_of_index(readme, os.environ.get("README_BASE", "")),
    long_description_content_type="text/markdown",
)
