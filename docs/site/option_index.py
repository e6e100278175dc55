"""Makes every option of docs/reference.md an object of the site, so that the search leads to its row of the table."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

PAGE = "docs/reference"


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension."""
    app.connect("doctree-read", index_options)
    return {"version": "1", "parallel_read_safe": True}


def index_options(app: Sphinx, doctree: nodes.document) -> None:
    """Gives each row of the tables of options an anchor, and its options their place in the search index.

    A section of the page has the name of its command as title, and its table has the options in the first column, as
    `--build / --no-build` or `--data NAME=PATH`.
    """
    if app.env.docname != PAGE:
        return
    domain = app.env.domains.standard_domain
    for section in doctree.findall(nodes.section):
        command = section.next_node(nodes.title).astext()
        tables = (part for part in section.children if isinstance(part, nodes.table))
        for row in (row for table in tables for row in table.next_node(nodes.tbody).children):
            cell = row.next_node(nodes.literal)
            for option in re.findall(r"--[a-z][a-z0-9-]*", cell.astext()):
                anchor = f"{command} {option}".replace(" ", "-")
                cell["ids"].append(anchor)
                domain.add_program_option(command, option, PAGE, anchor)
