"""Runs docs/tour.py cell by cell and writes docs/tour.ipynb with its outputs.

In a checkout after `make demo`, with nbformat, nbclient, ipykernel and matplotlib beside xbench-fast. The first three
are in none of its extras:

    .venv/bin/pip install nbformat nbclient ipykernel
    .venv/bin/python docs/make_tour.py
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["cells"]

ROOT = Path(__file__).resolve().parent.parent


def cells(source: str) -> list[tuple[str, str]]:
    """(kind, text) of the cells of a script: "code", or "markdown" without its comment signs."""
    parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)[1:]
    found = []
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if mark.strip() == "[markdown]":
            found.append(("markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            found.append(("code", text.strip()))
    return found


def main() -> None:
    """Writes the notebook; raises CellExecutionError with the cell that fails."""
    import nbformat
    from nbclient import NotebookClient

    new = nbformat.v4
    notebook = new.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for number, (kind, text) in enumerate(cells((ROOT / "docs" / "tour.py").read_text())):
        cell = new.new_code_cell(text) if kind == "code" else new.new_markdown_cell(text)
        cell["id"] = f"cell-{number}"
        notebook.cells.append(cell)
    NotebookClient(notebook, timeout=600, coalesce_streams=True, resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # times of execution
        cell["outputs"] = [item for item in cell.get("outputs", []) if item.get("name") != "stderr"]
        if cell.cell_type == "markdown":
            del cell["outputs"]
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec}
    nbformat.validate(notebook)
    (ROOT / "docs" / "tour.ipynb").write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
