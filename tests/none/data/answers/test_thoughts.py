"""Only the answer of a text counts: thoughts in any tags, and what answer tags hold (docs/boxes.md §4)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from answer_files import read
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.answers.dialects.dialect_registry import parse
from xbench_fast.runtime.data.answers.dialects.thoughts import answer_part

CASES = Path(__file__).parents[3] / "cases"
ANSWER = '[{"bbox_2d":[100,200,300,400],"label":"effusion"}]'
WEIGHED = 'maybe {"bbox_2d":[1,2,3,4],"label":"effusion"}'
PAIRS = [
    ("<think>", "</think>"), ("<Think>", "</THINK>"), ("< think >", "</ think>"), ('<think time="3">', "</think>"),
    ("<thinking>", "</thinking>"), ("<REASONING>", "</REASONING>"), ("<reason>", "</reason>"),
    ("<analysis>", "</analysis>"), ("<thought>", "</thought>"), ("<reflection>", "</reflection>"),
    ("<seed:think>", "</seed:think>"), ("<longcat_think>", "</longcat_think>"), ("<|think|>", "<|/think|>"),
    ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<unused94>thought\n", "<unused95>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"), ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"), ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>"),
    ("analysis", "assistantfinal"), ("Here is my thought process: ", "Here is my response: "),
    ("<|begin_of_thinking|>", "<|end_of_thinking|>"), ("<|think_start|>", "<|think_end|>"),
    ("<|begin_think|>", "<|end_think|>"), ("&lt;think&gt;", "&lt;/think&gt;"), ("## Thinking\n", "## Final Response\n"),
    ("<think>\n<think>", "</think>"), ("<think>a<think>", "</think>b</think>"), ("<think>", "</thinking>"),
    ("<think>a<reasoning>b</reasoning>", "</think>"), ("<think>a</think>b<think>", "</think>"),
]  # fmt: skip


def boxes(text: str, **more: tuple[tuple[str, str], ...]) -> list[tuple[float, ...]]:
    return list(parse("json", text, **more).boxes)


@pytest.mark.parametrize(("start", "end"), PAIRS)
def test_boxes_of_a_thought_do_not_count(start: str, end: str) -> None:
    for text in (start + WEIGHED + end + ANSWER, WEIGHED + end + ANSWER, start + end + ANSWER + "<|return|>"):
        found = parse("json", text)
        assert (found.boxes, found.truncated) == ([(100, 200, 300, 400)], False), text
    cut = parse("json", start + WEIGHED)
    assert cut.boxes == [] and cut.truncated, "a thought that does not end"


def test_the_file_of_the_case(tmp_path: Path) -> None:
    lines = (CASES / "boxes-thoughts-in-other-tags/answers.jsonl").read_text().splitlines()[1:]
    for line in map(json.loads, lines):
        found = parse(line["dialect"], line["text"], key=line["key"])
        assert (found.boxes, found.tag) == ([(100, 200, 300, 400)], ""), line["text"]


@pytest.mark.parametrize(
    ("text", "answer", "cut"),
    [
        ("a <answer>b</answer> c", "b", False),
        ("a <answer>b</answer> c <answer>d</answer> e", "d", False),
        ("<answer>a <answer>b</answer>", "b", False),
        ("a <answer>b", "b", False),
        ("a</answer> b", "a", False),
        ("<think>a <answer>b</answer></think>c", "c", False),
        ("<think>a</think><FINAL_ANSWER>b</FINAL_ANSWER>", "b", False),
        ("<answer>a</answer><reflection>b</reflection>", "a", False),
        ("<answer><think>a</think>b</answer>", "b", False),
        ("<think>a <answer>b</answer>\n", "b", False),
        ("<think>a <answer>b</answer><|im_end|>", "b", False),
        ("<think>a <answer>b</answer> </s>", "b", False),
        ("<answer>a</answer> <answer>", "a", False),
        ("<answer>a</answer> the text in <answer> counts", "a", False),
        ("<answer>a</answer><answer>[1, 2, 3", "a", False),
        ("<answer>a</answer><answer>[1, 2, 3, 4]", "[1, 2, 3, 4]", False),
        ("<answer>a</answer><answer><loc_1><loc_2><loc_3><loc_4>", "<loc_1><loc_2><loc_3><loc_4>", False),
        ("<answer>a</answer><answer>(1, 2), (3, 4)", "(1, 2), (3, 4)", False),
        ("<think>a</think><answer>b</answer></think>", "b", False),
        ("a <answer>b</answer></think>", "", False),
        ("<think>a <answer>b</answer> c", "", True),
        ("<|begin_of_thought|>a<|end_of_thought|><|begin_of_solution|>b<|end_of_solution|>", "b", False),
        ("a<think>b", "a", True),
        ("a <think>b</think>c<think>d", "c", True),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b", "", True),
        ("<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b", "a", False),
        ("<|channel|>final<|message|><think>a</think>b<|return|>", "b", False),
        ("<|channel|>fin", "", True),
        ("analysis of it: a", "analysis of it: a", False),
        ("analysisWe see a", "", True),
        ("Final: [0.1]", "Final: [0.1]", False),
        ('{"label": "<think>", "x": "</think>"}', '{"label": "<think>", "x": "</think>"}', False),
        ("{'label': 'a </think> \\' b'}", "{'label': 'a </think> \\' b'}", False),
        ('5" wide</think>["a"]', '["a"]', False),
        ('{"label": "a</think>["b"]', '["b"]', False),
        ("[Analysis] a [thinking about it] b", "[Analysis] a [thinking about it] b", False),
    ],
)
def test_the_part_that_is_the_answer(text: str, answer: str, cut: bool) -> None:
    assert answer_part(text) == (answer, cut)


def test_a_file_names_further_tags(tmp_path: Path) -> None:
    text = f"<Plan>{WEIGHED}</plan>{ANSWER}"
    line = {"case": "a", "finding": "Mass", "dialect": "json", "frame": "permille", "text": text}
    assert len(read(tmp_path, line).positives.boxes) == 2
    assert len(read(tmp_path, {**line, "thoughts": [["<plan>", "</plan>"], ["(*", "*)"]]}).positives.boxes) == 1
    assert boxes(f"(*{WEIGHED}*){ANSWER}", thoughts=(("(*", "*)"),)) == [(100, 200, 300, 400)]
    for wrong in ("<plan>", ["<plan>"], [["<plan>"]], [["<plan>", ""]], [["a", "a"]], [[1, 2]], [["a", "b"]] * 21):
        with pytest.raises(DataError, match=r"key 'thoughts'.*pairs of tags"):
            read(tmp_path, {**line, "thoughts": wrong})


def test_boxes_in_an_unknown_tag_and_after_it_are_told() -> None:
    assert parse("json", f"<plan>{WEIGHED}</plan>{ANSWER}").tag == "</plan>"
    assert parse("json", f"{WEIGHED}[/DRAFT]{ANSWER}").tag == "[/DRAFT]"
    assert parse("florence2", "<plan>a<loc_1><loc_2><loc_3><loc_4></plan>a<loc_1><loc_2><loc_3><loc_4>").tag
    for text in (f"<output>{ANSWER}</output>", f"<plan>none</plan>{ANSWER}", f"<b>{ANSWER}</b>{ANSWER}", ANSWER):
        assert parse("json", text).tag == ""
    assert parse("qwen2vl", "<ref>a</ref><box>(1,2),(3,4)</box><box>(5,6),(7,8)</box>").tag == ""
