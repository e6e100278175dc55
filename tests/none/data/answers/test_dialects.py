"""Texts of multimodal models -> boxes (docs/boxes.md §4)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from answer_files import FIXTURES
from xbench_fast.runtime.data.answers.coordinate_frames import Budget, in_pixels, placed_axes, smart_resize, view_of
from xbench_fast.runtime.data.answers.dialects.dialect_registry import DIALECTS, parse

NEW = ("internvl", "deepseekvl2", "medrega", "grid")
"""Dialects whose vectors are in tests/ask (test_asked_dialects.py)."""

OF_BOXES = [name for name, dialect in DIALECTS.items() if not dialect.words]
VECTORS = json.loads((FIXTURES / "dialects.json").read_text())["cases"]


def pixels(case: dict[str, Any]) -> list[Any]:
    """The boxes of a vector in pixels, before they are clipped."""
    dialect, view, size = DIALECTS[case["dialect"]], case.get("view", {}), tuple(case["image"])
    found = parse(case["dialect"], case["text"], key=view.get("key", "bbox_2d"), order=view.get("order", "xyxy"))
    assert (found.illegal, found.truncated, found.meant) == (0, False, True)
    seen = dialect.view
    if "resized" in view:
        seen = view_of(Budget(view["min_pixels"], view["max_pixels"]), size)
        assert list(seen) == view["resized"]
    axes = placed_axes(dialect.frame or view["frame"], size, seen)
    boxes = [in_pixels(box, axes) for box in found.boxes]
    return [[float(int(value)) for value in box] for box in boxes] if dialect.whole_pixels else boxes


def test_every_vector() -> None:
    wanted = set(OF_BOXES) - {"paligemma1024", *NEW}
    assert len(VECTORS) == 87 and {case["dialect"] for case in VECTORS} == wanted
    for case in VECTORS:
        np.testing.assert_allclose(pixels(case), case["boxes"], rtol=0, atol=1e-6, err_msg=case["text"])


def test_paligemma1024_divides_by_1024() -> None:
    (box,) = parse("paligemma1024", "<loc0512><loc0256><loc1023><loc0768> mass").boxes
    assert box == (0.25, 0.5, 0.75, 1023 / 1024)


def test_smart_resize() -> None:
    small, large = Budget(3136, 1_003_520), Budget(3136, 12_845_056)
    assert smart_resize(3056, 2544, small) == (1092, 896) and smart_resize(3056, 2544, large) == (3052, 2548)
    assert smart_resize(14, 42, Budget(1, 10**6)) == (28, 56)  # 0.5 and 1.5 factors: halves are rounded to even
    assert smart_resize(70, 98, Budget(1, 10**6)) == (56, 112)  # 2.5 and 3.5 factors
    assert smart_resize(20, 20, Budget(3136, 10**6)) == (56, 56)
    assert smart_resize(64, 64, Budget(1, 10**6, 32)) == (64, 64)
    assert smart_resize(6000, 30, Budget(1, 1000)) == (420, 28)  # a side keeps one factor
    with pytest.raises(ValueError, match="above 200"):
        smart_resize(201, 1, small)


TEXTS = [
    # dialect, text, boxes kept, illegal, truncated, trace
    ("maira2", "<obj>No effusion.</obj>", 0, 0, False, False),
    ("maira2", "<obj>a<box><x10><y20><x30><y40></obj>", 0, 0, False, True),
    ("maira2", "<obj>a<box><x10><y20><x30><y40>", 0, 0, True, True),
    ("maira2", "<obj>a<box> <x10><y20> <x30><y40> </box></obj>", 1, 0, False, True),
    ("maira2", "<obj>a<box><x30><y20><x10><y40></box></obj>", 0, 1, False, True),
    ("maira2", "<obj>a<box><x10><y20><x99><y40></box></obj> <obj>b", 1, 0, True, True),
    ("maira2", "<obj>a<box><x10><y20><x100><y40></box></obj>", 0, 1, False, True),
    ("radvlm", "", 0, 0, False, False),
    ("radvlm", "Seen on 2 of 3 views.", 0, 0, False, False),
    ("radvlm", "at [0.1, 0.2, 0.3, 0.4", 0, 0, True, True),
    ("radvlm", "at [.1,.2 ,1., 1.0]", 1, 0, False, True),
    ("radvlm", "at [0.1, 0.2, 0.3, 1.001]", 0, 1, False, True),
    ("radvlm", "at [-0.1, 0.2, 0.3, 0.4]", 0, 0, False, True),
    ("radvlm", "at (0.1, 0.2, 0.3, 0.4)", 0, 0, False, True),
    ("radvlm", "at [0.1, 0.2, 0.3, 0.4, 0.5]", 0, 0, False, True),
    ("radvlm", "at [0..1, 0.2, 0.3, 0.4]", 0, 0, False, True),
    ("radvlm", "see [1]", 0, 0, False, False),
    ("radvlm", "at [\u0660.1, 0.2, 0.3, 0.4]", 0, 0, False, True),
    ("chexagent2", "<|box|>(25,50),(75,101)<|/box|>", 0, 1, False, True),
    ("chexagent2", "<|box|>(25,50),(75,100)<|/box|>", 1, 0, False, True),
    ("chexagent2", "<|box|>(-1,50),(75,100)<|/box|>", 0, 1, False, True),
    ("chexagent2", "<|box|>(0.25,0.5),(0.75,1.0)<|/box|>", 0, 0, False, True),
    ("chexagent2", "<|box|>(25,50),(75,100)", 0, 0, True, True),
    ("chexagent2", "<|box|>(25,50),(75,100) is it", 0, 0, False, True),
    ("chexagent2", "<|ref|>effu", 0, 0, True, True),
    ("chexagent2", "<|ref|>effusion<|/ref|>", 0, 0, False, True),
    ("qwen2vl", "<|box_start|>(1,2),(3,4)<|box_end|><|box_start|>(1,", 1, 0, True, True),
    ("qwen2vl", "<|box_start|>(1,2),(3,1000.5)<|box_end|>", 0, 1, False, True),
    ("qwen2vl", "effusion(460,66),(683,252)", 1, 0, False, True),
    ("qwen2vl", "effusion(1,2),(3,4)(5,6),(7,8), mass (1,2), (3,4)", 3, 0, False, True),
    ("qwen2vl", "effusion(1,2)(3,4) in it", 0, 0, False, True),
    ("qwen2vl", "outline (1,2),(3,4),(5,6) of it", 0, 0, False, True),
    ("qwen2vl", "effusion(1,2),(3,4),(5,6)", 1, 0, True, True),
    ("qwen2vl", "effusion(1,2),(3,4),(5,", 1, 0, True, True),
    ("qwen2vl", "effusion(1,2),(3,", 0, 0, True, True),
    ("qwen2vl", "effusion(1,2),(3,1001)", 0, 1, False, True),
    ("qwen2vl", "effusion(3,4),(1,2)", 0, 1, False, True),
    ("qwen2vl", "<ref>a</ref>(1,2),(3,4)", 1, 0, False, True),
    ("qwen2vl", "<ref>a</ref><box>(1,2),(3,4)</box><box>(5,6),(7,8)</box>", 2, 0, False, True),
    ("qwen2vl", "<box>(1,2),(3,4),(5,6),(7,8)</box>", 2, 0, False, True),
    ("qwen2vl", "<box>(1,2),(3,4),(5,6)</box>", 0, 0, False, True),
    ("qwen2vl", "<|box_start|>(1,2),(3,4)(5,6),(7,8)<|box_end|>", 2, 0, False, True),
    ("qwen2vl", "<box>(1,2),(3,4)</box> and (5,6),(7,8)", 1, 0, False, True),
    ("qwen2vl", "<box>(1,2),(3,4)</box><box>(1,", 1, 0, True, True),
    ("chexagent2", "effusion (25,50),(75,100)", 1, 0, False, True),
    ("chexagent2", "effusion (460,66),(683,252)", 0, 1, False, True),
    ("chexagent2", "<box>(25,50),(75,100)</box>", 1, 0, False, True),
    ("florence2", "a<loc_1><loc_2><loc_3><loc_4><loc_5>", 1, 0, True, True),
    ("florence2", "a<loc_1><loc_2><loc_3> and <loc_4>.", 0, 0, False, True),
    ("florence2", "a<loc_1><loc_2><loc_3><loc_1000>", 0, 1, False, True),
    ("florence2", "a<loc_0><loc_0><loc_999><loc_999>", 1, 0, False, True),
    ("paligemma", "<loc0001><loc0002><loc0003><loc0004> a ; <loc0", 1, 0, True, True),
    ("paligemma", "<loc0001><loc0002><loc0003><loc1024> a", 0, 1, False, True),
    ("paligemma", "<loc001><loc002><loc003><loc004> a", 0, 0, False, True),
    ("kosmos2", "<grounding> No effusion.", 0, 0, False, False),
    ("kosmos2", "<phrase>a</phrase><object><patch_index_0000><patch_index_1023></object>", 1, 0, False, True),
    ("kosmos2", "<phrase>a</phrase><object><patch_index_0000><patch_index_1024></object>", 0, 1, False, True),
    ("kosmos2", "<object><patch_index_0000><patch_index_0033></delimiter_of_multi_objects/><pat", 1, 0, True, True),
    ("kosmos2", "<object><patch_index_0000><patch_index_0033> in it", 0, 0, False, True),
    ("kosmos2", "<object><patch_index_0000><patch_index_0033>", 0, 0, True, True),
    ("kosmos2", "<object><patch_index_0001><patch_index_0032></object>", 0, 1, False, True),
    ("qwen3vl", '[{"bbox_2d": [], "label": "none"}]', 0, 0, False, False),
    ("qwen3vl", '[{"bbox_2d": null}]', 0, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3]}]', 0, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": ["1", "2", "3", "4"]}]', 0, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3, 4, 5]}]', 0, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [[1, 2, 3, 4]]}]', 1, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 8]]}]', 2, 0, False, True),
    ("qwen25vl", '[{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7], [], [5, 6, 7, 8]]}]', 2, 1, False, True),
    ("qwen3vl", '[{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 1001]]}, {"bbox_2d": [1, 2, 3, 4]}]', 2, 1, False, True),
    ("qwen3vl", '[{"bbox_2d": [[1, 2, 3, 4], [5, 6', 1, 0, True, True),
    ("qwen3vl", '[{"bbox_2d": [[1, 2], [3, 4]]}]', 0, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3, 4, 5, 6, 7, 8]}]', 0, 0, False, True),
    ("medgemma15", '[{"box_2d": [[1, 2, 3, 4], [5, 6, 7, 8]]}]', 2, 0, False, True),
    ("medgemma15", 'Heart [{"box_2d": [1, 2, 3, 4]}]. Final Answer: [{"box_2d": [5, 6, 7, 8]}]', 1, 0, False, True),
    ("medgemma15", '[{"box_2d": [1, 2, 3, 4]}] **final answer:** x Final Answer: none', 0, 0, False, False),
    ("medgemma15", '[{"box_2d": [1, 2, 3, 4], "label": "Final Answer: no"}]', 1, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3, 4]}] Final Answer: [{"bbox_2d": [5, 6, 7, 8]}]', 2, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3, 1001]}]', 0, 1, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3, 1e3]}]', 1, 0, False, True),
    ("qwen3vl", '{"label": "a", "bbox_2d" : [1,2,3,4,]}', 1, 0, False, True),
    ("qwen3vl", '[{"bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [1', 1, 0, True, True),
    ("qwen3vl", '<think>it is [{"bbox_2d": [1, 2, 3, 4]}]', 0, 0, True, False),
    ("qwen3vl", "None.", 0, 0, False, False),
    ("qwen25vl", '[{"bbox_2d": [1, 2, 3, 5000]}]', 1, 0, False, True),
    ("medgemma15", '[{"bbox_2d": [1, 2, 3, 4]}]', 0, 0, False, True),
    ("medgemma15", '<unused94>[{"box_2d": [1, 2, 3, 4]}]<unused95>[{"box_2d": [5, 6, 7, 8]}]', 1, 0, False, True),
    ("json", "[[1, 2, 3, 4], [5, 6, 7, 8]]", 2, 0, False, True),
    ("json", "[1, 2, 3, 4]", 1, 0, False, True),
    ("json", '{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 8]]}', 2, 0, False, True),
    ("json", '{"bbox": [[1, 2, 3, 4], [5, 6, 7, 8]]}', 0, 0, False, True),
    ("json", '{"bbox": [[1, 2, 3, 4], [5, 6', 0, 0, True, True),
    ("json", '{"bbox_2d": []}', 0, 0, False, False),
    ("json", 'bbox": [[1, 2, 3, 4]]', 0, 0, False, True),
    ("json", '{"bbox_2d": [1, 2, 3, 4], "label": "[1, 2, 3, 4]"}', 1, 0, False, True),
    ("qwen3vl", 'a) ]] [{"bbox_2d": [1, 2, 3, 4]}, {', 1, 0, True, True),
    ("qwen3vl", '{"bbox_2d": [], "explanation": "clear at [10, 20, 30, 40]"}', 0, 0, False, False),
    ("json", '{"bbox_2d": [], "explanation": "clear at [10, 20, 30, 40]"}', 0, 0, False, False),
    ("json", '{"bbox_2d": null, "explanation": "clear at [10, 20, 30, 40]"}', 0, 0, False, True),
    ("json", '{"reasoning": "looked at [10, 20, 30, 40]", "bboxes": [[1, 2, 3, 4]]}', 0, 0, False, True),
    ("json", '{"bboxes": [[1, 2, 3, 4]]} i.e. [[5, 6, 7, 8]]', 0, 0, False, True),
    ("json", '[{"label": "a", "bbox_2d": []}]\n\nNot the heart at [10, 20, 30, 40].', 0, 0, False, True),
    ("json", "Bounding box: [1, 2, 3, 4]", 1, 0, False, True),
    ("json", "effusion: [1, 2, 3, 4], mass: [[5, 6, 7, 8]]", 2, 0, False, True),
    ("json", "Final Answer:\n[1, 2, 3, 4]", 1, 0, False, True),
    ("json", "{bbox: [1, 2, 3, 4]}", 0, 0, False, True),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "text", "kept", "illegal", "truncated", "meant"), TEXTS)
def test_malformed_answers(dialect: str, text: str, kept: int, illegal: int, truncated: bool, meant: bool) -> None:
    found = parse(dialect, text)
    assert (len(found.boxes), found.illegal, found.truncated, found.meant) == (kept, illegal, truncated, meant)


def test_the_boxes_after_the_last_thought_count() -> None:
    text = '[{"bbox_2d": [1, 2, 3, 4]}]</think>[{"bbox_2d": [2, 3, 4, 5]}]</think>[{"bbox_2d": [5, 6, 7, 8]}]'
    assert parse("qwen3vl", text).boxes == [(5, 6, 7, 8)]
    assert parse("medgemma15", '[{"box_2d": [1, 2, 3, 4]}]<unused95>[{"box_2d": [5, 6, 7, 8]}]').boxes == [(6, 5, 8, 7)]


PIECES = [
    "[", "(", "{", "<box>", "<loc_", "<object>", "9", " ", "[ ", '"bbox_2d": [', "1,", "<|box|>(", "[1,2,", "((1 ",
    '"', "[1,2,3,4],", "[[1,2],", '"bbox_2d": [[1,', "(1,2),", "(1,2", "<think>", "</think>", "[THINK", "< ", '," ',
    ",'a", "</a>[1,2]", "<|channel|>", "<|channel|>final ", "<answer>", "final answer ", "analysis", "<box>(1,2),",
    '{"label":"', "<patch_index_0001>", "<x1>", "-", "<box><x1><y1>", "[[1,2,3,4]", "<loc_1>", '{"box_2d":',
]  # fmt: skip


@pytest.mark.parametrize("dialect", OF_BOXES)
def test_long_texts_are_read_in_linear_time(dialect: str) -> None:
    """Grammars that go back over a text would take minutes here."""
    for piece in PIECES:
        text = "[" + piece * (100_000 // len(piece))
        assert len(parse(dialect, text).boxes) <= len(text)
