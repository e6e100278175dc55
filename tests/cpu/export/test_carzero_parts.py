"""CARZero's parts by themselves: words, prompts, the structure of a checkpoint, the graphs of a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.tokenizing import HashTokenizer, WordPieceTokenizer
from xbench_fast.engines.tokenizing.tokenizers import CleanedTokenizer, clean_report
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.inert_pickle import Record
from xbench_fast.export.checkpoints.reading import Checkpoint
from xbench_fast.export.checkpoints.stand_in import fill_module, image
from xbench_fast.export.models import carzero
from xbench_fast.export.models.carzero import (
    Carzero,
    CarzeroAdapter,
    CarzeroConfig,
    merge_words,
    read_config,
    read_tensors,
)
from xbench_fast.export.models.layers.bert import BertConfig
from xbench_fast.export.models.layers.query_decoder import DecoderConfig
from xbench_fast.export.models.layers.vit import ViTConfig
from xbench_fast.export.onnx_graph import ImageGraph, TextGraph, export_image, export_text
from xbench_fast.export.parity.compare_graphs import check_parity

torch.set_num_threads(2)

CONFIG = {
    "model": {
        "norm": False,
        "text": {"last_n_layers": 4, "aggregate_method": "sum", "agg_tokens": True, "norm": False},
        "fusion": {"d_model": 768, "H": 4, "decoder_number_layer": 4},
    },
    "data": {"text": {"word_num": 97}, "image": {"imsize": 256}},
}


# Words


def merge_by_walking(states: NDArray[Any], mask: list[int], words: int) -> NDArray[Any]:
    """A walk, token by token (docs/parity.md §3.6)."""
    merged: list[NDArray[Any]] = []
    for vector, mark in zip(states, mask, strict=True):
        if mark == 2:
            merged[-1] = merged[-1] + vector
        elif mark == 1:
            merged.append(vector)
    return np.stack([*merged, *[np.zeros_like(states[0])] * (words - len(merged))])


def test_merged_words_equal_a_walk() -> None:
    random = np.random.default_rng(5)
    for _ in range(30):
        width = int(random.integers(2, 12))
        mask = np.where(random.random((3, width)) < 0.5, 1, 2)
        mask[:, 0] = 1
        for row in mask:
            row[random.integers(2, width + 1) :] = 0
        states = random.normal(size=(3, width, 4)).astype(np.float32)
        got = merge_words(torch.from_numpy(states), torch.from_numpy(mask), 11 if width < 11 else width)
        expected = [merge_by_walking(states[row], mask[row].tolist(), got.shape[1]) for row in range(3)]
        np.testing.assert_allclose(got.numpy(), np.stack(expected), atol=1e-6)


def test_cleaning_of_prompts(shared: Path) -> None:
    examples = json.loads((shared / "parity" / "carzero.json").read_text())["text_cleaning"]["examples"]
    assert {text: clean_report(text) for text in examples} == examples


def test_tokenizer_marks_what_continues_a_word() -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "there", "is", "pneumo", "##thorax", "##s", "small"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    inner = WordPieceTokenizer(vocabulary, 97, "test")
    words = CleanedTokenizer(inner, "carzero", [7, 8])
    batch = words(["There is Pneumothorax.", "Small pneumothoraxs!", "pneumothorax"])
    assert batch.ids.tolist() == [[2, 4, 5, 6, 7, 3], [2, 9, 6, 7, 8, 3], [2, 3, 0, 0, 0, 0]]
    assert batch.mask.tolist() == [[1, 1, 1, 1, 2, 1], [1, 1, 1, 2, 2, 1], [1, 1, 0, 0, 0, 0]]
    assert words.record == {**inner.record, "cleaning": "carzero", "marks_continuations": True}


# The structure of a file, without the weight of one: tensors of one stored value.


def hollow(**changes: Any) -> Checkpoint:
    with torch.device("meta"):
        module = Carzero(CarzeroConfig())
    state = {f"CARZero.{name}": torch.zeros(()).expand(x.shape) for name, x in module.state_dict().items()}
    return Checkpoint(Path("best.ckpt"), {"state_dict": state, **changes})


def record(value: Any) -> Any:
    node = Record()
    if isinstance(value, dict):
        node.attributes["_content"] = {key: record(item) for key, item in value.items()}
    else:
        node.attributes["_val"] = value
    return node


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("text", "last_n_layers", 1),
        ("text", "aggregate_method", "mean"),
        ("text", "agg_tokens", False),
        ("fusion", "H", 8),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_another_training_configuration_is_refused(part: str, key: str, value: object, plain: bool) -> None:
    """Nothing but the configuration can tell these apart: the tensors are the same."""
    config = json.loads(json.dumps(CONFIG))
    assert read_config(hollow(hyper_parameters=config if plain else record(config))) == CarzeroConfig()
    config["model"][part][key] = value
    with pytest.raises(CheckpointError, match=f"trained with model.{part}.{key} = {value!r}"):
        read_config(hollow(hyper_parameters=config if plain else record(config)))


def test_names_as_the_official_loader_reads_them() -> None:
    """The text after the last prefix counts, surplus is dropped, and the norm's second name wins."""
    source = hollow()
    state = source.content["state_dict"]
    state["CARZero.gl.CARZero.img_encoder.model.cls_token"] = state.pop("CARZero.img_encoder.model.cls_token")
    state["CARZero.fusion_module.decoder_norm.weight"] = torch.ones(768)
    state["loss.weight"] = torch.zeros(2)
    with torch.device("meta"):
        needed = Carzero(read_config(source)).state_dict()
    found = read_tensors(source, needed).by_name
    assert set(found) == set(needed)
    assert not found["fusion_module.decoder.norm.weight"].any()
    del state["CARZero.fusion_module.decoder.norm.weight"]
    assert read_tensors(source, needed).by_name["fusion_module.decoder.norm.weight"].all()


def test_the_vocabulary_is_the_tensors() -> None:
    source = hollow()
    source.content["state_dict"]["CARZero.text_encoder.model.embeddings.word_embeddings.weight"] = torch.zeros(
        31000, 768
    )
    assert read_config(source).bert.vocabulary == 31000


def test_refusals(tmp_path: Path) -> None:
    torch.save(
        {"state_dict": {"visual.trunk.blocks.0.x": torch.zeros(2), "text.transformer.y": torch.zeros(2)}},
        tmp_path / "a",
    )
    with pytest.raises(CheckpointError, match="looks like a checkpoint of BiomedCLIP"):
        load_adapter("carzero", tmp_path / "a")
    words = "CARZero.text_encoder.model.embeddings.word_embeddings.weight"
    torch.save({"state_dict": {words: torch.zeros(9, 768)}}, tmp_path / "b")
    with pytest.raises(CheckpointError, match=r"does not fit the model CARZero: tensors \d+ missing"):
        load_adapter("carzero", tmp_path / "b")
    with pytest.raises(ConfigError, match="no variant 'vit-l-14'"):
        stand_in_adapter("carzero", "vit-l-14")


# The graphs, of a model small enough to be exported in seconds


@pytest.fixture(scope="module")
def small() -> CarzeroAdapter:
    config = CarzeroConfig(
        words=9,
        vit=ViTConfig(image_size=32, patch=8, width=24, layers=2, heads=2, hidden=32),
        bert=BertConfig(vocabulary=50, width=24, layers=4, heads=3, hidden=32, positions=16, pooler=False),
        decoder=DecoderConfig(width=24, layers=2, heads=2, hidden=32, self_attention=False),
        head=(12, 6),
    )
    module = Carzero(config)
    fill_module(module, seed=3)
    return CarzeroAdapter._describe(module, "stand-in", None)


def test_marked_word_pieces_change_the_features(small: CarzeroAdapter) -> None:
    ids, mask = torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]]), torch.tensor([[1, 1, 2, 1], [1, 1, 1, 0]])
    assert not torch.allclose(small.encode_text(ids, mask.clamp(max=1)), small.encode_text(ids, mask))


def test_words_end_with_the_first_separator(small: CarzeroAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows it is read by BERT but is no word."""
    monkeypatch.setattr(carzero, "ENDS", (1, 2))
    ids, mask = torch.tensor([[1, 5, 2, 6, 7, 2]]), torch.tensor([[1, 1, 1, 1, 2, 1]])
    features = small.encode_text(ids, mask)[0]
    assert (features[1:4] != 0).any(dim=1).all() and not features[4:].any()
    torch.testing.assert_close(features[0], features[1:].mean(dim=0))
    shorter = small.encode_text(ids[:, :3], mask[:, :3])[0]
    assert not torch.allclose(features[2], shorter[2]), "BERT still sees the rest"


def test_graphs_keep_their_axes_free(small: CarzeroAdapter, tmp_path: Path) -> None:
    """Batches of 1, 2, 3, findings 1 and 5, texts of any width, against the model; the axes are dynamic."""
    onnxruntime = pytest.importorskip("onnxruntime")
    export_text(small, tmp_path)
    export_image(small, tmp_path)
    sessions = {
        name: onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("image", "text")
    }
    random = np.random.default_rng(1)
    for texts, width in ((1, 2), (5, 9), (3, 4)):
        ids = random.integers(1, 50, (texts, width))
        mask = random.integers(1, 3, (texts, width))
        mask[:, 0], mask[1:, width - 1 :] = 1, 0
        (features,) = sessions["text"].run(None, {"input_ids": ids, "attention_mask": mask})
        with torch.inference_mode():
            expected = TextGraph(small)(torch.from_numpy(ids), torch.from_numpy(mask))
        np.testing.assert_allclose(features, expected, atol=1e-5 * float(expected.abs().max()))
    for batch in (1, 2, 3):
        for findings in (1, 5):
            pixels = random.integers(0, 256, (batch, 1, 32, 32), dtype=np.uint8)
            text = image("text", (findings, 10, 24), seed=findings)
            got = sessions["image"].run(["logits", "saliency"], {"pixels": pixels, "text": text})
            with torch.inference_mode():
                wanted = ImageGraph(small)(torch.from_numpy(pixels), torch.from_numpy(text))
            for mine, theirs in zip(got, wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-4 * float(theirs.abs().max()))


def test_the_parity_check_tries_words_of_several_pieces(
    small: CarzeroAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a vocabulary that cuts no word: a graph that lost the marks is found out."""
    pytest.importorskip("onnxruntime")
    export_text(small, tmp_path)
    export_image(small, tmp_path)
    words = HashTokenizer(50, small.context)
    assert check_parity(small, words, tmp_path, {}, batches=(1, 2))
    merge = carzero.merge_words
    monkeypatch.setattr(carzero, "merge_words", lambda states, mask, words: merge(states, mask.clamp(max=1), words))
    report = check_parity(small, words, tmp_path, {}, batches=(1, 2))
    assert not report and {check.output for check in report.checks if not check} == {"features"}
