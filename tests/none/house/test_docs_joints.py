"""docs/joints.md is complete: every option of `eval` belongs to a feature, every two features have a row."""

from __future__ import annotations

from itertools import combinations

import click
from joint_table import (
    asked_joints,
    box_joints,
    command_joints,
    family_joints,
    features,
    joints,
    not_features,
    outcomes,
    study_joints,
    trust_joints,
    twice_joints,
    word_joints,
)
from xbench_fast.runtime.cli.evaluate_command import evaluate


def test_every_option_of_eval_belongs_to_a_feature() -> None:
    """A new option is a new feature, or says in docs/joints.md that it is none."""
    known = {name for options in features().values() for name in options}
    have = {option.opts[0] for option in evaluate.params if isinstance(option, click.Option)}
    assert have - known - set(not_features()) == set(), "not in docs/joints.md"
    assert known | set(not_features()) == have and not known & set(not_features())


def test_a_feature_has_a_row_with_every_other() -> None:
    wanted = set(combinations(features(), 2))
    have = [(row.first, row.second) for row in joints()]
    assert wanted - set(have) == set(), "docs/joints.md lacks these pairs; write down the outcome before the test"
    assert set(have) - wanted == set() and len(have) == len(wanted)


def test_every_row_says_what_is_run_and_what_must_follow() -> None:
    parts = (
        *(joints, box_joints, asked_joints, trust_joints, study_joints, twice_joints, command_joints, family_joints),
        word_joints,
    )
    for row in [row for part in parts for row in part()]:
        assert row.done and row.expected and row.outcome in outcomes(), row


def test_boxes_and_phrases_meet_the_same() -> None:
    """What one of them meets the other one does too; boxes with a limit and in shards stand among the pairs."""
    have = [(row.first, row.second) for row in box_joints()]
    assert len(set(have)) == len(have)
    met = {name: {second for first, second in have if first == name} for name in ("boxes", "phrases", "scorers")}
    assert met["phrases"] == met["boxes"] | {"limit", "shards"} and met.keys() == {first for first, _ in have}
    assert {("limit", "boxes"), ("shards", "boxes")} <= {(row.first, row.second) for row in joints()}
    assert met["phrases"] - met["scorers"] == {"strata", "failures", "errors", "thresholds", "calibration"}


def test_the_study_of_trust_meets_what_changes_maps_regions_or_patients() -> None:
    have = {row.second for row in trust_joints()}
    assert set(features()) - have == {"prompts", "sets", "reader", "engine"}
    assert have - set(features()) == {"live", "readers"}


def test_one_model_twice_meets_what_an_image_is() -> None:
    """Its file and its patient (docs/metrics.md §8.4)."""
    assert [(row.first, row.second) for row in twice_joints()] == [
        ("twice", name) for name in ("images", "patients", "renamed", "names", "others")
    ]


def test_both_families_meet_what_an_export_can_do() -> None:
    have = [(row.first, row.second) for row in family_joints()]
    assert len(set(have)) == len(have)
    met = {name: {second for first, second in have if first == name} for name in ("dual", "classifier")}
    shared = {"resolution", "saliency", "precision", "prompts", "phrases", "tiles", "trust", "weights"}
    assert met == {"dual": shared | {"engine"}, "classifier": shared | {"tokenizer", "report"}}


def test_the_other_studies_of_trust_meet_them_too() -> None:
    have = [(row.first, row.second) for row in study_joints()]
    assert len(set(have)) == len(have)
    studies = ("subgroups", "readers", "probes", "gap", "groups", "metrics", "packages")
    met = {name: {second for first, second in have if first == name} for name in studies}
    assert met.keys() == {first for first, _ in have}
    assert "changed" in met["subgroups"]
    assert {"protocol", "shards", "precision", "live", "boxes", "patients", "cache"} <= met["subgroups"] & met[
        "readers"
    ]
    assert met["gap"] >= {
        "protocol",
        "shards",
        "baselines",
        "maps",
        "boxes",
        "precision",
        "readers",
        "patients",
        "live",
    }
    assert met["groups"] >= {"protocol", "shards", "baselines", "boxes", "twin", "precision", "sets", "live"}
    assert met["metrics"] == {*features(), "live", "compare"}
    assert met["packages"] >= {"protocol", "shards", "changed", "baselines", "maps", "boxes", "live", "cache"}
    assert met["probes"] >= {"maps", "twin", "patients", "cache", "readers"}
