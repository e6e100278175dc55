"""The drawn part of a report: figures, overlays and the page. What cannot be made is said in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.errors import MissingExtraError, RunError, XBenchError
from ..results.numbers.run_numbers import Results
from ..results.storage import write_atomic
from .provenance import hashes

if TYPE_CHECKING:
    from ..host.config import DatasetConfig
    from ..results.load import StoredRun
    from ..tables.table import Table
    from .figures import Figure
    from .gallery.model import Gallery

from ..tables.stamps import cell_stamps

__all__ = ["illustrate", "remove_drawn"]

_APART = ("coverage", "provenance")  # names of tables that stand behind the gallery, or as provenance


def illustrate(
    folder: Path,
    title: str,
    run: StoredRun,
    results: Results,
    tables: Sequence[Table],
    facts: Mapping[str, str],
    say: Callable[[str], None],
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> list[Path]:
    """Writes figures/ and index.html into `folder` and returns the paths written.

    Without the packages of the extra `report`, `say` is told so and what needs them is left out. `datasets`: where
    radiographs are now, if not where the run found them. Raises RunError when the disk refuses.
    """
    figures = _figures(results, say)
    written = [path for figure in figures for path in _write_figure(folder / "figures", figure)]
    _remove_others(folder / "figures", written)
    gallery, reason = _gallery(run, results, datasets)
    from .page import PageContent, write_page

    content = PageContent(
        title=title,
        stamps=cell_stamps(results.finished),
        provenance={**facts, "results": hashes(results, run.data)},
        tables=[table for table in tables if table.name not in _APART],
        figures=figures,
        gallery=gallery,
        gallery_reason=reason,
        facts=[f"xbench-fast {facts['xbench-fast']}", facts["cells"], facts["run"]],
        coverage=[table for table in tables if table.name == "coverage"],
        models=results.models,
    )
    try:
        write_page(folder / "index.html", content)
    except MissingExtraError as error:
        say(str(error))
        (folder / "index.html").unlink(missing_ok=True)  # of an earlier report
        return written
    return [folder / "index.html", *written]


def remove_drawn(folder: Path) -> None:
    """Removes what an earlier `illustrate` left: a page beside tables that say something else."""
    (folder / "index.html").unlink(missing_ok=True)
    _remove_others(folder / "figures", [])


def _figures(results: Results, say: Callable[[str], None]) -> list[Figure]:
    from .figures import all_figures

    try:
        return all_figures(results)
    except MissingExtraError as error:
        say(str(error))
        return []


def _gallery(
    run: StoredRun, results: Results, datasets: Mapping[str, DatasetConfig] | None
) -> tuple[Gallery | None, str]:
    from .gallery.build import make_gallery

    try:
        return make_gallery(run, results, datasets=datasets)
    except RunError as error:
        return None, str(error)
    except XBenchError as error:
        return None, f"There are no overlays: {error}"


def _write_figure(folder: Path, figure: Figure) -> list[Path]:
    paths = [folder / f"{figure.name}.svg", folder / f"{figure.name}.png"]
    write_atomic(paths[0], partial(_write, figure.svg.encode()))
    write_atomic(paths[1], partial(_write, figure.png))
    return paths


def _remove_others(folder: Path, written: Sequence[Path]) -> None:
    """Figures of an earlier report of this run that this one does not have."""
    for path in [*folder.glob("*.svg"), *folder.glob("*.png")]:
        if path not in written:
            path.unlink(missing_ok=True)


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)
