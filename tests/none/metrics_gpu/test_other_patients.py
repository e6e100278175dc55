"""Means over other patients against a loop."""

from __future__ import annotations

import numpy as np
from xbench_fast.metrics_gpu.grounding.other_patients import OtherPatients, next_patients


def test_means_of_maps_leave_one_patient_out() -> None:
    rng = np.random.default_rng(3)
    maps = rng.random((700, 3, 5)).astype(np.float32)  # more than a block of each class
    class_of, patient_of = rng.integers(0, 2, 700), rng.integers(0, 40, 700)
    class_of[0], patient_of[0] = 2, 7  # a class of one patient
    found = OtherPatients(lambda places: maps[places], class_of, patient_of)
    for finding in range(2):
        for patient in range(41):  # the last one has no pair
            others = [maps[i] for i in range(700) if class_of[i] == finding and patient_of[i] != patient]
            wanted = sum(each.astype(np.float64) for each in others) / len(others)
            np.testing.assert_allclose(found.mean(finding, patient), wanted, rtol=1e-6)
    assert found.mean(2, 7) is None and found.mean(3, 0) is None
    np.testing.assert_array_equal(found.mean(2, 8), maps[0])


def test_the_next_pair_of_another_patient() -> None:
    rng = np.random.default_rng(4)
    for number in (0, 1, 2, 40):
        class_of, patient_of = rng.integers(0, 4, number), rng.integers(0, 3, number)
        found = next_patients(class_of, patient_of)
        for place in range(number):
            after = [(place + step) % number for step in range(1, number)]
            others = [i for i in after if class_of[i] == class_of[place] and patient_of[i] != patient_of[place]]
            assert found[place] == (others[0] if others else -1)
