"""The truth of a pair: a digest of its region as it is stored in the result file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from .storage import read_columns

__all__ = ["region_digests"]


def region_digests(path: Path, rows: NDArray[np.bool_], sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """uint64 [P]: a digest of the bits and the size in pixels of the region, for each row of a result file in `rows`.

    Equal regions have equal digests in every run, on every machine. Files from before regions were stored have the
    sizes alone. Raises RunError for a file that cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        kept = "region" in pq.read_schema(path).names
        regions: list[bytes | None] = [None] * len(sizes)
        if kept and len(sizes):
            regions = read_columns(path, ["region"])["region"].filter(pa.array(rows)).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise RunError(
            f"{path} cannot be read ({error}); delete that file and run the same eval command again."
        ) from error
    digests = b"".join(
        hashlib.blake2b(region or b"", digest_size=8, salt=size.to_bytes(4, "little")).digest()
        for region, size in zip(regions, sizes.tolist(), strict=True)
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64)
