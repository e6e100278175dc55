"""What a model calls its boxes, against what was asked (docs/boxes.md §2)."""

from __future__ import annotations

import pytest
from xbench_fast.runtime.data.answers.box_labels import names_another
from xbench_fast.runtime.data.answers.dialects.dialect_registry import parse

CLASSES = ("Effusion", "Pleural_Thickening", "Nodule/Mass", "Device")


@pytest.mark.parametrize(
    ("label", "asked", "another"),
    [
        ("effusion", "Effusion", False),
        ("Right pleural effusions", "Effusion", False),
        ("effusion", "Pleural Effusion", False),
        ("pleural effusion", "Pleural_Thickening", True),
        ("PLEURAL-THICKENING", "Pleural_Thickening", False),
        ("nodule", "Nodule/Mass", False),
        ("masses", "Nodule/Mass", False),
        ("pulmonary oedema", "Edema", False),
        ("pulmonary oedema", "Effusion", True),
        ("device", "Effusion", True),
        ("an enlarged heart", "Cardiomegaly", False),
        ("enlarged heart", "Effusion", True),
        ("opacity", "Effusion", False),
        ("pacing device", "Device", False),
        ("effusion and a nodule", "Nodule/Mass", False),
        ("", "Effusion", False),
        ("[1]", "Effusion", False),
    ],
)
def test_another_finding(label: str, asked: str, another: bool) -> None:
    assert names_another(label, (asked,), CLASSES) is another


def test_a_phrase_is_asked_too() -> None:
    assert not names_another("atelectasis", ("Effusion", "effusion with atelectasis"), CLASSES)


@pytest.mark.parametrize(
    ("dialect", "text", "labels"),
    [
        (
            "qwen3vl",
            '[{"label": "a", "bbox_2d": [1, 2, 3, 4]}, {"bbox_2d": [1, 2, 3, 4], \'name\': \'b\'}]',
            ["a", "b"],
        ),
        ("qwen3vl", '[{"label": "a"}, {"bbox_2d": [1, 2, 3, 4]}, {"label": "b"}]', [""]),
        ("qwen3vl", '{"bbox_2d": [[1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7, 8]], "label": "a"}', ["a", "a"]),
        ("json", "[[1, 2, 3, 4]]", [""]),
        ("qwen2vl", "It is: left mass (1,2),(3,4)(5,6),(7,8). (1,2),(3,4)", ["left mass", "left mass", ""]),
        (
            "qwen2vl",
            "<ref>a</ref><box>(1,2),(3,4)</box> <box>(1,2),(3,4)</box>. <box>(1,2),(3,4)</box>",
            ["a", "a", ""],
        ),
        ("chexagent2", "<|ref|>a<|/ref|> <|box|>(1,2),(3,4)<|/box|>", ["a"]),
    ],
)
def test_names_of_boxes(dialect: str, text: str, labels: list[str]) -> None:
    assert parse(dialect, text).labels == labels
