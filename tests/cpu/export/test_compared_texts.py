"""Texts reach a model of a library as from the library's own tokenizer, or the export stops with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, MissingExtraError, XBenchError
from xbench_fast.engines.tokenizing import CleanedTokenizer, WordPieceTokenizer, bundle_tokenizer, stored_files
from xbench_fast.export.adapter import Adapter, TokenizerSpec
from xbench_fast.export.tokenizing.clip_tokenizer import ClipTokenizer
from xbench_fast.export.tokenizing.compared_texts import TEXTS, compare_texts
from xbench_fast.export.tokenizing.folder_tokenizer import FolderTokenizer
from xbench_fast.export.tokenizing.library_tokenizer import library_words
from xbench_fast.export.tokenizing.reference import (
    ReferenceTokenizer,
    bert_reference,
    clip_reference,
    open_clip_bert_reference,
)
from xbench_fast.export.tokenizing.select_tokenizer import read_vocabulary, select_tokenizer

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
open_clip = pytest.importorskip("open_clip")

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,-_0123456789"
SAID = ["Pleural Effusion", "a chest x-ray, showing PNEUMONIA; right_lower lobe!", "  CARDIOMEGALY ,  X-ray  ", "né"]


def word_pieces(folder: Path, **rules: Any) -> Path:
    """A tiny BERT tokenizer that tells capitals from small letters unless a rule says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Effusion", "effusion", "lobe", *LETTERS]
    (folder / "vocab.txt").write_text("\n".join([*pieces, *(f"##{letter}" for letter in LETTERS)]) + "\n")
    words = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False)
    words.save_pretrained(str(folder))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 512, **rules}))
    return folder


def siglip2(folder: Path, **rules: Any) -> Path:
    """A tiny tokenizer of SigLIP 2, whose tokenizer.json keeps capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    learn = tokenizers.trainers.BpeTrainer(
        vocab_size=160, special_tokens=special, initial_alphabet=[*LETTERS, "\u2581"], show_progress=False
    )
    made.train_from_iterator(["pleural\u2581effusion", "Pleural\u2581Effusion", "a\u2581chest\u2581x-ray"] * 9, learn)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    made.save(str(folder / "tokenizer.json"))
    plain = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "unk", "pad", "mask")}
    plain |= {"tokenizer_class": "Siglip2Tokenizer", "model_max_length": 64, "padding_side": "right"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**plain, **rules}))
    return folder


def of_open_clip(folder: Path, **text: Any) -> Any:
    """What the family makes of the texts of the configuration `text`, beside the tokenizer in `folder`, as an adapter.

    hf_tokenizer_name stands for any name: the files lie beside the configuration.
    """
    from xbench_fast.export.models.families.open_clip_texts import open_clip_texts

    text = {"context_length": 20, **text}
    folder.mkdir(exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": {"embed_dim": 4, "text_cfg": text}}))
    config = {"embed_dim": 4, "text_cfg": text}
    return adapter(*open_clip_texts(config, "tiny", None, folder), text["context_length"])


def of_transformers(folder: Path, positions: int = 64) -> Any:
    from xbench_fast.export.models.families.transformers import _texts

    return adapter(*_texts(folder, "tiny", "siglip", positions))


def adapter(spec: Any, padding: Any, context: int) -> Any:
    from xbench_fast.export.models.families.family import ModelFamily

    made = SimpleNamespace(
        name="tiny", tokenizer=spec, padding=padding, context=context, vocabulary_size=49408, weights="own", findings=()
    )
    made.encoder_ids = lambda batch: ModelFamily.encoder_ids(made, batch)
    return made


def given(model: Any, texts: list[str] = SAID) -> Any:
    return model.encoder_ids(select_tokenizer(model)(texts))


CLEANED = [{}, {"clean": "lower"}, {"clean": "whitespace"}, {"clean": "canonicalize"}, {"reduction_mask": ""}]
WAYS: list[dict[str, Any]] = [
    *CLEANED[:-1],
    {"padding_side": "left"},
    {"truncation_side": "left", "padding_side": "left"},
    {"do_lower_case": True},
    {"do_lower_case": True, "strip_accents": False, "clean": "lower"},
    {"strip_sep_token": True},
    {"strip_sep_token": True, "pad_token": "[SEP]"},
    {"model_max_length": 9},
    {"bos_token": "[MASK]"},
]


@pytest.mark.parametrize("options", CLEANED, ids=str)
def test_keys_of_clips_own_tokenizer(tmp_path: Path, options: dict[str, Any]) -> None:
    model = of_open_clip(tmp_path, tokenizer_kwargs=options)
    assert given(model) == open_clip.get_tokenizer(f"local-dir:{tmp_path}")(SAID).tolist()


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_keys_of_a_named_tokenizer(tmp_path: Path, options: dict[str, Any]) -> None:
    word_pieces(tmp_path, model_max_length=11)
    model = of_open_clip(tmp_path, hf_tokenizer_name="some/where", tokenizer_kwargs=options)
    long = [*SAID, "lobe effusion " * 20]
    assert given(model, long) == open_clip.get_tokenizer(f"local-dir:{tmp_path}")(long).tolist()


def test_the_mode_of_clips(tmp_path: Path) -> None:
    """The class token stands last, behind the padding, however long the text is."""
    word_pieces(tmp_path, bos_token="a", eos_token="b", truncation_side="left", padding_side="left")
    model = of_open_clip(tmp_path, hf_tokenizer_name="x", tokenizer_mode="clips", tokenizer_kwargs={"clean": "lower"})
    texts = [*SAID, "lobe effusion " * 20, ""]
    wanted = open_clip.get_tokenizer(f"local-dir:{tmp_path}")(texts)
    assert given(model, texts) == wanted.tolist() and set(wanted[:, -1].tolist()) == {2}
    word_pieces(tmp_path / "other")
    with pytest.raises(ConfigError, match="needs the token 'bos_token'"):
        of_open_clip(tmp_path / "other", hf_tokenizer_name="x", tokenizer_mode="clips")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"tokenizer_kwargs": {"reduction_mask": "syntax"}}, r"'reduction_mask' \('syntax'\), which leaves out words"),
        (
            {"tokenizer_kwargs": {"additional_special_tokens": ["x"]}},
            "the key 'additional_special_tokens', which cannot",
        ),
        ({"tokenizer_kwargs": {"padding_side": "left"}}, "the key 'padding_side', which cannot be exported"),
        ({"tokenizer_kwargs": {"claen": "lower"}, "hf_tokenizer_name": "x"}, "'claen'.*did you mean 'clean'"),
        ({"tokenizer_kwargs": {"trust_remote_code": True}, "hf_tokenizer_name": "x"}, "the key 'trust_remote_code'"),
        ({"tokenizer_kwargs": {"clean": "upper"}, "hf_tokenizer_name": "x"}, "the value 'upper' of 'clean'"),
        ({"tokenizer_kwargs": ["clean"]}, "is no table|is not a table"),
        ({"tokenizer_mode": "other", "hf_tokenizer_name": "x"}, "tokenizer_mode 'other' cannot be exported"),
        ({"hf_tokenizer_name": "no/where"}, "uses no/where, which is not in the Hugging Face cache"),
    ],
)
def test_what_open_clip_does_beside_is_named(tmp_path: Path, text: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        of_open_clip(tmp_path, **text)


def test_a_folder_that_is_given_wins_and_may_hold_the_vocabulary_alone(tmp_path: Path) -> None:
    """vocab.txt alone is BERT's, in lower case; the snapshot's own tokenizer keeps capitals."""
    from xbench_fast.export.models.families.open_clip_texts import open_clip_texts

    word_pieces(tmp_path / "snapshot")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "vocab.txt").write_bytes((tmp_path / "snapshot" / "vocab.txt").read_bytes())
    config = {"text_cfg": {"context_length": 20, "hf_tokenizer_name": "x"}}
    model, other = (
        adapter(*open_clip_texts(config, "tiny", folder, tmp_path / "snapshot"), 20)
        for folder in (tmp_path / "given", None)
    )
    words = transformers.BertTokenizer(str(tmp_path / "given" / "vocab.txt"))
    wanted = words([text.strip() for text in SAID], padding="max_length", max_length=20, truncation=True)["input_ids"]
    assert given(model) == wanted != given(other)


def test_siglip_2_is_in_lower_case_by_both_families(tmp_path: Path) -> None:
    """As transformers' class says; the ids of both families are the same."""
    folder = siglip2(tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(str(folder))
    assert words("Pleural")["input_ids"] == words("pleural")["input_ids"]
    wanted = words(SAID[:2], padding="max_length", max_length=64, truncation=True)["input_ids"]
    assert given(of_transformers(folder), SAID[:2]) == wanted
    assert given(of_open_clip(folder, hf_tokenizer_name="x", context_length=64), SAID[:2]) == wanted


def test_what_the_tokenizer_of_a_siglip_leaves_open_is_told(tmp_path: Path) -> None:
    """Capitals, and a text that is shorter than the model: it is cut and filled as the tokenizer says."""
    from xbench_fast.export.models.families.transformers import _assumptions

    quiet, loud = siglip2(tmp_path / "a"), siglip2(tmp_path / "b", tokenizer_class="PreTrainedTokenizerFast")
    short = siglip2(tmp_path / "c", model_max_length=12)
    assert _assumptions(of_transformers(quiet), 64) == ()
    (caution,) = _assumptions(of_transformers(loud), 64)
    assert 'name the class "Siglip2Tokenizer"' in caution
    (caution,) = _assumptions(of_transformers(short), 64)
    assert "filled to 12 tokens, as model_max_length" in caution and "has 64 positions" in caution
    words = transformers.AutoTokenizer.from_pretrained(str(short))
    assert given(of_transformers(short)) == words(SAID, padding="max_length", truncation=True)["input_ids"]
    assert of_transformers(short, 10).context == 10, "never more than the model has positions"


class SiglipTokenizer:
    """transformers' class in Python code, as far as its rules are read; it needs the package sentencepiece itself."""

    is_fast, do_lower_case, model_max_length = False, True, 16
    truncation_side = padding_side = "right"
    eos_token = pad_token = "</s>"
    eos_token_id = pad_token_id = 1
    sep_token_id = None
    all_special_tokens = ("</s>", "<unk>")

    def __init__(self, vocab_file: str) -> None:
        self.vocab_file = vocab_file


def test_siglip_1_of_transformers_4(tmp_path: Path) -> None:
    """A SentencePiece model behind lower case without punctuation, one blank before the text and the end token."""
    from test_folder_tokenizers import sentencepiece

    marks = [("<pad>", 3), ("</s>", 3), ("<unk>", 2)]
    letters = [(letter, 1) for letter in "\u2581abcdefghijklmnopqrstuvwxyz"]
    sentencepiece(tmp_path / "spiece.model", [*marks, ("\u2581lung", 1), ("\u2581mass", 1), *letters])
    words = library_words(SiglipTokenizer(str(tmp_path / "spiece.model")), "it", cleaned=True)
    assert words.cleaning == "siglip" and words.padding == 1 and words.longest == 16
    place = {
        piece: number for number, (piece, _) in enumerate([*marks, ("\u2581lung", 1), ("\u2581mass", 1), *letters])
    }
    from xbench_fast.engines.tokenizing import CLEANINGS

    ids = lambda text: words.backend.encode(CLEANINGS["siglip"](text)).ids  # noqa: E731
    assert ids("Lung, mass.") == ids("LUNG \u2581 (mass)!") == [3, 4, 1]
    assert ids(" lung") == [place["\u2581"], 3, 1], "a second blank; a model with a map of characters merges both"
    assert ids("") == ids(" ...") == [1]
    assert ids("<pad>a") == [place["\u2581"], *(place[letter] for letter in "pada"), 1]
    assert ids("lung </s>, a") == [3, 1, place["a"], 1]
    with pytest.raises(ConfigError, match=r"it \(SiglipTokenizer\) has no form as tokenizer\.json"):
        library_words(SiglipTokenizer(""), "it")
    with pytest.raises(ConfigError, match=r"it \(SiglipTokenizer\) cannot be converted, as it is no Unigram model"):
        library_words(SiglipTokenizer(str(tmp_path / "absent")), "it", cleaned=True)


@pytest.mark.parametrize(
    ("model", "rules"),
    [
        ({}, {}),
        ({}, {"do_lower_case": False, "truncation_side": "left"}),
        ({"byte_fallback": True, "vocab_size": 330}, {"pad_token": "<pad>"}),
        ({"normalization_rule_name": "identity"}, {"model_max_length": 12}),
    ],
    ids=str,
)
def test_siglip_1_against_its_own_class(tmp_path: Path, model: dict[str, Any], rules: dict[str, Any]) -> None:
    """Where the package of the class is installed."""
    pieces = pytest.importorskip("sentencepiece")
    lines, how = ["pleural effusion", "a chest x-ray showing pneumonia", "nodule"] * 30, {"pad_id": 0, "bos_id": -1}
    pieces.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(tmp_path / "spiece"), hard_vocab_limit=False, minloglevel=2,
        **{"vocab_size": 60, "eos_id": 1, "unk_id": 2, **how, **model},
    )  # fmt: skip
    plain = {"tokenizer_class": "SiglipTokenizer", "model_max_length": 16, "pad_token": "</s>", **rules}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(plain))
    folder = of_transformers(tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert given(folder) == words(SAID, padding="max_length", truncation=True)["input_ids"]


def test_siglip_1_needs_sentencepiece(tmp_path: Path) -> None:
    """Only the class itself says what is right; without its package there is a sentence, also with tokenizer.json."""
    from importlib.util import find_spec

    siglip2(tmp_path, tokenizer_class="SiglipTokenizer")
    (tmp_path / "spiece.model").write_bytes(b"x")
    kind: type[XBenchError] = ConfigError if find_spec("sentencepiece") else MissingExtraError
    with pytest.raises(kind, match=r"cannot load the tokenizer|pip install sentencepiece"):
        of_transformers(tmp_path)


def shorter(model: Any) -> None:
    model.tokenizer.ready.backend.enable_truncation(model.context - 1)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "no lower case": lambda m: setattr(m, "tokenizer", replace(m.tokenizer, cleaning="open_clip")),
    "no cleaning": lambda m: setattr(m, "tokenizer", replace(m.tokenizer, cleaning="")),
    "other padding": lambda m: setattr(m, "padding", m.padding._replace(number=1)),
    "other side": lambda m: setattr(m, "padding", m.padding._replace(left=not m.padding.left)),
    "other separator": lambda m: setattr(m, "padding", m.padding._replace(separator=None)),
    "shorter": shorter,
    "other side of the cut": lambda m: m.tokenizer.ready.backend.enable_truncation(m.context, direction="left"),
    "no end": lambda m: setattr(m.tokenizer.ready.backend, "post_processor", tokenizers.processors.ByteLevel()),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_difference_stops_the_export(tmp_path: Path, mutant: str) -> None:
    """Whatever would reach the model otherwise: the sentence names the model, the library, its version and the text."""
    options = {"clean": "lower", "strip_sep_token": True}
    model = of_open_clip(word_pieces(tmp_path), hf_tokenizer_name="x", tokenizer_kwargs=options)
    select_tokenizer(model)
    MUTANTS[mutant](model)
    with pytest.raises(
        ConfigError, match=rf"tiny would get other ids than from open_clip_torch {open_clip.__version__}"
    ):
        select_tokenizer(model)


def test_siglip_2_that_is_not_lowered_is_stopped(tmp_path: Path) -> None:
    """As tokenizer.json alone says."""
    model = of_transformers(siglip2(tmp_path))
    backend = model.tokenizer.ready.backend
    backend.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    with pytest.raises(ConfigError, match="for the text 'Pleural Effusion': "):
        select_tokenizer(model)


def test_the_record_and_the_prompts(tmp_path: Path) -> None:
    """Prompts are compared as well, each text of a query; the record says how many, and of which library."""
    model = of_open_clip(tmp_path)
    words = select_tokenizer(model)
    record, more = compare_texts(model, words), compare_texts(model, words, ["a mass\nmass two", "pneumonia"])
    assert record is not None and more is not None
    assert record["texts"] == len(TEXTS) >= 30 and more["texts"] == len(TEXTS) + 2
    assert more["sha256"] != record["sha256"] and len(record["sha256"]) == 64
    assert (record["library"], record["version"]) == ("open_clip_torch", open_clip.__version__)
    own = open_clip.get_tokenizer(f"local-dir:{tmp_path}")
    other = ReferenceTokenizer("open_clip_torch", lambda texts: [[0] if "mass two" in t else own(t)[0] for t in texts])
    model.tokenizer = replace(model.tokenizer, reference=other)
    compare_texts(model, words)
    with pytest.raises(ConfigError, match="for the text 'mass two': 20 of them instead of 1"):
        compare_texts(model, words, ["a mass\nmass two"])
    assert compare_texts(SimpleNamespace(tokenizer=replace(model.tokenizer, reference=None)), words) is None


def test_a_library_that_cannot_read_a_text(tmp_path: Path) -> None:
    model = of_open_clip(word_pieces(tmp_path, pad_token=None), hf_tokenizer_name="x")
    with pytest.raises(ConfigError, match=r"cannot read the text 'pneumonia' for tiny .*padding"):
        select_tokenizer(model)


@pytest.mark.parametrize("options", [{"clean": "canonicalize"}, {"clean": "lower", "padding_side": "left"}], ids=str)
def test_texts_that_a_bundle_is_asked_later(tmp_path: Path, options: dict[str, Any]) -> None:
    """The tokenizer that the bundle stores gives the ids that were compared."""
    model = of_open_clip(word_pieces(tmp_path), hf_tokenizer_name="x", tokenizer_kwargs=options)
    words = select_tokenizer(model)
    folder = tmp_path / "bundle"
    for name, content in stored_files(words).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest = SimpleNamespace(text={"tokenizer": words.record, "context": 20}, files=stored_files(words))
    later = bundle_tokenizer(SimpleNamespace(path=folder, manifest=manifest))
    texts = [*SAID, *TEXTS]
    assert model.encoder_ids(later(texts)) == open_clip.get_tokenizer(f"local-dir:{tmp_path}")(texts).tolist()


def built_in(words: Any, reference: Any, context: int = 20) -> Any:
    """An adapter with a reference for the vocabulary of `words`."""
    spec = TokenizerSpec("ready", (), special_words=True, ready=words, reference=reference)
    made = SimpleNamespace(name="tiny", tokenizer=spec, context=context)
    made.encoder_ids = lambda batch: Adapter.encoder_ids(made, batch)
    return made


def test_adapters_whose_authors_use_a_known_class(tmp_path: Path) -> None:
    """CLIP's and BERT's, after the authors' cleaning; texts that the model refuses are left out."""
    vocabulary = read_vocabulary(word_pieces(tmp_path))
    words = WordPieceTokenizer(vocabulary, 20, "x", special_words=True)
    clip, whole = ClipTokenizer(77), ClipTokenizer(77, refuses_long=True)
    cases = [
        (CleanedTokenizer(clip, "clip"), clip_reference, 0),
        (CleanedTokenizer(whole, "clip"), clip_reference, 3),
        (words, partial(bert_reference, ""), 0),
        (CleanedTokenizer(words, "carzero"), partial(bert_reference, "carzero"), 0),
        (CleanedTokenizer(words, "open_clip"), open_clip_bert_reference, 0),
    ]
    for made, reference, refused in cases:
        context = 77 if reference is clip_reference else 20
        record = compare_texts(built_in(getattr(made, "inner", made), reference, context), made)
        assert record is not None and record["texts"] == len(TEXTS) - refused
    letters = WordPieceTokenizer(vocabulary, 20, "x")
    spec = TokenizerSpec("wordpiece", (), reference=partial(bert_reference, ""))
    model = built_in(letters, None)
    model.tokenizer = spec
    record = compare_texts(model, letters)
    assert record is not None and record["texts"] == len(TEXTS) - 1, "without the special tokens"


@pytest.mark.parametrize(
    "rules", [{"lower_case": False}, {"separator": False}, {"special_words": False}, {"context": 19}], ids=str
)
def test_a_rule_that_is_not_the_authors_stops_the_export(tmp_path: Path, rules: dict[str, Any]) -> None:
    rules = {"special_words": True, **rules}
    words = WordPieceTokenizer(read_vocabulary(word_pieces(tmp_path)), rules.pop("context", 20), "x", **rules)
    for made, reference in (
        (words, partial(bert_reference, "")),
        (CleanedTokenizer(words, "open_clip"), open_clip_bert_reference),
    ):
        with pytest.raises(ConfigError, match="would get other ids than from"):
            compare_texts(built_in(words, reference), made)


def test_a_cleaning_that_is_not_the_authors_stops_the_export(tmp_path: Path) -> None:
    clip = ClipTokenizer(77)
    words = WordPieceTokenizer(read_vocabulary(word_pieces(tmp_path)), 20, "x", special_words=True)
    for inner, cleaning, reference in (
        (clip, "open_clip", clip_reference),
        (words, "canonical", open_clip_bert_reference),
        (words, "carzero", open_clip_bert_reference),
    ):
        context = 77 if inner is clip else 20
        with pytest.raises(ConfigError, match="would get other ids than from open_clip_torch"):
            compare_texts(built_in(inner, reference, context), CleanedTokenizer(inner, cleaning))


def test_an_adapter_reads_the_class_of_a_folder(tmp_path: Path) -> None:
    """Also what it does outside tokenizer.json."""
    words = FolderTokenizer(siglip2(tmp_path), 20)
    assert words(["Pleural Effusion"]).ids.tolist() == words(["pleural effusion"]).ids.tolist()
