"""Named protocols: that they are what their sources do, end to end on small maps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from exact_units import in_units
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import PROTOCOLS, GroundingOptions, protocol
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.sweep.pointing import pointing_hits
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping
from xbench_fast.metrics_gpu.trust.localisation import localise

F = np.float32


def world(seed=0, pairs=12):
    """Maps like attention over 14 x 14 cells, summing to 1, and regions."""
    rng = np.random.default_rng(seed)
    maps = rng.random((pairs, 14, 14)) ** 4
    grids = (maps / maps.sum(axis=(1, 2), keepdims=True)).astype(F)
    masks = np.zeros((pairs, 224, 224), bool)
    for mask in masks:
        y, x, h, w = rng.integers(1, 110, 4)
        mask[y : y + h, x : x + w] = True
    return grids, masks


def scores(name, grids, masks):
    chosen = protocol(name)
    counts = sweep(grids, masks, sweeping=chosen.sweeping)
    hits = None
    if chosen.pointing_from_default:
        hits = pointing_hits(
            sweep(grids, masks, sweeping=Sweeping(upsample=chosen.sweeping.upsample)), chosen.options.ties
        )
    pairs = Pairs(counts, np.zeros(len(counts), int), ["x"], hits=hits, pixels=224 * 224)
    return SimpleNamespace(**grounding(pairs, chosen.options).record("x"))


def dice(marked, mask):
    return 2 * (marked & mask).sum() / (marked.sum() + mask.sum())


def test_medklip_as_its_test_script_does_it():
    grids, masks = world()
    expected, hits = [], []
    for grid, mask in zip(grids, masks, strict=True):
        full = np.repeat(np.repeat(grid, 16, axis=0), 16, axis=1)
        expected.append(dice(full > F(0.008), mask))
        hits.append(bool((mask & (full == full.max())).any()))
    found = scores("medklip", grids, masks)
    assert found.dice_fixed == pytest.approx(np.mean(in_units(expected)), abs=1e-12)
    assert found.pointing == np.mean(hits)
    assert found.floor_dice == pytest.approx(np.mean([dice(np.ones_like(m), m) for m in masks]))


def test_mavl_as_its_test_script_does_it_on_our_thresholds():
    grids, masks = world(1)
    torch_like = np.linspace(0, 13, 224)  # align_corners in float64; thresholds in between decide alike
    lo = np.minimum(torch_like.astype(int), 12)
    w = torch_like - lo
    fulls = []
    for grid in grids.astype(np.float64):
        rows = grid[:, lo] * (1 - w) + grid[:, lo + 1] * w
        fulls.append(rows[lo] * (1 - w)[:, None] + rows[lo + 1] * w[:, None])
    means = [np.mean([dice(full > 0.001 * k, m) for full, m in zip(fulls, masks, strict=True)]) for k in range(1, 101)]
    found = scores("mavl", grids, masks)
    assert found.dice_best == pytest.approx(max(means), abs=1e-4)
    assert found.best_tau == pytest.approx((1 + int(np.argmax(means))) / 100)


def test_tied_maxima_have_the_first_place_in_every_way_to_read_maps():
    grids, masks = world(5)
    tied = np.round(3 * grids / np.abs(grids).max()).astype(F)
    plain = sweep(tied, masks)
    assert (plain.area[:, -1] > 1).any()
    for sweeping in (Sweeping(comparison=">"), Sweeping(normalise="none")):
        counts = sweep(tied, masks, sweeping=sweeping)
        assert np.array_equal(counts.argmax, plain.argmax) and np.array_equal(counts.hit, plain.hit)
    assert np.array_equal(localise(tied, masks).pointing, plain.hit)


def test_chexlocalize_compares_strictly():
    grids, masks = world(2)
    found = scores("chexlocalize", grids, masks)
    counts, plain = sweep(grids, masks, sweeping=Sweeping(comparison=">")), sweep(grids, masks)
    assert (counts.area[:, 0] < 224 * 224).all() and (counts.area[:, 100] == 0).all()
    assert (plain.area[:, 100] >= 1).all() and (counts.area <= plain.area).all()
    assert found.floor_dice == grounding(Pairs(plain, np.zeros(12, int), ["x"])).value("floor_dice", "x")
    with pytest.raises(ValueError, match="give the number of pixels"):
        grounding(Pairs(counts, np.zeros(12, int), ["x"]))


def test_a_value_that_meets_medklips_threshold_exactly_is_not_above_it():
    grids, masks = np.full((1, 14, 14), F(0.008)), np.zeros((1, 224, 224), bool)
    grids[0, 7:] = F(0.004)
    masks[0, :100] = True
    counts = sweep(grids, masks, sweeping=protocol("medklip").sweeping)
    assert counts.area[0, 50] == 0 < counts.area[0, 49] == 224 * 112


@pytest.mark.parametrize("name", ["medklip", "mavl"])
def test_one_of_two_maxima_in_the_region_is_a_hit(name):
    grids, masks = np.zeros((1, 14, 14), F), np.zeros((1, 224, 224), bool)
    grids[0, 3, 3] = grids[0, 10, 10] = F(0.02)
    masks[0, 30:80, 30:80] = True
    assert scores(name, grids, masks).pointing == 1.0


def test_paper_and_default():
    grids, masks = world(3)
    found, default = scores("paper", grids, masks), scores("default", grids, masks)
    assert protocol("default").options == GroundingOptions() and default.dice_best >= found.dice_best
    late = grounding(Pairs(sweep(grids, masks), np.zeros(12, int), ["x"]), GroundingOptions(tau_from=0.01))
    assert vars(found) == late.record("x")


def test_every_protocol_is_complete():
    assert PROTOCOLS == ("default", "paper", "chexlocalize", "medklip", "mavl", "biovil")
    for name in PROTOCOLS:
        chosen = protocol(name)
        assert chosen.name == name and chosen.source
        table = chosen.sweeping.thresholds
        if chosen.fixed_tau is not None:
            fixed = F(chosen.fixed_tau)
            assert table[50] == (fixed if chosen.sweeping.comparison == ">=" else np.nextafter(fixed, F(1)))
        assert chosen.notes or name == "default"
    with pytest.raises(ValueError, match="unknown protocol 'medclip'; known: default, paper"):
        protocol("medclip")


def test_threshold_tables():
    assert np.array_equal(Sweeping().thresholds, np.array([k / 100 for k in range(101)], F))
    strict = Sweeping(comparison=">").thresholds
    for k in range(101):
        t = F(k / 100)
        assert not t >= strict[k] and np.nextafter(t, F(2)) >= strict[k]
    for arguments in ({"comparison": "<"}, {"tau_scale": 0.0}, {"tau_scale": np.inf}):
        with pytest.raises(ValueError, match=r"comparison|scale"):
            Sweeping(**arguments)
