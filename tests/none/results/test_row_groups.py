"""Parquet files joined by their bytes: the file that pyarrow writes of the same row groups, bit for bit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from result_rows import table_of
from stored_counts import random_rows
from xbench_fast.runtime.results.row_groups import JoinedFiles, ParsedFile
from xbench_fast.runtime.results.storage import KEY_FIELD


def written(*tables: pa.Table, **how: Any) -> bytes:
    stream = io.BytesIO()
    with pq.ParquetWriter(stream, tables[0].schema, **how) as writer:
        for table in tables:
            writer.write_table(table)
    return stream.getvalue()


def joined(*contents: bytes) -> bytes:
    stream = io.BytesIO()
    files = JoinedFiles(stream)
    for content in contents:
        files.add(ParsedFile.of(content))
    files.finish()
    return stream.getvalue()


@pytest.mark.parametrize("count", [1, 14, 15, 40])
def test_rows_of_results(count: int) -> None:
    how = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    two = [table_of(random_rows(number), "a", "b", {KEY_FIELD: "k" * 64}) for number in range(2)]
    tables = (two * count)[:count]
    assert joined(*(written(table, **how) for table in tables)) == written(*tables, **how)


@pytest.mark.parametrize("how", [{}, {"compression": "none", "write_statistics": False, "data_page_version": "2.0"}])
def test_tables_of_other_kinds(how: dict[str, Any]) -> None:
    """With dictionaries, statistics, several row groups in a file, and more than 2**7 and 2**14 bytes before them."""
    rng, tables = np.random.default_rng(0), []
    for rows in (1, 3000, 20_000):
        names = pa.array(rng.choice(["one", "two", "a longer name"], rows))
        flags, values = pa.array(rng.random(rows) < 0.5), pa.array(rng.standard_normal(rows))
        tables.append(pa.table({"name": names, "flag": flags, "value": values}))
    assert joined(written(*tables[:2], **how), written(tables[2], **how)) == written(*tables, **how)


def test_what_cannot_be_joined() -> None:
    good, other = written(pa.table({"a": [1]})), written(pa.table({"b": [1]}))
    for bad in (b"", b"PAR1", b"PAR1" + bytes(20) + b"PAR1", good[:-1], good[1:], good[:-8] + b"\xff\xff\0\0PAR1"):
        with pytest.raises(ValueError, match=r"it is no Parquet file|its footer"):
            joined(bad)
    with pytest.raises(ValueError, match="it has other columns than the first part"):
        joined(good, other)
    footer = int.from_bytes(good[-8:-4], "little")
    for length in range(1, footer):
        cut = good[: len(good) - 8 - footer + length]
        with pytest.raises(ValueError, match="its footer"):
            joined(cut + length.to_bytes(4, "little") + b"PAR1")


def test_footers_of_other_bytes() -> None:
    """Compiled code has no bounds: whatever a footer holds, it is read to its end or refused."""
    good = written(pa.table({"a": [[1, 2], [3]], "b": ["one", "two"]}), write_page_checksum=True)
    size = int.from_bytes(good[-8:-4], "little")
    head, footer, rng = good[: -8 - size], good[-8 - size : -8], np.random.default_rng(0)
    numbers = b"\x00\xff\x01\x0c\x1c\x19\xf9\x16\x7f\x80"  # ends, negative fields, structs, long lists, wide numbers
    refused = 0
    for _ in range(3000):
        other = bytearray(footer)
        for at in rng.integers(size, size=rng.integers(1, 5)):
            other[at] = numbers[rng.integers(len(numbers))] if rng.random() < 0.5 else rng.integers(256)
        try:
            joined(head + bytes(other) + good[-8:])
        except ValueError:
            refused += 1
    assert 1000 < refused < 3000
    deep, endless = b"\x1c" * 5000 + bytes(5001), b"\x19\xf3" + b"\xff" * 8 + b"\x7f"  # 2**62 bytes follow
    for bad in (deep, endless):
        with pytest.raises(ValueError, match="its footer"):
            joined(head + bad + len(bad).to_bytes(4, "little") + b"PAR1")
