"""Which pairs are asked, and the plan on disk (docs/ask.md §1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.asking.ask_plan import PLAN_FILE, AskPlan, read_plan, same_questions, write_plan
from xbench_fast.runtime.asking.asked_pairs import AskedImage, PairSelection, select
from xbench_fast.runtime.asking.chat_body import RequestRules
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

CLASSES = ("Mass", "Pleural_Effusion")
BOX = Boxes(((1, 2, 3, 4),))
LABELS = [(1, 0), (0, 1), (0, 0), (None, 0), (1, 1), (0, None), (0, 0)]


def cases(labels: Sequence[tuple[int | None, ...]] = LABELS, start: int = 0) -> list[Case]:
    return [
        Case(
            f"c{number}",
            Path(f"c{number}.png"),
            dict(zip(CLASSES, each, strict=True)),
            {name: BOX for name, label in zip(CLASSES, each, strict=True) if label},
            "test",
        )
        for number, each in enumerate(labels, start)
    ]


def asked(own: Sequence[Case], phrases: bool = False, **given: Any) -> list[tuple[str, str, bool]]:
    dataset: Any = SimpleNamespace(classes=CLASSES, asks_phrases=phrases)
    images = select(dataset, own, PairSelection(**given))
    return [(image.case, q.finding or q.phrase, q.present) for image in images for q in image.questions]


def test_present_findings_are_asked_in_the_datasets_order() -> None:
    assert asked(cases()) == [
        ("c0", "Mass", True), ("c1", CLASSES[1], True), ("c4", "Mass", True), ("c4", CLASSES[1], True),
    ]  # fmt: skip
    assert asked(cases(), findings=("Mass",)) == [("c0", "Mass", True), ("c4", "Mass", True)]
    assert asked(cases(), findings=(f"Mass,{CLASSES[1]}",)) == asked(cases())
    assert asked(cases(), limit=2) == [("c0", "Mass", True), ("c1", CLASSES[1], True)]


def test_negatives_are_drawn_by_a_hash_of_their_own() -> None:
    own = cases()
    absent = [(case.case_id, name) for case in own for name in CLASSES if case.labels[name] == 0]
    every = {(case, name) for case, name, present in asked(own, negatives="all") if not present}
    assert every == set(absent), "an unknown label is never asked"

    def drawn(name: str, count: int) -> set[tuple[str, str]]:
        known = [case for case, other in absent if other == name]
        known.sort(key=lambda case: hashlib.sha256(f"7\n{case}\n{name}".encode()).hexdigest())
        return {(case, name) for case in known[:count]}

    match = {(case, name) for case, name, present in asked(own, negatives="match", seed=7) if not present}
    assert match == drawn("Mass", 2) | drawn(CLASSES[1], 2)
    three = {(case, name) for case, name, present in asked(own, negatives="3", seed=7) if not present}
    assert three == drawn("Mass", 3) | drawn(CLASSES[1], 3) and match < three
    turned = {pair for pair in asked(own[::-1], negatives="match", seed=7) if not pair[2]}
    assert {pair[:2] for pair in turned} == match
    longer = [*own, *cases([(0, 0)] * 5, start=7)]
    most = {(case, name) for case, name, present in asked(longer, negatives="all", seed=7) if not present}
    old = [pair for pair in most if int(pair[0][1:]) < 7]
    assert set(old) == every


def test_a_shuffle_chooses_and_keeps_the_order() -> None:
    own = cases([(1, 0)] * 20)
    chosen = asked(own, limit=5, shuffle_seed=3)
    names = [f"c{number}" for number in range(20)]
    names.sort(key=lambda name: hashlib.sha256(f"3\n{name}".encode()).hexdigest())
    assert [case for case, *_ in chosen] == [case.case_id for case in own if case.case_id in names[:5]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"findings": ("Mas",)}, "no finding 'Mas': did you mean 'Mass'"),
        ({"words": {"mass": "x"}}, "no finding 'mass'"),
        ({"negatives": "some"}, "--negatives some is none of none, match, all, nor a number"),
        ({"negatives": "9" * 5000}, "nor a number"),
    ],
)
def test_what_the_dataset_does_not_have(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asked(cases(), **given)


def test_a_phrase_of_an_image_is_asked_once() -> None:
    def phrase(name: str, **phrases: str) -> Case:
        return Case(name, Path("i.png"), {}, dict.fromkeys(phrases, BOX), "test", phrases=phrases)

    own = [
        phrase("i", Mass="Small mass", Pleural_Effusion="small  mass".replace("  ", " ")),
        phrase("i~2", Mass="Another one"),
        phrase("k", Mass="SMALL MASS"),
    ]
    assert asked(own, phrases=True) == [
        ("i", "Small mass", True), ("i", "Another one", True), ("k", "SMALL MASS", True),
    ]  # fmt: skip
    assert asked(own, phrases=True, limit=1) == asked(own[:2], phrases=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"negatives": "match"}, "none is known to be absent; leave out --negatives"),
        ({"negatives": "some"}, "--negatives some is none of"),
        ({"words": {"Mass": "lump"}}, "as it spells them; leave out --words"),
    ],
)
def test_what_phrases_do_not_take(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asked([], phrases=True, **given)


def plan(**rules: Any) -> AskPlan:
    dataset: Any = SimpleNamespace(classes=CLASSES, asks_phrases=False)
    images = tuple(select(dataset, cases(), PairSelection(words={"Mass": "a mass"})))
    return AskPlan("d", RequestRules("json", "m", **rules), {"model": "m"}, 2, images)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    own = plan(changed={"stop": ["x"]}, removed=("seed",))
    assert read_plan(tmp_path) is None
    write_plan(tmp_path, own)
    read = read_plan(tmp_path)
    assert read is not None and same_questions(own, read) and read.header == own.header
    image = next(iter(own.images))
    assert isinstance(image, AskedImage)
    assert list(own.keys(image, "0" * 64, 1)) == list(read.keys(read.images[0], "0" * 64, 1))
    assert not same_questions(plan(), read) and not same_questions(own, plan(changed={"stop": ["y"]}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("images", None), ("images", [["a", "a.png", [[1, True, "Mass", ""]]]]), ("images", [[1, 2, []]]),
        ("images", [["a", "a.png", [["\ud800", True, "Mass", ""]]]]), ("images", [["\ud800", "a.png", []]]),
        ("dataset", 3), ("header", []), ("header", {"model": "\ud800"}), ("attempts", 0), ("attempts", 1.5),
        ("attempts", True), ("xbench_ask_plan", 2), ("rules", {}),
        ("rules", {"dialect": "klingon", "model": "m", "removed": []}),
        ("rules", {"dialect": "json", "model": "m", "removed": [], "changed": 3}),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_no_plan(key: str, value: Any, tmp_path: Path) -> None:
    write_plan(tmp_path, plan())
    data = json.loads((tmp_path / PLAN_FILE).read_text())
    (tmp_path / PLAN_FILE).write_text(json.dumps({**data, key: value}))
    with pytest.raises(RunError, match="cannot be read as a plan"):
        read_plan(tmp_path)


def test_what_is_no_json_is_no_plan(tmp_path: Path) -> None:
    for text in ("", "[" * 100_000, "3", "[]"):
        (tmp_path / PLAN_FILE).write_text(text)
        with pytest.raises(RunError, match="cannot be read as a plan"):
            read_plan(tmp_path)
