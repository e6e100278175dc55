"""Token ids against the libraries the models were made with, and which vocabulary is taken from where."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.tokenizing import CleanedTokenizer, HashTokenizer, WordPieceTokenizer
from xbench_fast.engines.tokenizing.tokenizers import clean_web
from xbench_fast.export import stand_in_adapter
from xbench_fast.export.adapter import TokenizerSpec
from xbench_fast.export.prompts.builtin import builtin_sets
from xbench_fast.export.tokenizing.clip_tokenizer import ClipTokenizer
from xbench_fast.export.tokenizing.reference import PUBMED_BERT
from xbench_fast.export.tokenizing.select_tokenizer import find_wordpiece, select_tokenizer

pytest.importorskip("tokenizers")

TEXTS = [
    "",
    "Pneumonia",
    "pleural effusion",
    "COVID-19",
    "Nodule/Mass",
    "  many   spaces\tand\nlines ",
    "Café-au-lait naïve ÜBUNG",
    "x-ray (AP), 50 %; it's the patient's 2nd film!",
    "胸部X光片 shows nothing",
    "an [UNK] and a [SEP] in the text",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 150,
    "zero\u200bwidth and control\x07 characters",
    "emoji 🫁 lungs",
]
WORDS = [text for text in TEXTS if "[" not in text and "胸" not in text]


@pytest.fixture(scope="module")
def pubmedbert(shared: Path) -> Path:
    return shared / "data" / "tokenizers" / "pubmedbert"


@pytest.fixture(scope="module")
def tokenizer(pubmedbert: Path) -> WordPieceTokenizer:
    """With the special tokens known in texts, as transformers has them."""
    found = find_wordpiece(pubmedbert, [], 256, special_words=True)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def toy(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the toy vocabulary of the KAD, MedKLIP and MAVL goldens."""
    pieces = json.loads((shared / "parity" / "kmm_tokenizers.json").read_text())["vocab"]
    folder = tmp_path_factory.mktemp("toy")
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def oracle(pubmedbert: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.BertTokenizer.from_pretrained(str(pubmedbert), local_files_only=True)


def all_prompts() -> list[str]:
    sets = [entries for style in ("kad", "clip") for entries in builtin_sets(style).values()]
    return sorted({text for entries in sets for entry in entries for text in entry.positive + entry.negative})


def test_ids_are_those_of_transformers(tokenizer: WordPieceTokenizer, oracle: Any) -> None:
    for text in TEXTS + all_prompts():
        assert tokenizer([text]).ids[0].tolist() == oracle(text)["input_ids"], text


@settings(max_examples=200)
@given(text=st.text(max_size=40))
def test_any_text_gives_the_ids_of_transformers(tokenizer: WordPieceTokenizer, oracle: Any, text: str) -> None:
    assert tokenizer([text]).ids[0].tolist() == oracle(text)["input_ids"]


def naive_wordpiece(text: str, vocabulary: dict[str, int]) -> list[int]:
    """BERT's rules written out: lower-case, no accents or control characters, split at punctuation, longest piece."""
    text = "".join(c for c in text if c in "\t\n\r" or not unicodedata.category(c).startswith("C"))
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    ascii_marks = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    spaced = "".join(f" {c} " if c in ascii_marks or unicodedata.category(c).startswith("P") else c for c in text)
    ids = [vocabulary["[CLS]"]]
    for word in spaced.split():
        pieces, start = [], 0
        while start < len(word) and len(word) <= 100:
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocabulary:
                    pieces.append(vocabulary[piece])
                    start = end
                    break
            else:
                break
        ids += pieces if start == len(word) else [vocabulary["[UNK]"]]
    return [*ids, vocabulary["[SEP]"]]


def test_ids_are_those_of_the_rules_written_out(tokenizer: WordPieceTokenizer, pubmedbert: Path) -> None:
    lines = (pubmedbert / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {piece: number for number, piece in enumerate(lines)}
    for text in WORDS + all_prompts():
        assert tokenizer([text]).ids[0].tolist() == naive_wordpiece(text, vocabulary), text


def test_the_casing_rule_is_the_models_not_the_files(shared: Path) -> None:
    """Bio_ClinicalBERT's own files say cased; only its vocabulary is taken."""
    found = find_wordpiece(shared / "data" / "tokenizers" / "bio_clinicalbert", [], 256)
    assert found is not None
    assert np.array_equal(found(["Pneumonia"]).ids, found(["pneumonia"]).ids)


def test_both_file_kinds_hold_the_same_vocabulary(pubmedbert: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((pubmedbert / "tokenizer.json").read_bytes())
    lines, tree = find_wordpiece(pubmedbert, [], 256), find_wordpiece(tmp_path, [], 256)
    assert lines is not None and tree is not None
    assert lines.record["vocabulary_sha256"] == tree.record["vocabulary_sha256"]
    assert lines.record["vocabulary_size"] == 28895 and lines.ends == (2, 3)


def test_rows_are_padded_on_the_right_and_masked(tokenizer: WordPieceTokenizer) -> None:
    batch = tokenizer(["mass", "left pleural effusion with atelectasis", ""])
    lengths = batch.mask.sum(axis=1)
    assert batch.ids.dtype == batch.mask.dtype == np.int64 and batch.ids.shape == batch.mask.shape
    assert batch.ids.shape[1] == lengths.max() and lengths[2] == 2
    for ids, mask, length, text in zip(batch.ids, batch.mask, lengths, ["mass", None, ""], strict=True):
        assert mask.tolist() == [1] * length + [0] * (len(mask) - length)
        assert not ids[length:].any() and ids[length - 1] == 3
        if text is not None:
            assert ids[:length].tolist() == tokenizer([text]).ids[0].tolist()


def test_a_long_text_is_cut_at_the_context(pubmedbert: Path, oracle: Any) -> None:
    short = find_wordpiece(pubmedbert, [], 8)
    assert short is not None
    text = "a long description of a chest radiograph that goes on and on"
    wanted = oracle(text, truncation=True, max_length=8)["input_ids"]
    assert short([text]).ids[0].tolist() == wanted and len(wanted) == 8


@pytest.mark.parametrize("variant", ["clip_vit_b_32", "clip_vit_b_16"])
def test_clip_ids_are_the_official_ones(shared: Path, variant: str) -> None:
    pytest.importorskip("open_clip")
    manifest = json.loads((shared / "parity" / f"{variant}.json").read_text())
    clip = CleanedTokenizer(ClipTokenizer(77), "clip")
    examples: dict[str, list[int]] = manifest["tokenizer_examples"]
    assert len(examples) > 5
    for text, ids in examples.items():
        assert clip([text]).ids[0].tolist() == ids, text
    golden = np.load(shared / "parity" / f"{variant}.npz")["tokens"]
    batch = clip(manifest["prompts"])
    width = batch.ids.shape[1]
    assert np.array_equal(batch.ids, golden[:, :width]) and not golden[:, width:].any()
    assert batch.mask_for(("input_ids",)) is None


def test_a_long_clip_text_keeps_its_end_token() -> None:
    open_clip = pytest.importorskip("open_clip")
    text = "pneumonia " * 90
    ids = CleanedTokenizer(ClipTokenizer(77), "clip")([text, "x"]).ids
    assert ids.shape == (2, 77) and ids[0, -1] == 49407
    assert np.array_equal(ids, open_clip.tokenize([text, "x"]).numpy())


@settings(max_examples=200)
@given(text=st.text(st.characters(max_codepoint=0x24F, exclude_categories=["Cs", "Cn"]), max_size=40))
def test_any_text_gives_the_clip_ids_of_open_clip(clip_words: CleanedTokenizer, text: str) -> None:
    """Of characters that Python's tables know: what a new letter is depends on a library's Unicode version."""
    open_clip = pytest.importorskip("open_clip")
    assume(all(unicodedata.category(c) != "Cn" for c in clean_web(text)))
    ids = clip_words([text]).ids[0]
    wanted = open_clip.tokenize([text])[0].numpy()
    assert np.array_equal(ids, wanted[: len(ids)]) and not wanted[len(ids) :].any()


@pytest.fixture(scope="module")
def clip_words() -> CleanedTokenizer:
    pytest.importorskip("open_clip")
    return CleanedTokenizer(ClipTokenizer(77), "clip")


RULES = {
    "kad": ("kad", {"ends": (2, 3)}),
    "medklip_mavl": ("clinical_bert", {"separator": False, "special_words": True, "ends": (101, 102)}),
}


@pytest.mark.parametrize("case", RULES)
def test_ids_are_those_of_the_authors_tokenizers(shared: Path, toy: Path, case: str) -> None:
    """Every case of the toy vocabulary: with and without [SEP], a [SEP] written out, cut at the context, empty."""
    for example in json.loads((shared / "parity" / "kmm_tokenizers.json").read_text())["cases"][case]:
        rules = {key: value for key, value in RULES[case][1].items() if key != "ends"}
        words = find_wordpiece(toy, [], example["length"], **rules)
        assert words is not None
        batch = words([example["text"]])
        assert batch.ids[0].tolist() == example["input_ids"], example["text"]
        assert batch.mask[0].tolist() == [1] * example["attention_mask"]


@pytest.mark.parametrize("case", RULES)
def test_the_models_state_these_rules(case: str) -> None:
    """What the case was made with is what the adapters of its models say."""
    module = importlib.import_module(f"xbench_fast.export.models.{RULES[case][0]}")
    spec = module.TOKENIZER if hasattr(module, "TOKENIZER") else stand_in_adapter("kad", "demo").tokenizer
    wanted = {"separator": True, "special_words": False, "lower_case": True, "cleaning": "", **RULES[case][1]}
    assert {key: getattr(spec, key) for key in wanted} == wanted


def test_the_chosen_tokenizer_has_the_models_rules(toy: Path) -> None:
    """CARZero's cleaning and its marks, BiomedCLIP's cleaning, the casing rule of a config (DeViDe)."""
    spec = TokenizerSpec("wordpiece", ("x/y",), cleaning="carzero", marks_continuations=True)
    batch = select_tokenizer(model(tokenizer=spec, vocabulary_size=121), toy)(["No pneumothorax.", "pneumonia"])
    assert batch.ids.tolist() == [[2, 95, 109, 64, 66, 118, 3], [2, 3, 0, 0, 0, 0, 0]]
    assert batch.mask.tolist() == [[1, 1, 1, 2, 2, 2, 1], [1, 1, 0, 0, 0, 0, 0]]
    spec = TokenizerSpec("wordpiece", ("x/y",), cleaning="open_clip")
    chosen = select_tokenizer(model(tokenizer=spec, vocabulary_size=121), toy)
    assert chosen(["lung &amp;amp; ( "]).ids[0].tolist() == [2, 89, 1, 9, 3]
    for lower, first in ((True, 109), (False, 112)):
        spec = TokenizerSpec("wordpiece", ("x/y",), lower_case=lower)
        chosen = select_tokenizer(model(tokenizer=spec, vocabulary_size=121), toy)
        assert chosen(["Pneumonia"]).ids[0, 1] == first


def test_the_stand_in_is_deterministic_and_keeps_to_its_table() -> None:
    words = HashTokenizer(64, 8)
    batch = words(["Lung mass", "lung MASS", "nodule", "one two three four five six seven eight nine"])
    assert np.array_equal(batch.ids[0], batch.ids[1])
    assert batch.ids[0, :4].tolist()[0::3] == [2, 3] and batch.mask[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert batch.ids.max() < 64 and batch.ids.shape == (4, 8) and batch.ids[3, -1] == 3
    assert (batch.ids[0, 1:3] >= 5).all()
    assert words.record["kind"] == "stand-in-hash"


def model(**changes: Any) -> Any:
    spec = TokenizerSpec("wordpiece", ("xmcmic/Med-KEBERT",), ends=(2, 3), sample=PUBMED_BERT)
    facts = {
        "name": "kad",
        "weights": "published",
        "context": 256,
        "vocabulary_size": 30522,
        "tokenizer": spec,
        "findings": (),
    }
    return SimpleNamespace(**{**facts, **changes})


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty-cache"))


def test_published_weights_need_the_real_vocabulary(no_cache: None) -> None:
    with pytest.raises(ConfigError, match=r"--tokenizer DIR.*xmcmic/Med-KEBERT"):
        select_tokenizer(model())


def test_stand_in_weights_may_go_without_and_say_so(no_cache: None) -> None:
    said: list[str] = []
    chosen = select_tokenizer(model(weights="stand-in"), None, said.append)
    assert isinstance(chosen, HashTokenizer) and "stand-in tokenizer" in said[0]


def test_a_vocabulary_larger_than_the_table_is_refused(pubmedbert: Path) -> None:
    for weights in ("published", "stand-in"):
        with pytest.raises(ConfigError, match=r"28895.*28894.*another model"):
            select_tokenizer(model(weights=weights, vocabulary_size=28894), pubmedbert)


@pytest.mark.parametrize("other", ["bert_base_uncased", "bio_clinicalbert"])
def test_a_vocabulary_that_fits_the_table_but_is_anothers_is_refused(shared: Path, other: str) -> None:
    with pytest.raises(ConfigError, match=r"\(101, 102\).*\(2, 3\).*another model"):
        select_tokenizer(model(), shared / "data" / "tokenizers" / other)


def test_the_right_vocabulary_is_taken(pubmedbert: Path) -> None:
    assert select_tokenizer(model(), pubmedbert).record["source"] == "pubmedbert"


def test_other_ids_for_the_sample_are_another_models(pubmedbert: Path, tmp_path: Path) -> None:
    """A vocabulary of the same size and special tokens: only the ids of a text tell it apart."""
    pieces = (pubmedbert / "vocab.txt").read_text().splitlines()
    one, other = pieces.index("effusion"), pieces.index("pneumothorax")
    pieces[one], pieces[other] = pieces[other], pieces[one]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    with pytest.raises(ConfigError, match=r"turns 'Atelectasis and pleural effusion' into \[2, .*\[2, .*another model"):
        select_tokenizer(model(), tmp_path)
    assert select_tokenizer(model(context=4), tmp_path), "a sample longer than the context says nothing"


def test_without_a_sample_there_is_a_piece_for_each_row_of_the_table(pubmedbert: Path) -> None:
    """RadBERT's table has 50265 rows; its tokenizer is no WordPiece, and a folder of one must not pass for it."""
    spec = TokenizerSpec("wordpiece", ("zzxslp/RadBERT-RoBERTa-4m",))
    with pytest.raises(ConfigError, match=r"28895 pieces, .* 50265 rows.*TokenizerSpec\.sample"):
        select_tokenizer(model(name="radbert", vocabulary_size=50265, tokenizer=spec), pubmedbert)
    assert select_tokenizer(model(vocabulary_size=28895, tokenizer=spec), pubmedbert)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unknown kind of tokenizer 'clip_bpe': did you mean 'clip-bpe'"):
        TokenizerSpec("clip_bpe", ())  # type: ignore[arg-type]


def test_two_files_of_one_folder_are_of_one_kind(pubmedbert: Path, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes((pubmedbert / "vocab.txt").read_bytes())
    assert select_tokenizer(model(), tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}, "merges": []}}')
    with pytest.raises(ConfigError, match="is a BPE tokenizer, not WordPiece"):
        select_tokenizer(model(), tmp_path)


def test_a_checkpoint_may_carry_its_vocabulary() -> None:
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "mass", "nod", "##ule")
    demo = model(weights="demo", vocabulary_size=7, tokenizer=TokenizerSpec("wordpiece", (), vocabulary=pieces))
    chosen = select_tokenizer(demo)
    assert chosen(["Nodule mass x"]).ids[0].tolist() == [2, 5, 6, 4, 1, 3]
    with pytest.raises(ConfigError, match="another model"):
        select_tokenizer(model(vocabulary_size=6, tokenizer=TokenizerSpec("wordpiece", (), vocabulary=pieces)))


def test_clip_takes_no_folder(tmp_path: Path) -> None:
    pytest.importorskip("open_clip")
    clip = model(name="clip", context=77, vocabulary_size=49408, tokenizer=TokenizerSpec("clip-bpe", ("open_clip",)))
    assert isinstance(select_tokenizer(clip), ClipTokenizer)
    with pytest.raises(ConfigError, match="bundled with open_clip"):
        select_tokenizer(clip, tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("other.txt", "", "neither vocab.txt nor tokenizer.json"),
        ("vocab.txt", "a\nb\n", r"has no \[PAD\]"),
        ("vocab.txt", "a\na\n", "repeats a piece"),
        ("tokenizer.json", "{", "cannot be read"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}}}', "BPE tokenizer, not WordPiece"),
        ("tokenizer.json", '{"model": {"vocab": {"a": 0}, "merges": []}}', "BPE tokenizer, not WordPiece"),
        ("tokenizer.json", '{"model": {"vocab": ["a"]}}', "cannot be read"),
    ],
)
def test_a_folder_without_a_vocabulary_is_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=words):
        find_wordpiece(tmp_path, [], 256)


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME"])
def test_the_local_cache_is_read_and_the_network_is_not(pubmedbert: Path, tmp_path: Path, variable: str) -> None:
    pytest.importorskip("huggingface_hub")
    hub = tmp_path if variable == "HF_HUB_CACHE" else tmp_path / "hub"
    repository = hub / "models--xmcmic--Med-KEBERT"
    snapshot = repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(snapshot.name)
    (snapshot / "vocab.txt").write_bytes((pubmedbert / "vocab.txt").read_bytes())
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise SystemExit('the network was used')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from xbench_fast.export.tokenizing.select_tokenizer import find_wordpiece\n"
        "found = find_wordpiece(None, ['nobody/absent', 'xmcmic/Med-KEBERT'], 256)\n"
        "print(found.record['source'], found.vocabulary_size)\n"
        "print(find_wordpiece(None, ['nobody/absent'], 256))\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**environment, variable: str(tmp_path)}
    )
    assert done.stdout.split() == ["xmcmic/Med-KEBERT", "28895", "None"], done.stderr
