"""Annotations that came from an archive, scored by the command `eval` against maps that are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from xbench_fast.runtime.cli.app import main


def on_grid(mask: NDArray[Any]) -> NDArray[Any]:
    """What an evaluation reads of pixels: cell i of 224 is the pixel floor(i * n / 224)."""
    return mask[np.ix_(*(np.arange(224) * side // 224 for side in mask.shape))]


def scored(
    folder: Path, film: bytes, objects: list[bytes], maps: Mapping[str, NDArray[Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Finding -> its row of an evaluation of `maps` [224, 224], where the objects are the ground truth of the film."""
    for place in ("images", "annotations", "maps/film"):
        (folder / place).mkdir(parents=True)
    (folder / "images/film.dcm").write_bytes(film)
    for number, content in enumerate(objects):
        (folder / f"annotations/{number}.dcm").write_bytes(content)
    for finding, values in maps.items():
        np.save(folder / f"maps/film/{finding}.npy", values.astype(np.float32))
    arguments = ["--model", f"maps:{folder / 'maps'}", "--data", f"drawn={folder}", "--out", str(folder / "run")]
    with pytest.raises(SystemExit) as left:
        main(["eval", *arguments, "--data-option", "drawn.reader=dicom"])
    assert left.value.code == 0
    (rows,) = (folder / "run/cells").glob("*.parquet")
    return {row["finding"]: row for row in pq.read_table(rows).to_pylist()}


def assert_equal(row: Mapping[str, Any], mask: NDArray[np.bool_]) -> None:
    """At every threshold above 0 the map of 0 and 1 marks `mask`, and the region is `mask`: Dice is 1."""
    count = int(mask.sum())
    assert row["region_area"] == count > 0 and row["hit"] and row["status"] == "ok"
    assert set(row["area"][1:]) == set(row["overlap"]) == {count}
