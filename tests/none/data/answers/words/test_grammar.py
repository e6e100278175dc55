"""Texts -> statements and answers, against fixtures of an independent implementation (docs/words.md §2, §3)."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from xbench_fast.runtime.data.answers.dialects.thoughts import answer_part
from xbench_fast.runtime.data.answers.words.class_answers import Remark, WordState, class_answer, findings_of
from xbench_fast.runtime.data.answers.words.grammar import read_words
from xbench_fast.runtime.data.answers.words.lexicon import DOUBT, lexicon
from xbench_fast.runtime.data.answers.words.place_groups import Places
from xbench_fast.runtime.data.answers.words.sentences import ALL
from xbench_fast.runtime.data.answers.words.zone_codes import read_zones

FIXTURES = Path(__file__).parents[4] / "text"
SENTENCES = json.loads((FIXTURES / "sentences.json").read_text())
ANSWERS = json.loads((FIXTURES / "answers.json").read_text())
REMARKS = ("by_parent", "uncertain", "contradictory")
OTHER_SIDE = str.maketrans("RL", "LR")
SIX_ZONES = ("RU", "RM", "RL", "LU", "LM", "LL")


def of_places(places: Places) -> dict[str, Any]:
    return {"places": list(places.names), "sides_stated": places.sides_stated if places.names else None}


def written(text: str, *, mirrored: bool = False) -> dict[str, Any]:
    """What is read, as the fixtures have it."""
    reading = read_words(text, mirrored=mirrored)
    statements = []
    for item in reading.statements:
        statement = {"finding": item.finding, "presence": item.presence, **of_places(item.places)}
        statement |= {"size": item.size} if item.size else {}
        statements.append(statement | ({"implied": True} if item.implied else {}))
    result: dict[str, Any] = {"text": text, "state": reading.state, "statements": statements}
    if reading.denied:
        result["denied"] = ALL if ALL in reading.denied else sorted(reading.denied)
    if reading.bare:
        result["bare"] = [{**of_places(bare.places), "presence": bare.presence} for bare in reading.bare]
    result |= {"answer": reading.answer} if reading.answer else {}
    return result | ({"skipped": len(reading.skipped)} if reading.skipped else {})


def test_every_sentence_in_any_order() -> None:
    assert len(SENTENCES) == 185
    for entry in [*SENTENCES, *reversed(SENTENCES)]:
        assert written(entry["text"]) == entry


def test_every_answer() -> None:
    assert len(ANSWERS) == 36
    for entry in ANSWERS:
        answer = class_answer(read_words(entry["text"]), entry["finding"], asked=entry["line"] == "asked")
        remarks = {
            name: bool(answer.remarks & Remark[name.upper()]) for name in ("by_parent", "uncertain", "contradictory")
        }
        assert {"state": answer.state.name.lower(), **of_places(answer.places), **remarks} == {
            key: value for key, value in entry.items() if key not in ("text", "finding", "line", "boxes")
        }, entry["text"]


def test_every_text_of_zones() -> None:
    vectors = json.loads((FIXTURES / "dialects.json").read_text())
    assert len(vectors) == 15
    for entry in vectors:
        codes = read_zones(answer_part(entry["text"])[0])
        state = "answered" if codes.places.names else "unparsable" if codes.illegal else "silent"
        state = state if codes.given else "no_box_in_text"
        assert (list(codes.places.names), codes.illegal, state) == (entry["places"], entry["illegal"], entry["state"])


def test_an_uncertain_answer_can_count_as_absent() -> None:
    reading = read_words("Possible nodule in the left mid zone.")
    assert class_answer(reading, "Nodule", asked=True, uncertain="absent").state is WordState.DENIED
    assert class_answer(reading, "Nodule", asked=True).places.names == ("LM",)
    both = read_words("Nodule in the left mid zone. Possible nodule at the right apex.")
    assert class_answer(both, "Nodule", asked=True, uncertain="absent").places.names == ("LM",)
    assert class_answer(both, "Nodule", asked=True).places.names == ("LM", "R.apex")
    assert not class_answer(both, "Nodule", asked=True).remarks & Remark.UNCERTAIN
    bare = read_words("Possibly in the left lower zone.")
    assert class_answer(bare, "Mass", asked=True, uncertain="absent").state is not WordState.ANSWERED


def test_what_is_unstated_or_implied_is_told() -> None:
    for text, name, remarks in [
        ("Lower zone consolidation.", "Consolidation", Remark.SIDE_UNSTATED),
        ("Right consolidation.", "Consolidation", Remark.LEVEL_UNSTATED),
        ("Consolidation in the right lower zone.", "Consolidation", Remark(0)),
        ("Cardiomegaly.", "Cardiomegaly", Remark.IMPLIED),
    ]:
        assert class_answer(read_words(text), name, asked=False).remarks == remarks, text


def test_what_is_skipped_is_counted_once_in_a_report() -> None:
    reading = read_words("Recommend CT to exclude mass. History of effusion.")
    counts = [class_answer(reading, name, asked=False).skipped for name in ("Mass", "Effusion", "Nodule")]
    assert counts == [1, 1, 0] and class_answer(reading, "Nodule", asked=True).skipped == 2


def test_sides_of_the_image_mirror_all_but_what_anatomy_fixes() -> None:
    for text, places in [
        ("Nodule in the left upper zone.", ["RU"]),
        ("Nodule in RUZ.", ["LU"]),
        ("Nodule on the left side of the image.", ["RU", "RM", "RL"]),
        ("Lingular nodule.", ["L.lingula"]),
        ("Retrocardiac nodule.", ["L.retrocardiac"]),
        ("RML nodule.", ["R.middle_lobe"]),
        ("RUL nodule.", ["L.upper_lobe"]),
    ]:
        assert written(text, mirrored=True)["statements"][0]["places"] == places, text
    assert read_zones("RUZ", mirrored=True).places.names == ("LU",)


def test_rules_that_no_fixture_has() -> None:
    """Labels in PadChest's order of words, a place behind a negation, and what a phrase leaves behind."""
    for text, places in [
        ("Atelectasis basal bilateral.", [["R.base", "L.base"]]),
        ("Pleural effusion costophrenic angle right.", [["R.cpa"]]),
        ("Infiltrates hilar bilateral.", [["R.hilum", "L.hilum"]]),
        ("Effusion on the left, none on the right.", [["LU", "LM", "LL"], ["RU", "RM", "RL"]]),
        ("Opacity in the lower zone on the left.", [["LL"]]),
        ("Upper left and lower right zone nodules.", [["LU", "RL"]]),
        ("Nodule in the right lower zone extending to the mid zone.", [["RL", "RM"]]),
    ]:
        reading = written(text)
        assert [item["places"] for item in reading["statements"]] == places, text
        assert all(item["sides_stated"] for item in reading["statements"]), text
    for text, places in [
        ("Lower lung nodules.", ["RL", "LL"]),
        ("Mass from the apex to the base.", list(SIX_ZONES)),
    ]:
        assert [(item["places"], item["sides_stated"]) for item in written(text)["statements"]] == [(places, False)]
    assert [item["presence"] for item in written("Effusion on the left, none on the right.")["statements"]] == [
        "present", "absent",
    ]  # fmt: skip
    for text, presences in [
        ("No effusion, consolidation is seen.", ["absent", "present"]),
        ("No effusion, consolidation or mass is seen.", ["absent", "absent", "absent"]),
        ("No consolidation with effusion.", ["absent", "present"]),
        ("Possible nodule, possible left effusion.", ["uncertain", "uncertain"]),
    ]:
        assert [item["presence"] for item in written(text)["statements"]] == presences, text
    no = read_words("No, left lower zone.")
    assert class_answer(no, "Mass", asked=True).state is WordState.DENIED
    assert "bare" not in written("Both costophrenic angles are clear.")
    for text in ("Diffusely.", "All lung zones.", "In the lungs."):
        assert class_answer(read_words(text), "Mass", asked=True).places.names == SIX_ZONES, text
    assert written("Right apex, otherwise normal.")["bare"][0]["places"] == ["R.apex"]


def test_what_reports_and_models_write_that_no_fixture_has() -> None:
    """Statements as finding, first letters of presence, places; "denied" behind them where a phrase denies."""
    for text, expected in {
        # Contractions deny, and characters without a width divide no word.
        "There isn't a left effusion.": "effusion abs LU LM LL",
        "The effusion isn\u2019t seen.": "effusion abs",
        "Can't exclude effusion.": "effusion unc",
        "con\u00adsoli\u200bdation": "consolidation pre",
        # A side for each place, behind it.
        "Nodules in the upper zone of the right lung and the mid zone of the left lung.": "nodule pre RU LM",
        "Nodules in the apex on the right, and in the base on the left.": "nodule pre R.apex L.base",
        "Opacity in the right upper zone and lower zone of the left lung.": "opacity pre RU LL",
        "Opacity in the right upper zone, lower zone, and in the left lung.": "opacity pre RU RL LU LM LL",
        "Mass in the upper zone of the left lung, mid zone and lower zone.": "mass pre LU LM LL",
        # The order of the text, since pointing takes the first place; ranges; levels of a place.
        "Nodules in the right lower and upper zones.": "nodule pre RL RU",
        "Mass from the left lower to the upper zone.": "mass pre LL LM LU",
        "Pneumothorax on the left, from the base to the apex.": "pneumothorax pre LU LM LL",
        "Mass from the left base to the mid zone.": "mass pre LL LM",
        "Right superior mediastinal mass.": "mass pre mediastinum",
        # What is said of an opacity is where it is.
        "Opacity in the left base, compatible with pneumonia.": "opacity pre L.base, pneumonia pre L.base",
        "Left basal opacity is likely atelectasis.": "opacity unc L.base, atelectasis unc L.base",
        "The opacity (left base) is likely pneumonia.": "opacity pre L.base, pneumonia unc L.base",
        "Left effusion is suspected and right nodule.": "effusion unc LU LM LL, nodule pre RU RM RL",
        "Left basal opacity, unlikely pneumonia.": "opacity pre L.base, pneumonia abs",
        "Mass, absent left effusion or pneumothorax.": "mass pre, effusion abs LU LM LL, pneumothorax abs LU LM LL",
        "The hemidiaphragm is not visible on the left, suggesting effusion.": "effusion unc L.diaphragm",
        # A side behind a place without one.
        "Apical pneumothorax, left.": "pneumothorax pre L.apex",
        "Upper zone nodule (right).": "nodule pre RU",
        "Basal atelectasis bilaterally.": "atelectasis pre R.base L.base",
        "Opacities in the lower zones and the right lung.": "opacity pre RL LL",
        "Mass in the upper zones, not on the left.": "mass pre RU LU, mass abs LU LM LL",
        # What is clear, and of what.
        "The lungs are clear of consolidation.": "consolidation abs RU RM RL LU LM LL",
        "The lungs are clear bilaterally.": "denied",
        "No abnormality in both lungs.": "denied",
        "Lungs are clear bilaterally and a left nodule.": "nodule pre LU LM LL, denied",
        "Left lung: clear.\nMediastinum: normal.": "",
        "Consolidation in the left lower zone, right lung clear.": "consolidation pre LL",
        "The left lung is normal in appearance and there is a right effusion.": "effusion pre RU RM RL",
        "Right effusion with normal left lung.": "effusion pre RU RM RL",
        "Nodule with clear border in the left upper zone.": "nodule pre LU",
        "Right lung: no abnormality.": "denied",
        "Both lungs: clear.": "denied",
        # Denials at the end.
        "Left effusion resolved.": "effusion abs LU LM LL",
        "Left effusion has not resolved.": "effusion pre LU LM LL",
        "Nodule at the left apex, effusion - none": "nodule pre L.apex, effusion abs",
        "Effusion, none.": "effusion abs",
        "Effusion: small, right none.": "effusion pre RU RM RL",
        # Lists, and "there is" before a negation.
        "- Effusion: none\n2) Nodule: left\n(3) Mass: none": "effusion abs, nodule pre LU LM LL, mass abs",
        "There is no mass, opacity in the RLL.": "mass abs, opacity pre R.lower_lobe",
    }.items():
        reading = read_words(text)
        said = [
            " ".join([item.finding.split("_")[-1], item.presence[:3], *item.places.names])
            for item in reading.statements
        ]
        assert ", ".join([*said, *["denied"] * bool(reading.denied)]) == expected, text
        assert not reading.bare and all(item.places.sides_stated for item in reading.statements), text


def test_an_empty_line_ends_a_sentence_and_a_wrapped_one_does_not() -> None:
    first, second = "There is a dense consolidation with air bronchograms in the left", "lower zone."
    for end, places in [("\n", ("LL",)), ("\r\n", ("LL",)), ("\n\n", SIX_ZONES[3:]), ("\r\n\r\n", SIX_ZONES[3:])]:
        assert read_words(first + end + second).statements[0].places.names == places, end


def test_layout_changes_nothing() -> None:
    for entry in SENTENCES:
        text = entry["text"]
        variants = [text + "\n\n", text.replace(" ", "   "), f"  {text}"]
        variants += [text.upper()] if "\n" not in text and "<" not in text else []
        for variant in variants:
            assert written(variant) | {"text": text} == entry, variant
        sided = text.replace("Right ", "Right-sided ").replace(" right ", " right-sided ")
        if "right side" not in text.lower() and "right-sided" not in text.lower():
            assert written(sided) | {"text": text} == entry, sided


def test_left_and_right_are_treated_alike() -> None:
    """Where no word has its own side, swapping left and right swaps the places."""
    sided = ("retrocardiac", "middle lobe", "lingul", "image", "ruz", "llz", "rmz", "rll", "rul", "kein", "pas de")
    other = {"left": "right", "right": "left", "lt": "rt", "rt": "lt"}
    swapped = 0
    for entry in SENTENCES:
        text = entry["text"].lower()
        if any(word in text for word in sided):
            continue
        mirror = re.sub(r"\b(left|right|lt|rt)\b", lambda match: other[match[0]], text)
        places = [
            sorted(name[0].translate(OTHER_SIDE) + name[1:] if name[0] in "RL" else name for name in item["places"])
            for item in entry["statements"]
        ]
        assert [sorted(item["places"]) for item in written(mirror)["statements"]] == places, mirror
        swapped += mirror != text
    assert swapped > 70


def test_classes_mean_findings() -> None:
    assert findings_of("Effusion") == findings_of("Pleural effusion") == ("pleural_effusion",)
    assert findings_of("Nodule") == ("nodule", "nodule_mass") and "fibrosis" in findings_of("Lung Opacity")
    assert findings_of("Other lesion") == ("lesion",) and findings_of("PNEUMONIAS") == ("pneumonia",)
    assert findings_of("Scoliosis") == () == findings_of("left effusion")
    unknown = read_words("Left lower zone.")
    assert class_answer(unknown, "Scoliosis", asked=True).places.names == ("LL",)
    assert class_answer(read_words("Normal chest radiograph."), "Scoliosis", asked=False).state is WordState.DENIED


def words() -> list[str]:
    lists = lexicon().lists
    texts = [text for finding in lists["finding"].values() for text in finding]
    for name, items in lists.items():
        if name not in ("finding", "denied_by_patterns", "classes", "parents", "own_place", "denied_by"):
            texts += [*items] if not isinstance(items, dict) or name not in ("sections", "stop_words") else []
    return [*texts, *(word for kind in ("read", "not_read") for word in lists["sections"][kind])]


def test_random_strings_never_raise() -> None:
    rng, known = random.Random(0), words()
    ends = [
        " ",
        " ",
        " ",
        ", ",
        ". ",
        ": ",
        "? ",
        "\n",
        "/",
        "-",
        " - ",
        " (",
        ") ",
        "; ",
        " ? ",
        DOUBT,
        "\u2013",
        "\x02",
    ]
    for _ in range(3000 * int(os.environ.get("XBENCH_FUZZ", "1"))):
        text = "".join(rng.choice(known) + rng.choice(ends) for _ in range(rng.randrange(1, 20)))
        reading = read_words(text)
        for name in ("Effusion", "Nodule", "Lung Opacity"):
            answer = class_answer(reading, name, asked=rng.random() < 0.5)
            assert (answer.state is WordState.ANSWERED) == bool(answer.places.names)


def steps(run: Callable[[], object]) -> int:
    """The lines and calls of Python that a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "unit",
    [
        " ", "\n", "a", "? ", ": ", "is ", "effusion:", "effusion, ", "effusion not seen ", "not seen, effusion ",
        "effusion not in left lung, ", "right upper, ", "lower zone, ", "it is left. ", "upper to ", "of the left ",
        "left effusion, consolidation, ", "findings. ", "[1,2] ", "left: ", "left: clear: ", "- none ",
        "effusion none ", "Left lower zone consolidation, no effusion. ",
    ],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    read_words("warm")
    once, twice = (steps(lambda times=times: read_words(unit * times)) for times in (60, 120))  # type: ignore[misc]
    assert twice <= 2.3 * once
