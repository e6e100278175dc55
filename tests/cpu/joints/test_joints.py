"""Every pair of features of docs/joints.md, once through the command line, with the outcome written there.

The check of a pair is the function `first_second` in one of the files beside this one, also that of boxes, phrases,
scorers or trust and what they meet; that of INT8 or a supervised model and a command is `int8_command` or
`supervised_command`. A pair whose outcome is not true yet
stands in OPEN with what is missing, and must fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import asked_with_features
import boxes_with_commands
import families_with_features
import gap_with_features
import groups_with_features
import int8_with_commands
import metrics_with_features
import packages_with_features
import pairs_of_baselines
import pairs_of_boxes
import pairs_of_limit
import pairs_of_patients
import pairs_of_phrases
import pairs_of_protocol
import pairs_of_sets
import pairs_of_shards
import pairs_of_tiles
import pairs_of_twin
import pairs_of_views
import phrases_with_commands
import published_numbers
import pytest
import studies_with_features
import supervised_with_commands
import trust_with_features
import twice_with_changes
import words_with_features
from joint_inputs import Originals, make_originals
from joint_table import (
    Joint,
    asked_joints,
    box_joints,
    command_joints,
    family_joints,
    joints,
    study_joints,
    trust_joints,
    twice_joints,
    word_joints,
)
from joint_world import World, counting
from ticking import tick

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

FILES = (
    pairs_of_protocol,
    pairs_of_limit,
    pairs_of_shards,
    pairs_of_baselines,
    pairs_of_boxes,
    pairs_of_twin,
    pairs_of_patients,
    pairs_of_phrases,
    pairs_of_sets,
    pairs_of_views,
    pairs_of_tiles,
    asked_with_features,
    boxes_with_commands,
    phrases_with_commands,
    published_numbers,
    int8_with_commands,
    supervised_with_commands,
    families_with_features,
    trust_with_features,
    studies_with_features,
    gap_with_features,
    groups_with_features,
    metrics_with_features,
    packages_with_features,
    twice_with_changes,
    words_with_features,
)
OPEN: dict[str, str] = {}


def check_of(joint: Joint) -> Callable[[World], None]:
    name = f"{joint.first}_{joint.second}"
    (found,) = [vars(file)[name] for file in FILES if name in vars(file)]
    check: Callable[[World], None] = found
    return check


def _parameter(joint: Joint) -> object:
    name = f"{joint.first}_{joint.second}"
    marks = [pytest.mark.xfail(strict=True, reason=OPEN[name])] if name in OPEN else []
    return pytest.param(joint, id=name, marks=marks)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    return make_originals(tmp_path_factory.mktemp("originals"))


ALL = (
    *joints(),
    *box_joints(),
    *asked_joints(),
    *trust_joints(),
    *study_joints(),
    *twice_joints(),
    *command_joints(),
    *family_joints(),
    *word_joints(),
)


@pytest.mark.parametrize("joint", [_parameter(joint) for joint in ALL])
def test_two_features_meet(joint: Joint, originals: Originals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    tick(monkeypatch.setattr)
    with counting(monkeypatch.setattr) as decoded:
        check_of(joint)(World(tmp_path, originals, decoded))
