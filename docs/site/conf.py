"""Configuration of the documentation site. `make docs` builds it from the Markdown pages.

The source folder is the repository and not docs/. A relative link then has the same target on the site as on a forge,
also between docs/ and README.md, engines/README.md or demo/DATA_CARD.md.

The theme is pydata-sphinx-theme. scikit-learn, MONAI, NumPy, SciPy and pandas use it, so readers from this field know
where to look. It holds its fonts and scripts and so works offline and from disk, and it has a dark mode.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from pygments.lexers.data import JsonLexer
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

project = "xbench-fast"
version = release = installed_version("xbench-fast")
copyright = "the authors of xbench-fast"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "option_index"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "demo/DATA_CARD.md",
    "engines/README.md",
]
# Sphinx walks through every folder that is not excluded, and an environment has 100,000 files.
_read = {pattern.split("/")[0] for pattern in include_patterns}
exclude_patterns = [*sorted(path.name for path in ROOT.iterdir() if path.name not in _read), "demo/out"]

# Links: MyST warns of a page, a file or an anchor that does not exist, and `make docs` turns warnings into errors.
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]  # <img> of README gets its file
highlight_language = "none"  # indented blocks are formulas, folders and commands

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_preserve_defaults = True
default_role = "literal"  # docstrings write `name` as Markdown does
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = f"xbench-fast {version}"
html_theme_options = {
    "logo": {"text": "xbench-fast"},
    "header_links_before_dropdown": 6,
    "navigation_depth": 3,
    "show_nav_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"docs/index": []}
html_copy_source = False
html_show_sourcelink = False
# The first page is docs/index.html; index.html at the top leads there.
templates_path = ["."]
html_additional_pages = {"index": "redirect.html"}


def setup(app: Sphinx) -> None:
    """Gives the languages of two kinds of blocks a lexer."""
    app.add_lexer("csv", TextLexer)
    app.add_lexer("jsonl", JsonLexer)
