"""pyarrow works without pandas, and with it as soon as somebody uses it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import numpy as np
from xbench_fast.runtime.host.pyarrow_alone import without_pandas
without_pandas()
import pyarrow as pa
import pyarrow.compute as pc
column = pa.array(["a", None, "b"])
assert pc.sum(pc.equal(column, "a")).as_py() == 1 and pa.array(np.arange(3)).to_pylist() == [0, 1, 2]
assert "pandas" not in sys.modules
without_pandas()
frame = pa.table({"x": column, "y": [1.5, None, 2.0]}).to_pandas()
import pandas as pd
assert isinstance(frame, pd.DataFrame) and frame.y.isna().tolist() == [False, True, False]
assert pa.array(frame.x).to_pylist() == ["a", None, "b"]
without_pandas()
assert sys.modules["pandas"] is pd
"""


def test_pandas_is_imported_by_those_who_use_it() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)
