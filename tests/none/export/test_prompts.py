"""Prompt sets: the built-in table against the shared list of prompts, files of the user, and the encoding of a set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.prompts.prompt_encoding import encode_sets, name_sets
from xbench_fast.engines.prompts.prompt_files import FindingPrompts, read_prompt_file
from xbench_fast.engines.tokenizing import TokenBatch
from xbench_fast.export.prompts.builtin import builtin_sets, known_sets, prompt_styles

SPEC_NAMES = {"chexdet10": "chestxdet10"}  # the list's short name of a dataset, where ours differs
COUNTS = {"rsna": 1, "siim": 1, "covid_rural": 1, "chestxdet10": 10, "chexlocalize": 13, "chestxray14": 8, "vindr": 21}


@pytest.fixture(scope="module")
def spec(shared: Path) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    findings: list[dict[str, Any]] = yaml.safe_load((shared / "spec" / "prompts.yaml").read_text())["findings"]
    return findings


@pytest.mark.parametrize(
    "style", ["afloc", "kad", "clip", "biomedclip", "carzero", "chexzero", "devide", "medklip", "mavl", "biovil"]
)
def test_sets_have_the_datasets_findings(style: str) -> None:
    sets = builtin_sets(style)
    assert {name: len(entries) for name, entries in sets.items()} == COUNTS
    assert len({entry.finding for entries in sets.values() for entry in entries}) == 36
    for entries in sets.values():
        assert len({entry.finding for entry in entries}) == len(entries)
        assert all(entry.positive and entry.status for entry in entries)


def test_a_supervised_model_is_asked_what_it_knows() -> None:
    """Names that torchxrayvision itself equates are official; a finding of which it lacks a text is left out."""
    sets = builtin_sets("xrv")
    words = {entry.finding: entry for entries in sets.values() for entry in entries}
    other = {name: (entry.positive, entry.status) for name, entry in words.items() if entry.positive != (name,)}
    assert len(words) == 23 and other == {
        "Airspace Opacity": (("Lung Opacity",), "official"),
        "Infiltrate": (("Infiltration",), "official"),
        "Nodule/Mass": (("Nodule", "Mass"), "adapted"),
        "Pleural Effusion": (("Effusion",), "official"),
        "Pleural effusion": (("Effusion",), "official"),
        "Pleural thickening": (("Pleural_Thickening",), "official"),
        "Pulmonary fibrosis": (("Fibrosis",), "adapted"),
    }
    known = known_sets(sets, ("Nodule", "Pneumothorax"))
    assert set(known) == {"siim", "chestxdet10", "chexlocalize", "chestxray14", "vindr", "findings"}
    assert [entry.finding for entry in known["vindr"]] == ["Pneumothorax"], "Nodule/Mass needs both"
    assert [entry.positive for entry in known["findings"]] == [("Nodule",), ("Pneumothorax",)]


def test_texts_of_a_supervised_model_are_names_of_its_findings() -> None:
    entries = (FindingPrompts("Fluid", ("Effusion",)), FindingPrompts("Both", ("Mass", "Nodule"), ("Effusion",)))
    (found,) = name_sets(("Nodule", "Effusion", "Mass"), {"own": entries})
    np.testing.assert_array_equal(found.features, np.eye(3, dtype=np.float32)[[1, 2, 0, 1]])
    assert found.features.dtype == np.float32 and found.polarity.tolist() == [1, 1, 1, -1]
    with pytest.raises(ConfigError, match=r"'effusion' is none of its findings: did you mean 'Effusion'\? known are"):
        name_sets(("Nodule", "Effusion"), {"own": (FindingPrompts("Fluid", ("effusion",)),)})


@pytest.mark.parametrize("style", ["kad", "clip", "biomedclip", "carzero", "devide"])
def test_every_string_is_the_lists(style: str, spec: list[dict[str, Any]]) -> None:
    sets = builtin_sets(style)
    seen = 0
    for finding in spec:
        entry = finding[style]
        for dataset in finding["datasets"]:
            name = SPEC_NAMES.get(dataset, dataset)
            if (style, name) == ("kad", "chestxdet10"):
                continue  # KAD has official names for this one, see below
            (found,) = [prompts for prompts in sets[name] if prompts.finding == finding["label"]]
            assert list(found.positive) == entry.get("text", entry.get("positive"))
            assert list(found.negative) == entry.get("negative", [])
            assert found.status == entry["status"]
            seen += 1
    assert seen == (45 if style == "kad" else 55)


def test_kad_asks_chestxdet10_with_the_official_names_in_order(shared: Path) -> None:
    official = json.loads((shared / "parity" / "prompts" / "kad_classes.json").read_text())["chestxdet10_grounding"]
    entries = builtin_sets("kad")["chestxdet10"]
    assert [entry.positive for entry in entries] == [(name,) for name in official]
    assert {entry.status for entry in entries} == {"official"}
    assert [entry.finding for entry in entries] == official


def test_only_clip_like_styles_have_negative_prompts() -> None:
    assert not any(entry.negative for entries in builtin_sets("kad").values() for entry in entries)
    assert all(entry.negative for entries in builtin_sets("clip").values() for entry in entries)


NOTEBOOK = (
    "Atelectasis, Cardiomegaly, Consolidation, Edema, Enlarged Cardiomediastinum, Fracture, Lung Lesion, Lung Opacity, "
    "Pleural Effusion, Pleural Other, Pneumonia, Pneumothorax, Support Devices"
)


def test_biovil_asks_as_its_authors_do_about_pneumonia_and_in_their_sentences_about_others() -> None:
    sets = builtin_sets("biovil")
    (pneumonia,) = sets["rsna"]
    assert (len(pneumonia.positive), len(pneumonia.negative), pneumonia.status) == (4, 4, "official")
    assert "This opacity can represent pneumonia" in pneumonia.positive
    assert "No evidence of acute pneumonia" in pneumonia.negative
    (entry,) = [entry for entry in sets["vindr"] if entry.finding == "Enlarged PA"]
    noun = "enlarged pulmonary artery"
    assert entry.positive == (
        f"Findings consistent with {noun}", f"Findings suggesting {noun}", f"Findings are most compatible with {noun}",
    )  # fmt: skip
    assert entry.negative == (f"There is no {noun}", f"No evidence of {noun}", f"No signs of {noun}")
    assert {entry.status for entry in sets["vindr"]} == {"adapted"}


def test_chexzero_asks_for_a_name_and_for_no_name() -> None:
    entries = [entry for found in builtin_sets("chexzero").values() for entry in found]
    assert all(entry.negative == (f"no {entry.positive[0]}",) for entry in entries)
    official = {entry.positive[0] for entry in entries if entry.status == "official"}
    assert official == set(NOTEBOOK.split(", "))
    assert {entry.finding for entry in entries if entry.status == "official_text_nearest_key"} == {"Airspace Opacity"}


def test_sentences_without_a_licence_are_not_in_the_package(shared: Path, root: Path) -> None:
    """The MedKLIP and MAVL repositories carry no licence: their sentences stay out of this one."""
    tables = "".join(path.read_text().lower() for path in (root / "export" / "prompts").glob("*.json"))
    assert tables.count("support devices") > 3
    seen = 0
    for path in sorted((shared / "parity" / "prompts").glob("m[ae]*.json")):
        values = json.loads(path.read_text()).values()
        texts = [text for value in values for text in ([value] if isinstance(value, str) else value)]
        if path.name == "medklip_classes.json":
            continue
        for text in texts:
            words = text.lower().partition(": ")[2] or text.lower()
            if len(words) > 40:
                assert words[:40] not in tables, text
                seen += 1
    assert seen > 700


def test_an_unknown_style_names_the_known_ones() -> None:
    styles = ["afloc", "biomedclip", "biovil", "carzero", "chexzero", "clip", "devide", "kad", "mavl", "medklip", "xrv"]
    with pytest.raises(ConfigError, match=", ".join(styles)):
        builtin_sets("chexzro")
    assert prompt_styles() == styles


WANTED = {
    "mine": (
        FindingPrompts("Effusion", ("fluid", "pleural effusion"), ("no fluid",)),
        FindingPrompts("Mass", ("mass",)),
    )
}
AS_DATA = {
    "mine": {"Effusion": {"positive": ["fluid", "pleural effusion"], "negative": ["no fluid"]}, "Mass": ["mass"]}
}


def test_a_json_file_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(AS_DATA))
    assert read_prompt_file(path) == WANTED
    assert [entry.status for entry in read_prompt_file(path)["mine"]] == ["user", "user"]


def test_a_yaml_file_is_read_in_order(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "prompts.yaml"
    path.write_text(
        "mine:\n  Effusion:\n    positive: [fluid, pleural effusion]\n    negative: [no fluid]\n  Mass: [mass]\n"
    )
    assert read_prompt_file(path) == WANTED


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a non-empty mapping"),
        ("{}", "expected a non-empty mapping"),
        ('{"a b": {"x": ["y"]}}', "set name 'a b'"),
        ('{"../up": {"x": ["y"]}}', "set name '../up'"),
        ('{"set": []}', "set 'set'"),
        ('{"set": {"x": "text"}}', "finding 'x': the positive prompts must be a list"),
        ('{"set": {"x": []}}', "finding 'x': no positive text"),
        ('{"set": {"x": [""]}}', "list of non-empty texts"),
        ('{"set": {"x": [3]}}', "list of non-empty texts"),
        ('{"set": {"x": {"negative": ["n"]}}}', "the positive prompts must be a list"),
        ('{"set": {"x": {"positive": ["p"], "neutral": ["n"]}}}', "unknown key 'neutral'"),
        ('{"set": {"": ["p"]}}', "not a name"),
        ('{"set": {"x": ["p"], "x": ["q"]}}', "'x' appears twice"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_prompt_file(path)
    assert words in str(caught.value) and "wrong.json" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not valid YAML"),
        ("s:\n  ? [x]\n  : [p]\n", "a key is a list"),
        ("s:\n  x: [p]\n  x: [q]\n", "'x' appears twice"),
        ("s: !!python/name:os.system x\n", "YAML"),
    ],
)
def test_a_wrong_yaml_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "wrong.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_prompt_file(path)
    assert words in str(caught.value) and "wrong.yaml" in str(caught.value)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompt_file(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompt_file(tmp_path / "binary.json")


class CountingTokenizer:
    """Text -> its length and first character code."""

    def __init__(self) -> None:
        self.record: dict[str, Any] = {}
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        self.asked += texts
        ids = np.array([[len(text), ord(text[0])] for text in texts], np.int64)
        return TokenBatch(ids, np.ones_like(ids))


class EchoEncoder:
    """The ids as features; remembers whether a mask came."""

    def __init__(self, *inputs: str) -> None:
        self.inputs = ["input_ids", *inputs]
        self.masks: list[bool] = []

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        self.masks.append(mask is not None)
        return ids.astype(np.float32)


@pytest.mark.parametrize("masked", [True, False])
def test_a_set_keeps_order_polarity_and_its_own_features(masked: bool) -> None:
    many = tuple(FindingPrompts(f"f{i}", (f"{chr(65 + i % 26)}" * (i + 1),), status="own") for i in range(40))
    sets = {"mine": WANTED["mine"], "many": many, "again": (FindingPrompts("Mass", ("mass",)),)}
    tokenizer, encoder = CountingTokenizer(), EchoEncoder(*(["attention_mask"] if masked else []))
    mine, long, again = encode_sets(sets, tokenizer, encoder)  # type: ignore[arg-type]
    assert mine.texts == ("fluid", "pleural effusion", "no fluid", "mass")
    assert mine.findings == ("Effusion", "Mass") and mine.status == ("user", "user")
    assert mine.finding_of.tolist() == [0, 0, 0, 1] and mine.finding_of.dtype == np.int32
    assert mine.polarity.tolist() == [1, 1, -1, 1] and mine.polarity.dtype == np.int8
    for found in (mine, long, again):
        assert found.features.dtype == np.float32
        assert found.features.tolist() == [[len(text), ord(text[0])] for text in found.texts]
    assert long.status == ("own",) * 40
    assert len(tokenizer.asked) == len(set(tokenizer.asked)), "a text that several sets share is encoded once"
    assert set(encoder.masks) == {masked}


def test_a_query_of_several_texts_has_the_features_of_each() -> None:
    query = "\n".join(["a", "bb", "ccc"])
    sets = {"mine": (FindingPrompts("Mass", (query, "dddd")), FindingPrompts("Nodule", ("bb",)))}
    tokenizer = CountingTokenizer()
    (found,) = encode_sets(sets, tokenizer, EchoEncoder(), 3)  # type: ignore[arg-type]
    assert found.texts == (query, "dddd", "bb") and found.finding_of.tolist() == [0, 0, 1]
    assert found.features.shape == (3, 3, 2)
    assert found.features[:, :, 0].tolist() == [[1, 2, 3], [4, 4, 4], [2, 2, 2]], "a single text serves for all"
    assert sorted(tokenizer.asked) == ["a", "bb", "ccc", "dddd"]


@pytest.mark.parametrize(("count", "query"), [(1, "a\nb"), (3, "a\nb"), (9, "a\nb\nc")])
def test_a_query_with_the_wrong_number_of_texts_is_refused(count: int, query: str) -> None:
    sets = {"mine": (FindingPrompts("Mass", (query,)),)}
    with pytest.raises(ConfigError, match=rf"'a' has \d texts, but this model takes {count} a query"):
        encode_sets(sets, CountingTokenizer(), EchoEncoder(), count)  # type: ignore[arg-type]


def test_a_file_may_ask_several_texts_in_one_query(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps({"mine": {"Mass": [["a lump", "border: sharp\nedge"], "mass"]}}))
    assert read_prompt_file(path)["mine"] == (FindingPrompts("Mass", ("a lump\nborder: sharp edge", "mass")),)
    path.write_text(json.dumps({"mine": {"Mass": [[]]}}))
    with pytest.raises(ConfigError, match="list of non-empty texts"):
        read_prompt_file(path)
