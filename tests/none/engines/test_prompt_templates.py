"""`prompts expand`: the sets of templates and synonyms, their names, samples, and mistakes in the file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.prompts.prompt_files import SET_NAME, FindingPrompts, read_prompt_file
from xbench_fast.engines.prompts.prompt_templates import read_templates
from xbench_fast.runtime.cli import main

pytest.importorskip("yaml")

CONTENT: dict[str, Any] = {
    "templates": {
        "bare": "{finding}",
        "both": ["{Finding}", "chest X-ray of {finding}: 3"],
        "pair": {"positive": "{finding} there", "negative": ["no {finding}", "{finding} absent"]},
    },
    "findings": ["Mass", "Pleural Effusion", "Nodule"],
    "synonyms": {"Pleural Effusion": ["effusion", 'fluid "in" the: pleura', "#yes"], "Nodule": ["nodule", "no"]},
}


def changed(**edits: Any) -> dict[str, Any]:
    return {**CONTENT, **edits}


def command(folder: Path, content: object, *options: object, name: str = "templates.json") -> Any:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        main(["prompts", "expand", str(folder / name), "--out", str(folder / "out.yaml"), *map(str, options)])
    return ended.value.code


def naive(content: dict[str, Any]) -> dict[str, tuple[FindingPrompts, ...]]:
    """All sets by nested loops over a file whose sides are spelled out."""
    sets = {}
    words = [content["synonyms"].get(name, [name.lower()]) for name in content["findings"]]
    for template, value in content["templates"].items():
        sides = value if isinstance(value, dict) else {"positive": value}
        for choice in itertools.product(*words):
            name, entries = template, []
            for finding, own, word in zip(content["findings"], words, choice, strict=True):
                if own.index(word):
                    name += f"-{finding.replace(' ', '')}{own.index(word) + 1}"
                texts = []
                for side in ("positive", "negative"):
                    listed = sides.get(side, [])
                    listed = [listed] if isinstance(listed, str) else listed
                    capital = word[0].upper() + word[1:]
                    texts.append(tuple(t.replace("{finding}", word).replace("{Finding}", capital) for t in listed))
                entries.append(FindingPrompts(finding, *texts))
            sets[name] = tuple(entries)
    return sets


@pytest.mark.parametrize("out", ["out.yaml", "out.json"])
def test_every_combination_is_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str) -> None:
    assert command(tmp_path, CONTENT, "--out", tmp_path / out) == 0
    said = capsys.readouterr().out
    assert "3 templates and 6 choices of synonyms of 3 findings: 18 sets" in said
    found = read_prompt_file(tmp_path / out)
    assert found == naive(CONTENT) and list(found) == list(naive(CONTENT))
    assert next(iter(found)) == "bare" and "both-PleuralEffusion3-Nodule2" in found
    assert found["pair-Nodule2"][2] == FindingPrompts("Nodule", ("no there",), ("no no", "no absent"))


def test_yaml_is_read_and_a_dataset_names_its_findings(tmp_path: Path) -> None:
    text = "templates: {bare: '{finding}'}\nfindings: chestxdet10\nsynonyms: {Effusion: [fluid, Effusion]}\n"
    assert command(tmp_path, text, name="templates.yaml") == 0
    found = read_prompt_file(tmp_path / "out.yaml")
    assert list(found) == ["bare", "bare-Effusion2"]
    assert [entry.finding for entry in found["bare"]][:4] == [
        "Atelectasis",
        "Calcification",
        "Consolidation",
        "Effusion",
    ]
    assert len(found["bare"]) == 10 and found["bare"][0].positive == ("atelectasis",)
    assert found["bare-Effusion2"][3].positive == ("Effusion",)


def test_a_sample_is_part_of_all_begins_with_the_first_and_repeats(tmp_path: Path) -> None:
    whole = naive(CONTENT)

    def drawn(*options: object) -> dict[str, Any]:
        assert command(tmp_path, CONTENT, *options) == 0
        return read_prompt_file(tmp_path / "out.yaml")

    five = drawn("--limit", 5)
    assert len(five) == 5 and next(iter(five)) == "bare"
    assert five == {name: whole[name] for name in whole if name in five}  # the same texts
    assert list(five) == [name for name in whole if name in five]  # in the order of all
    assert drawn("--limit", 5) == five and list(drawn("--limit", 5, "--seed", 1)) != list(five)
    assert drawn("--limit", 18) == whole == drawn("--limit", 99)
    seen = {name for seed in range(30) for name in drawn("--limit", 3, "--seed", seed)}
    assert seen == set(whole)  # none is out of reach


def test_many_sets_need_a_limit_and_names_stay_legal(tmp_path: Path) -> None:
    findings = [f"A finding with a long name {n}" for n in range(25)]
    content = {"templates": {"t": "{finding}"}, "synonyms": {name: list("abcdefgh") for name in findings}}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    wordings = read_templates(path, lambda name: ())
    assert wordings.total == 8**25  # more than an index of the machine
    with pytest.raises(ConfigError, match="more than 1,000; take a sample of them with --limit"):
        wordings.expand()
    sets = wordings.expand(7, 3)
    assert len(sets) == 7 and all(SET_NAME.fullmatch(name) for name in sets)
    assert next(iter(sets)) == "t" + 25 * "-1"  # numbers, since names of findings do not fit
    for name, entries in sets.items():
        words = ["abcdefgh"[int(digit) - 1] for digit in name.split("-")[1:]]
        assert [entry.positive for entry in entries] == [(word,) for word in words]


def test_findings_that_end_alike_have_names_of_numbers(tmp_path: Path) -> None:
    content = {"templates": {"t": "{finding}"}, "synonyms": {"A-b": ["p", "q"], "Ab": ["r", "s"]}}
    assert command(tmp_path, content) == 0
    assert list(read_prompt_file(tmp_path / "out.yaml")) == ["t-1-1", "t-1-2", "t-2-1", "t-2-2"]
    content["synonyms"] = {"Mass": ["p", "q"], "mass": ["r", "s"]}  # two files of a bundle on every file system
    assert command(tmp_path, content) == 0
    assert list(read_prompt_file(tmp_path / "out.yaml")) == ["t-1-1", "t-1-2", "t-2-1", "t-2-2"]
    content["synonyms"] = {"L1": list("abcdefghijkl"), "X": ["u"]}  # L1 with its 2nd synonym would be L12
    assert command(tmp_path, content) == 0
    assert "t-2" in read_prompt_file(tmp_path / "out.yaml")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed(sets={}), "unknown key 'sets'"),
        ({"synonyms": {"A": ["a"]}}, "templates: expected a non-empty mapping"),
        (changed(templates={"a b": "{finding}"}), "the template name 'a b'"),
        (changed(templates={"a": "an effusion"}), "template 'a': 'an effusion' needs {finding}"),
        (changed(templates={"a": "{finding} {side}"}), "and no other brace"),
        (changed(templates={"a": ["{finding}", ""]}), "list of non-empty texts"),
        (changed(templates={"a": []}), "template 'a': the list is empty"),
        (changed(templates={"a": {"negative": "no {finding}"}}), "template 'a': no positive text"),
        (changed(templates={"a": {"positive": "{finding}", "other": "x"}}), "template 'a': unknown key 'other'"),
        (changed(synonyms={"Nodule": []}), "synonyms of 'Nodule': the list is empty"),
        (changed(synonyms={"Nodule": ["x", "x"]}), "synonyms of 'Nodule': 'x' is listed twice"),
        (changed(synonyms={"Nodule": ["x", "x  "]}), "two synonyms of 'Nodule' give the same text"),
        (changed(synonyms={"Nodule": ["f\u00e9", "fe\u0301"]}), "two synonyms of 'Nodule' give the same text"),
        (changed(synonyms={"Nodule": ["x", "{Finding} y"]}), "synonyms of 'Nodule': '{Finding} y' has a brace"),
        (changed(templates={"a": "{finding}", "A": "the {finding}"}), "or two sets have it, perhaps in other case"),
        (changed(synonyms={"Nodul": ["x"]}), "synonyms: 'Nodul' is not a finding: did you mean 'Nodule'"),
        (changed(findings="chestxdet"), "chestxdet10"),
        (changed(findings="coco"), "The findings of 'coco' are in its files"),
        (changed(findings=["Nodule", "Nodule"], synonyms={"Nodule": ["x"]}), "findings: 'Nodule' is listed twice"),
        (changed(findings=[]), "findings: expected a list of names"),
        (changed(synonyms={"Nodule": ["x", "X"]}, templates={"a": "{Finding}"}), "two synonyms of 'Nodule' give"),
        (changed(templates={"a": "{finding}", "b": ["{finding}"]}), "the templates 'a' and 'b' give the same texts"),
        ('{"templates": {"a": "{finding}", "a": "no"}}', "is not valid JSON"),
        (changed(templates={"a" * 62: "{finding}"}), "is longer than 64 characters"),
    ],
)
def test_a_mistake_is_a_sentence_with_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, words: str
) -> None:
    assert command(tmp_path, content) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert words in said and said.count("Error") <= 1 and not (tmp_path / "out.yaml").exists()


def test_templates_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, CONTENT, "--out", tmp_path / "templates.json") == 2
    assert "is the file of templates" in capsys.readouterr().err
