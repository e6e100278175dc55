"""Tokenizers of any kind from a model's own folder: ids, cuts and padding against transformers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.errors import ConfigError, MissingExtraError
from xbench_fast.engines.tokenizing import BackendTokenizer, bundle_tokenizer, stored_files
from xbench_fast.export import pipeline
from xbench_fast.export.adapter import TokenizerSpec
from xbench_fast.export.parity.probes import PROBE_TEXTS
from xbench_fast.export.tokenizing.folder_tokenizer import FolderTokenizer
from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer, tokenizer_beside

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

TEXTS = [
    "",
    "Pneumonia",
    "left-sided pleural effusion, with atelectasis; it's the patient's 2nd image (AP)!",
    "  many   spaces\tand\nlines ",
    "Café naïve ÜBUNG 胸部 🫁 zero\u200bwidth",
    "<s> a [SEP] and </s> <pad> written out",
    *PROBE_TEXTS,
]
BYTES = tokenizers.pre_tokenizers.ByteLevel
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def trained(model: Any, trainer: Any, before: Any, normalizer: Any = None) -> Any:
    words = tokenizers.Tokenizer(model)
    words.pre_tokenizer = before
    if normalizer is not None:
        words.normalizer = normalizer
    words.train_from_iterator([*PROBE_TEXTS, "Pneumonia in the left lung, AP view"] * 3, trainer)
    return words


def framed(words: Any, first: str, last: str) -> Any:
    ids = [(token, words.token_to_id(token)) for token in (first, last)]
    words.post_processor = tokenizers.processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=ids)
    return words


def byte_pairs() -> Any:
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=BYTES.alphabet(), show_progress=False
    )
    return trained(tokenizers.models.BPE(), trainer, BYTES(add_prefix_space=False))


def pieces() -> Any:
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=150, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    before = tokenizers.pre_tokenizers.Metaspace()
    return trained(tokenizers.models.Unigram(), trainer, before, tokenizers.normalizers.NFKC())


def word_pieces() -> Any:
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=200, special_tokens=marks, show_progress=False)
    model = tokenizers.models.WordPiece(unk_token="[UNK]")
    rules = tokenizers.normalizers.BertNormalizer(lowercase=False)
    words = trained(model, trainer, tokenizers.pre_tokenizers.BertPreTokenizer(), rules)
    return framed(words, "[CLS]", "[SEP]")


def whole_words() -> Any:
    trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False)
    model = tokenizers.models.WordLevel(unk_token="<unk>")
    return framed(trained(model, trainer, tokenizers.pre_tokenizers.Whitespace()), "<s>", "</s>")


def truncated(words: Any) -> Any:
    words.enable_truncation(9)
    words.enable_padding(length=20, pad_id=1, pad_token="<pad>")
    return words


PLAIN = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
ADDED = {"__type": "AddedToken", "content": "<pad>", "lstrip": False, "rstrip": False, "normalized": False}
BERT = {f"{name.lower()}_token": f"[{name}]" for name in ("UNK", "SEP", "PAD", "CLS", "MASK")}
KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "byte pairs": (lambda: framed(byte_pairs(), "<s>", "</s>"), {**PLAIN, "tokenizer_class": "RobertaTokenizer"}),
    "byte pairs without a frame": (byte_pairs, {**PLAIN, "add_bos_token": True, "pad_token": ADDED}),
    "pieces": (lambda: framed(pieces(), "<s>", "</s>"), {**PLAIN, "model_max_length": 8}),
    "pieces cut on the left": (pieces, {**PLAIN, "truncation_side": "left", "model_max_length": 8}),
    "word pieces": (word_pieces, {**BERT, "tokenizer_class": "BertTokenizer", "do_lower_case": True}),
    "cased word pieces": (word_pieces, {**BERT, "tokenizer_class": "BertTokenizer", "do_lower_case": False}),
    "whole words": (whole_words, {**PLAIN, "model_max_length": 10**30}),
    "a new token": (whole_words, {**PLAIN, "extra_special_tokens": ["rib"], "sep_token": "<sep>"}),
    "a cut of its own": (lambda: truncated(whole_words()), {**PLAIN, "model_max_length": 9}),
}


def written(kind: str, folder: Path) -> Path:
    make, rules = KINDS[kind]
    folder.mkdir(parents=True)
    make().save(str(folder / "tokenizer.json"))
    generic = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**generic, **rules}))
    return folder


def oracle(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    """Every text alone, and together with the padding; cut where the files say, and at the model's own context."""
    folder = written(kind, tmp_path / "model")
    words = oracle(folder)
    own = min(words.model_max_length, 14)
    for context in (14, 5):
        found = FolderTokenizer(folder, context)
        cut = {"truncation": True, "max_length": min(own, context)}
        for text in TEXTS:
            assert found([text]).ids[0].tolist() == words(text, **cut)["input_ids"], text
        together = words(TEXTS, padding=True, padding_side="right", **cut)
        batch = found(TEXTS)
        assert batch.ids.tolist() == together["input_ids"] and batch.mask.tolist() == together["attention_mask"]
    assert found.vocabulary_size == 1 + max(words.get_vocab().values())


def older(kind: str, folder: Path) -> Path:
    """The same tokenizer as the files of older versions."""
    folder.mkdir(parents=True)
    words = KINDS[kind][0]()
    words.model.save(str(folder))
    if kind == "word pieces":
        (folder / "config.json").unlink(missing_ok=True)
    else:
        rules = {"tokenizer_class": "RobertaTokenizer", "model_max_length": 12}
        (folder / "tokenizer_config.json").write_text(json.dumps(rules))
    return folder


@pytest.mark.parametrize("kind", ["byte pairs", "word pieces"])
def test_older_files_are_converted(tmp_path: Path, kind: str) -> None:
    """vocab.json and merges.txt by the class that a configuration names; vocab.txt alone is BERT's."""
    folder = older(kind, tmp_path / "model")
    words = transformers.BertTokenizer(str(folder / "vocab.txt")) if kind == "word pieces" else oracle(folder)
    found = FolderTokenizer(folder, 14)
    assert found.record["source"] == "model"
    for text in TEXTS:
        cut = {"truncation": True, "max_length": 14 if kind == "word pieces" else 12}
        assert found([text]).ids[0].tolist() == words(text, **cut)["input_ids"], text
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".json" and "tokenizer." in path.name) == []


def sentencepiece(path: Path, pieces: list[tuple[str, int]]) -> None:
    """A SentencePiece model of the kind Unigram; a piece has its type (1 normal, 2 unknown, 3 control)."""
    own = importlib.util.find_spec("sentencepiece") is not None  # a process can hold only one of the two
    name = "sentencepiece.sentencepiece_model_pb2" if own else "transformers.utils.sentencepiece_model_pb2_new"
    module = pytest.importorskip(name)
    model = module.ModelProto()
    for number, (piece, kind) in enumerate(pieces):
        model.pieces.add(piece=piece, score=-float(number), type=kind)
    model.trainer_spec.model_type = 1
    model.trainer_spec.unk_id = [piece for piece, _ in pieces].index("<unk>")
    path.write_bytes(model.SerializeToString())


def test_a_sentencepiece_model_is_converted_or_one_sentence(tmp_path: Path) -> None:
    """It needs the package sentencepiece, and the class in a configuration."""
    marks = [("<pad>", 3), ("</s>", 3), ("<unk>", 2)]
    letters = [(letter, 1) for letter in "\u2581abcdefghijklmnopqrstuvwxyz"]
    sentencepiece(tmp_path / "spiece.model", [*marks, ("\u2581lung", 1), ("\u2581mass", 1), *letters])
    if importlib.util.find_spec("sentencepiece") is None:
        with pytest.raises(MissingExtraError, match=r"its spiece\.model needs the package sentencepiece: pip install"):
            FolderTokenizer(tmp_path, 14)
        return
    with pytest.raises(ConfigError, match=r"cannot load the tokenizer in .*tokenizer_config\.json"):
        FolderTokenizer(tmp_path, 14)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "extra_ids": 0}')
    found = FolderTokenizer(tmp_path, 14)
    assert found(["lung mass"]).ids[0].tolist() == oracle(tmp_path)("lung mass")["input_ids"]


def model(**changes: Any) -> Any:
    spec = TokenizerSpec("tokenizer.json", ("nobody/nothing",))
    facts = {"name": "mine", "weights": "own", "context": 14, "vocabulary_size": 400, "tokenizer": spec, "findings": ()}
    return SimpleNamespace(**{**facts, **changes})


def bundle(tokenizer: BackendTokenizer, folder: Path) -> Any:
    files = stored_files(tokenizer)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest = SimpleNamespace(text={"tokenizer": tokenizer.record, "context": 14}, files=files)
    return SimpleNamespace(path=folder, manifest=manifest)


@pytest.mark.parametrize("kind", ["byte pairs", "pieces cut on the left", "whole words"])
def test_the_runtime_gives_the_same_ids_without_transformers(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(kind, tmp_path / "model")
    wanted = FolderTokenizer(folder, 14)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    found = bundle_tokenizer(bundle(wanted, tmp_path / "bundle"))
    assert np.array_equal(found(TEXTS).ids, wanted(TEXTS).ids) and np.array_equal(found(TEXTS).mask, wanted(TEXTS).mask)
    assert found(["", "lung lung"]).ids[0, -1] == 1, "padding is the tokenizer's own"
    alone = FolderTokenizer(folder, 14)
    assert np.array_equal(alone(TEXTS).ids, wanted(TEXTS).ids), "tokenizer.json needs no transformers"
    with pytest.raises(MissingExtraError, match="needs transformers"):
        FolderTokenizer(older(kind, tmp_path / "old") if kind == "byte pairs" else _one(tmp_path), 14)


def _one(folder: Path) -> Path:
    (folder / "one").mkdir()
    (folder / "one" / "spiece.model").write_bytes(b"x")
    return folder / "one"


def test_an_adapter_asks_for_any_kind(tmp_path: Path) -> None:
    """From --tokenizer; a vocabulary that the table does not hold, and one that may be another model's, are refused."""
    folder = written("byte pairs", tmp_path / "model")
    size = FolderTokenizer(folder, 14).vocabulary_size
    assert select_tokenizer(model(vocabulary_size=size), folder).record["kind"] == "tokenizer.json"
    with pytest.raises(
        ConfigError, match=rf"has {size} pieces, the table of mine has {size - 1}: it belongs to another"
    ):
        select_tokenizer(model(vocabulary_size=size - 1), folder)
    with pytest.raises(ConfigError, match=r"may belong to another model; .*TokenizerSpec\.sample"):
        select_tokenizer(model(vocabulary_size=size + 8), folder)
    ids = tuple(FolderTokenizer(folder, 14)(["lung mass"]).ids[0].tolist())
    spec = TokenizerSpec("tokenizer.json", (), sample=("lung mass", ids))
    assert select_tokenizer(model(vocabulary_size=size + 8, tokenizer=spec), folder)
    with pytest.raises(ConfigError, match="turns 'lung mass' into"):
        select_tokenizer(model(tokenizer=spec), written("whole words", tmp_path / "other"))
    with pytest.raises(
        ConfigError, match=r"No vocabulary for mine: give --tokenizer DIR .*tokenizer\.json.*nobody/nothing"
    ):
        select_tokenizer(model())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("readme.txt", "", r"holds no tokenizer \(readme\.txt\); give --tokenizer a folder with tokenizer\.json"),
        ("tokenizer.json", "{", r"tokenizer\.json cannot be read"),
        ("tokenizer.json", '{"model": {"type": "Other"}}', r"tokenizer\.json cannot be read"),
        ("vocab.json", "{}", r"transformers cannot load the tokenizer in .*class"),
    ],
)
def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        FolderTokenizer(tmp_path, 14)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    with pytest.raises(ConfigError, match="There is no folder"):
        FolderTokenizer(tmp_path / "nothing", 14)


def test_rules_that_are_no_table(tmp_path: Path) -> None:
    folder = written("whole words", tmp_path / "model")
    for content, words in (("[]", "is not a table of rules"), ("{", "cannot be read")):
        (folder / "tokenizer_config.json").write_text(content)
        with pytest.raises(ConfigError, match=rf"tokenizer_config\.json {words}"):
            FolderTokenizer(folder, 14)


def test_the_tokenizer_beside_the_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that the model asks for, and not where --tokenizer or the checkpoint itself gives another."""
    folder = written("byte pairs", tmp_path / "model")
    own, pieces = model(), model(tokenizer=TokenizerSpec("wordpiece", (), vocabulary=("a",)))
    assert tokenizer_beside(own, folder) == folder and tokenizer_beside(pieces, folder) is None
    assert tokenizer_beside(own, folder / "tokenizer.json") == folder, "a file of weights in that folder"
    assert tokenizer_beside(own, tmp_path / "weights.pt") is None and tokenizer_beside(own, None) is None
    clip = model(tokenizer=TokenizerSpec("clip-bpe", ()))
    assert tokenizer_beside(clip, folder) is None
    found = []
    monkeypatch.setattr(pipeline, "require_packages", lambda: None)
    monkeypatch.setattr(
        pipeline, "export_adapter", lambda adapter, out, options, loading: found.append(options.tokenizer)
    )
    own.cautions, own.notes, own.variant, own.weights_source, own.resized = tuple, (), "1", "", ""
    monkeypatch.setattr(pipeline.ModelSource, "load", lambda self: own)
    for given in (None, tmp_path):
        options = pipeline.BundleOptions(tokenizer=given)
        pipeline.export_bundle(pipeline.ModelSource("mine", checkpoint=folder), tmp_path, options)
    assert found == [folder, tmp_path]
