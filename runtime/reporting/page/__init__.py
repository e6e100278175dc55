"""The report as one self-contained web page, which opens offline and makes no network request.

html       contents of the page -> HTML, with its style and scripts inside and a policy that allows nothing else;
           tables -> what the template draws: headings, sort keys, and narrower parts for paper
*.html.j2  the templates: page, table, gallery, provenance
page.css   the style, after runtime/reporting/page/viewing's: narrow, paper
*.js       the scripts, after those of runtime/reporting/page/viewing: contents, tables, columns (of tables),
           painter (what is in view), enlarged (one overlay), gallery (which cases are
           shown), start
"""

from __future__ import annotations

from .html import PageContent, page_text

__all__ = ["PageContent", "page_text"]
