"""MedKLIP's and MAVL's sentences: the project's own, and the authors' read from the user's copy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.export.prompts.books import own_words_caution
from xbench_fast.export.prompts.builtin import builtin_sets, dataset_findings
from xbench_fast.export.prompts.from_files import read_prompts

ASPECTS = ["border", "fluid", "location", "opacity", "other", "patterns", "shape", "texture"]
GOLDEN = {
    "medklip": {"medklip_observation_explanation.json": "Sample_Zero-Shot_Grounding_RSNA/observation explanation.json"},
    "mavl": {
        "mavl_observation_explanation.json": "Zero-shot_grounding/observation explanation.json",
        "mavl_gpt4_mimic.json": "Pretrain/concept_gen/gpt4_mimic.json",
        "mavl_gpt4_mimic_covidr.json": "Pretrain/concept_gen/gpt4_mimic_covidr.json",
    },
}
Sets = dict[str, tuple[FindingPrompts, ...]]


@pytest.fixture(scope="module")
def files(shared: Path) -> Path:
    return shared / "parity" / "prompts"


def checkout(files: Path, model: str, folder: Path) -> Path:
    """The files where the authors' repository has them."""
    for name, place in GOLDEN[model].items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(files / name, folder / place)
    return folder


def entry(sets: Sets, name: str, finding: str) -> FindingPrompts:
    (found,) = [item for item in sets[name] if item.finding == finding]
    return found


def test_own_words_are_one_description_and_eight_named_aspects() -> None:
    for medklip, mavl in zip(builtin_sets("medklip").values(), builtin_sets("mavl").values(), strict=True):
        for short, long in zip(medklip, mavl, strict=True):
            assert short.status == long.status == "own" and not short.negative and not long.negative
            for description, query in zip(short.positive, long.positive, strict=True):
                texts = query.split("\n")
                assert texts[0] == description and 5 < len(description.split()) < 40
                assert [text.split(": ")[0] for text in texts[1:]] == ASPECTS
                assert all(text.endswith(".") for text in texts)
    nodule, mass, both = (
        entry(builtin_sets("mavl"), name, finding).positive
        for name, finding in (("chestxdet10", "Nodule"), ("chestxdet10", "Mass"), ("vindr", "Nodule/Mass"))
    )
    assert both == nodule + mass


def test_medklips_book_is_whole_in_every_set(files: Path, tmp_path: Path) -> None:
    """75 sentences by position; at 20 the key is `eumonia`, the text is pneumonia's."""
    sentences = list(json.loads((files / "medklip_observation_explanation.json").read_text()).values())
    sets = read_prompts("medklip", [checkout(files, "medklip", tmp_path)])
    assert set(sets) == set(dataset_findings())
    for name, labels in dataset_findings().items():
        assert tuple(item.finding for item in sets[name][: len(labels)]) == labels
        official = [text for item in sets[name] if item.status != "own" for text in item.positive]
        assert sorted(official) == sorted(sentences), "each entry of the book once"
    assert entry(sets, "rsna", "Pneumonia") == FindingPrompts("Pneumonia", (sentences[20],), status="official")
    assert len(sets["rsna"]) == 75
    order = [text for item in sets["rsna"] for text in item.positive]
    assert order == [sentences[20], *sentences[:20], *sentences[21:]], "the rest in the order of the book"
    both = entry(sets, "vindr", "Nodule/Mass")
    assert both.positive == (sentences[38], sentences[54])
    assert entry(sets, "vindr", "ILD") == entry(builtin_sets("medklip"), "vindr", "ILD")
    assert entry(sets, "covid_rural", "COVID-19").status == "own", "MedKLIP's book has no such entry"


def test_mavls_book_has_nine_texts_a_query_and_covid_only_where_it_belongs(files: Path, tmp_path: Path) -> None:
    sentences = json.loads((files / "mavl_observation_explanation.json").read_text())
    aspects = json.loads((files / "mavl_gpt4_mimic.json").read_text())
    rural = json.loads((files / "mavl_gpt4_mimic_covidr.json").read_text())
    sets = read_prompts("mavl", [checkout(files, "mavl", tmp_path)])
    assert len(sets["rsna"]) == 75 and len(sets["siim"]) == 75 and len(sets["covid_rural"]) == 76
    for name, entries in sets.items():
        official = [text for item in entries if item.status != "own" for text in item.positive]
        words = rural if name == "covid_rural" else aspects
        keys = [key for key in sentences if key != "covid19" or name == "covid_rural"]
        assert sorted(official) == sorted("\n".join([sentences[key], *words[key]]) for key in keys)
        assert all(len(text.split("\n")) == 9 for text in official)
    assert rural["covid19"] != aspects["covid19"]
    assert entry(sets, "covid_rural", "COVID-19").positive == ("\n".join([sentences["covid19"], *rural["covid19"]]),)
    assert entry(sets, "vindr", "Mediastinal shift").status == "own", "its sentence is in the file of rare diseases"


def test_files_side_by_side_are_as_good_as_a_checkout(files: Path, tmp_path: Path) -> None:
    for model, names in GOLDEN.items():
        wanted = read_prompts(model, [checkout(files, model, tmp_path / model)])
        assert read_prompts(model, [files]) == wanted
        assert read_prompts(model, [files / name for name in names]) == wanted
    pair = ["mavl_observation_explanation.json", "mavl_gpt4_mimic.json"]
    without = read_prompts("mavl", [files / name for name in pair])
    assert len(without["covid_rural"]) == 76 and entry(without, "covid_rural", "COVID-19").status == "official"


def test_rare_findings_are_asked_but_do_not_join_the_book(files: Path, tmp_path: Path) -> None:
    root = checkout(files, "mavl", tmp_path)
    rare, aspects = {"cyst": "a sentence", "mass": "another mass"}, {"cyst": ["x: y"] * 8, "mass": ["x: z"] * 8}
    (root / "Zero-shot_classification").mkdir()
    (root / "Zero-shot_classification" / "observation explanation_padchest_rare.json").write_text(json.dumps(rare))
    (root / "Pretrain" / "concept_gen" / "gpt4_mimic_padchest_rare.json").write_text(json.dumps(aspects))
    sets = read_prompts("mavl", [root])
    assert entry(sets, "vindr", "Lung cyst").positive == ("\n".join(["a sentence", *["x: y"] * 8]),)
    assert len(sets["rsna"]) == 75 and "another mass" not in str(sets)


@pytest.mark.parametrize(("model", "size"), [("medklip", "75 sentences"), ("mavl", "675 texts of 75 classes")])
def test_sets_without_the_authors_words_come_with_a_caution(files: Path, tmp_path: Path, model: str, size: str) -> None:
    told = own_words_caution(model, builtin_sets(model))
    assert all(name in told for name in dataset_findings()) and size in told and "--prompts" in told
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"rsna": {"Pneumonia": ["a lung infection"]}}))
    told = own_words_caution(model, {**builtin_sets(model), **read_prompts(model, [mine])})
    assert "siim" in told and "rsna" not in told, "what the user wrote is his"
    assert own_words_caution(model, read_prompts(model, [files])) == ""
    assert own_words_caution("kad", {"vindr": (FindingPrompts("ILD", ("x",), status="own"),)}) == ""


def test_own_sets_win_over_a_book(files: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"rsna": {"Pneumonia": ["a lung infection"]}, "more": {"Hernia": ["a hernia"]}}))
    sets = read_prompts("medklip", [mine, files])
    assert sets["rsna"] == (FindingPrompts("Pneumonia", ("a lung infection",)),)
    assert set(sets) == {*dataset_findings(), "more"} and len(sets["siim"]) == 75
    assert set(read_prompts("medklip", [mine])) == {"rsna", "more"}, "without a book only what was given"


@pytest.mark.parametrize(
    ("model", "names", "words"),
    [
        ("mavl", ["mavl_observation_explanation.json"], r"lack the aspects \(gpt4_mimic.json\)"),
        ("mavl", ["mavl_gpt4_mimic.json"], "lack the descriptions"),
        (
            "medklip",
            ["medklip_observation_explanation.json", "medklip_pretrain_observation_explanation.json"],
            "already read with other words",
        ),
        ("kad", ["medklip_observation_explanation.json"], "findings by name"),
        ("kad", ["."], "is a folder; kad takes"),
        ("medklip", ["../../parity/prompts/.."], "none of medklip's prompt files"),
    ],
)
def test_what_cannot_be_a_book_is_refused(files: Path, model: str, names: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_prompts(model, [files / name for name in names])


def test_a_damaged_list_of_aspects_is_refused(files: Path, tmp_path: Path) -> None:
    content = json.loads((files / "mavl_gpt4_mimic.json").read_text())
    content["mass"].pop()
    (tmp_path / "gpt4_mimic.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="'mass' has 7 aspects instead of 8"):
        read_prompts("mavl", [files / "mavl_observation_explanation.json", tmp_path / "gpt4_mimic.json"])
