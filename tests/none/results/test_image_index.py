"""A damaged index of images, and damaged hashes in rows, know nothing: never another hash, never a traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xbench_fast.runtime.data.images.contents import Contents, Known
from xbench_fast.runtime.results.read_images import ImageIndex
from xbench_fast.runtime.results.storage import write_table
from xbench_fast.runtime.results.stored_maps import image_hashes, index_file, indexed_images

CASE = Path(__file__).parents[2] / "cases" / "images-index-flipped-bit" / "damaged-index.parquet"
TIMES = int(os.environ.get("XBENCH_FUZZ", "1"))


def known(run: Path) -> dict[Path, Known]:
    contents = Contents()
    contents.news = True
    ImageIndex(run, "d", Path("/data")).load(contents)
    assert contents.news != bool(contents.known), "an index that cannot be read is written again"
    return contents.known


def make(run: Path) -> Path:
    contents = Contents()
    for number in range(20):
        contents.note(Path(f"/data/{number}.png"), (number, 2, 3, 4, bytes([number] * 16), (5, number)))
    ImageIndex(run, "d", Path("/data")).save(contents)
    return index_file(run, "d")


def flipped(file: Path, count: int) -> list[int]:
    """Bits of a file: half of them at its end, where a Parquet file describes itself."""
    size = 8 * file.stat().st_size
    rng = np.random.default_rng(7)
    return [*rng.integers(0, size, count // 2).tolist(), *rng.integers(size // 2, size, count // 2).tolist()]


def test_a_flipped_bit_in_the_index_is_never_believed(tmp_path: Path) -> None:
    file = make(tmp_path)
    before, hashes, content = known(tmp_path), indexed_images(tmp_path, "d"), file.read_bytes()
    assert len(before) == len(hashes) == 20
    for bit in flipped(file, 100 * TIMES):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        assert known(tmp_path) == {} == indexed_images(tmp_path, "d"), bit


@pytest.mark.parametrize("kind", ["null", "case", "kinds", "column", "no checksum", "cut"])
def test_an_index_of_another_form_knows_nothing(tmp_path: Path, kind: str) -> None:
    file = make(tmp_path)
    table = pq.read_table(file)
    names = table.column_names
    if kind == "case":
        shutil.copy(CASE, file)
    elif kind == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    elif kind == "no checksum":
        pq.write_table(table.replace_schema_metadata(None), file)
    else:
        if kind == "null":
            table = table.set_column(0, "path", pa.array([None] * 20, pa.string()))
        elif kind == "kinds":
            table = table.set_column(1, "bytes", pa.array(["1"] * 20))
        else:
            table = table.rename_columns(["file", *names[1:]])
        write_table(file, [table], table.schema)
    assert known(tmp_path) == {}
    assert indexed_images(tmp_path, "d") == {} or kind == "kinds"


def test_a_flipped_bit_in_the_hashes_of_rows_is_never_believed(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    table = pa.table({"case_id": ["a", "b"], "image_hash": pa.array([bytes(16), None], pa.binary(16))})
    write_table(file, [table], table.schema)
    content = file.read_bytes()
    assert image_hashes(file) == {"a": bytes(16), "b": None}
    for bit in flipped(file, 100 * TIMES):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        assert image_hashes(file) == {}, bit
    write_table(file, [table.select(["case_id"])], table.select(["case_id"]).schema)
    assert image_hashes(file) == {}
    assert image_hashes(tmp_path / "none") == {}
