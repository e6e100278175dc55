"""The checksum in the footer of a result file: what it is of, and that no bit escapes it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.results.integrity import checksum_fault, seal
from xbench_fast.runtime.results.storage import KEY_FIELD, result_fault, write_table

TABLE = pa.table({"case": ["a", "b"], "area": [7, 5]})
KEY = "k" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.parquet"
    write_table(path, [TABLE], TABLE.schema.with_metadata({KEY_FIELD: KEY}))
    return path


def test_it_is_the_hash_of_the_file_with_zeros_in_its_place(file: Path) -> None:
    content = file.read_bytes()
    (found,) = re.findall(rb"sha256:([0-9a-f]{64})", content)
    assert hashlib.sha256(content.replace(found, b"0" * 64)).hexdigest().encode() == found
    assert pq.read_metadata(file).metadata[b"xbench_checksum"] == b"sha256:" + found
    assert result_fault(file, KEY) == "" and pq.read_table(file).equals(TABLE)
    assert result_fault(file, "l" * 64) == "has another key"
    assert result_fault(file.with_name("b"), KEY) == "is missing"


def test_every_byte_is_covered(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for bit in range(0, 8 * len(content), 7):  # bits of every byte
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
        assert checksum_fault(file), bit
        content[bit // 8] ^= 1 << bit % 8


def test_a_file_of_more_than_a_block_and_files_cut_short(file: Path) -> None:
    large = pa.table({"text": [str(hash((1, n))) * 3 for n in range(120_000)]})
    write_table(file, [large], large.schema.with_metadata({KEY_FIELD: KEY}))
    content = bytearray(file.read_bytes())
    assert len(content) > 1 << 20 and result_fault(file, KEY) == ""
    content[(1 << 20) + 5] ^= 2
    file.write_bytes(content)
    assert result_fault(file, KEY) == "is damaged: its checksum does not match"
    for length in (0, 3, 11, 500, len(content) - 1):
        file.write_bytes(content[:length])
        assert result_fault(file, KEY).startswith("is damaged: ")


def test_files_without_a_checksum_are_read_and_cannot_be_sealed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE.replace_schema_metadata({KEY_FIELD: KEY}), path)
    assert result_fault(path, KEY) == ""
    with pytest.raises(RunError, match="without room for its checksum"):
        seal(path)
