"""Ranks, against SciPy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from xbench_fast.metrics_gpu.statistics.ranks import mean_ranks


@given(st.lists(st.integers(-3, 3).map(float) | st.floats(allow_nan=False), min_size=1, max_size=40))
def test_equal_values_share_the_mean_of_their_ranks(values):
    assert mean_ranks(np.array(values)).tolist() == rankdata(values).tolist()
