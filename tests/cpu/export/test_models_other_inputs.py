"""The adapters with other weights, images and prompts than the goldens', against modules put together anew
from timm, torchvision, transformers and `nn.MultiheadAttention` (about two minutes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from xbench_fast.export import stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import image

torch.set_num_threads(2)
timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")

TOLERANCE = 2e-5  # of the largest value
SEED = 7
State = dict[str, Tensor]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def agree(found: Tensor, wanted: Tensor, name: str) -> None:
    assert found.shape == wanted.shape
    error = float((found - wanted).abs().max() / wanted.abs().max())
    print(f"{name}: {error:.1e} of the largest value")
    assert error <= TOLERANCE


def below(state: State, prefix: str) -> State:
    return {name[len(prefix) :]: tensor for name, tensor in state.items() if name.startswith(prefix)}


def images(count: int) -> Tensor:
    return torch.from_numpy(image("other image", (count, 3, 224, 224), SEED))


def tokens(
    lengths: list[int], ends: tuple[int, int], vocabulary: int, *, separator: bool = True
) -> tuple[Tensor, Tensor]:
    """Made-up ids padded with 0 to the longest, some words twice, and the mask."""
    random = np.random.default_rng(SEED)
    ids = np.zeros((len(lengths), max(lengths)), np.int64)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = random.choice(random.integers(200, vocabulary, 20), length)
        row[0] = ends[0]
        if separator:
            row[length - 1] = ends[1]
    return torch.from_numpy(ids), torch.from_numpy((ids != 0).astype(np.int64))


# The published parts


def bert(state: State, vocabulary: int, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Hugging Face's own model: embeddings and every layer's states."""
    config = transformers.BertConfig(vocab_size=vocabulary, attn_implementation="eager")
    model = transformers.BertModel(config, add_pooling_layer="pooler.dense.weight" in state).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all("position_ids" in name or "token_type_ids" in name for name in missing)
    return model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states


def vit(state: State, pixels: Tensor) -> Tensor:
    """timm's own model: all tokens after the last norm."""
    model = timm.create_model("vit_base_patch16_224", num_classes=0, global_pool="").eval()
    model.load_state_dict(state)
    return model.forward_features(pixels)


def resnet(state: State, pixels: Tensor) -> Tensor:
    """torchvision's ResNet-50 up to layer3: [B, 1024, 14, 14]."""
    model = nn.Sequential(*list(torchvision.models.resnet50().children())[:7]).eval()
    model.load_state_dict(state)
    return model(pixels)


def attention(state: State, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    module = nn.MultiheadAttention(query.shape[-1], 4, batch_first=True).eval()
    module.load_state_dict(state)
    return module(query, memory, memory, need_weights=True, average_attn_weights=True)


def norm(state: State, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-5)


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def decode(state: State, queries: Tensor, memory: Tensor, *, selves: bool) -> tuple[Tensor, Tensor]:
    """queries [Q, C] and memory [B, N, C] -> states [B, Q, C] after the last norm, maps [layers, B, Q, N]."""
    x, maps = queries.expand(len(memory), -1, -1), []
    for number in range(4):
        layer = below(state, f"layers.{number}.")
        if selves:
            y = norm(layer, "norm1", x)
            x = x + attention(below(layer, "self_attn."), y, y)[0]
        seen, weights = attention(below(layer, "multihead_attn."), norm(layer, "norm2", x), memory)
        x = x + seen
        x = x + linear(layer, "linear2", linear(layer, "linear1", norm(layer, "norm3", x)).relu())
        maps.append(weights)
    return norm(state, "norm", x), torch.stack(maps)


# The models


def test_biomedclip() -> None:
    """Id 0 is padding even between words, 256 tokens are all used, and the scores do not see each other."""
    adapter = stand_in_adapter("biomedclip", seed=SEED)
    state = adapter.module.state_dict()
    ids, _ = tokens([2, 5, 40, 256, 9], (2, 3), 30522)
    ids[2, 10] = 0
    last = bert(below(state, "text.transformer."), 30522, ids, (ids != 0).long())[-1]
    text = linear(state, "text.proj.2", F.gelu(linear(state, "text.proj.0", last[:, 0])))
    agree(adapter.encode_text(ids), text, "text")
    pixels = images(3)
    seen = linear(state, "visual.head.proj", vit(below(state, "visual.trunk."), pixels))
    logits, saliency = adapter.forward(pixels, text)
    unit = F.normalize(text, dim=-1).T
    agree(logits, state["logit_scale"].exp() * F.normalize(seen[:, 0], dim=-1) @ unit, "logits")
    agree(saliency.flatten(2), (F.normalize(seen[:, 1:], dim=-1) @ unit).transpose(1, 2), "map")
    agree(adapter.forward(pixels[1:2], text[3:4])[0], logits[1:2, 3:4], "one of each")


def test_devide() -> None:
    """Three images and seven texts, one of them a full 256 tokens."""
    adapter = stand_in_adapter("devide", seed=SEED)
    state = adapter.module.state_dict()
    ids, mask = tokens([2, 256, 7, 3, 30, 8, 8], (2, 3), 30522)
    encoder = below(state, "text_encoder.")
    pooler = below(encoder, "bert_model.")
    pooled = linear(pooler, "pooler.dense", bert(pooler, 30522, ids, mask)[-1][:, 0]).tanh()
    text = linear(encoder, "mlp_embed.2", F.gelu(linear(encoder, "mlp_embed.0", pooled)))
    agree(adapter.encode_text(ids, mask), text, "text")
    network = below(state, "model.")
    patches = vit(below(state, "image_encoder."), images(3))[:, 1:]
    decoder = below(network, "decoder.")
    states, maps = decode(decoder, norm(decoder, "norm", text), norm(decoder, "norm", patches), selves=True)
    wanted = linear(network, "mlp_head.0", states)
    logits, saliency = adapter.forward(images(3), text)
    agree(logits, wanted[..., 1] - wanted[..., 0], "logits")
    agree(saliency.flatten(2), maps[-1], "map")


def test_medklip() -> None:
    """Eleven descriptions without [SEP], the longest of 64 tokens."""
    adapter = stand_in_adapter("medklip", seed=SEED)
    state = adapter.module.state_dict()
    ids, mask = tokens([2, 64, 5, 9, 30, 3, 64, 12, 7, 8, 20], (101, 102), 28996, separator=False)
    text = bert(below(state, "text_encoder."), 28996, ids, mask)[-1][:, 0]
    agree(adapter.encode_text(ids, mask), text, "text")
    network = below(state, "model.module.")
    cells = resnet(below(network, "res_features."), images(3)).flatten(2).transpose(1, 2)
    patches = linear(network, "res_l2", linear(network, "res_l1", cells).relu())
    states, maps = decode(below(network, "decoder."), ask(network, text), patches, selves=True)
    wanted = linear(network, "classifier", states)
    logits, saliency = adapter.forward(images(3), text)
    agree(logits.sigmoid(), wanted.softmax(-1)[..., 1], "probabilities")
    agree(saliency.flatten(2), maps.mean(0), "map")


def ask(network: State, text: Tensor) -> Tensor:
    return linear(network, "disease_embedding_layer", text)


def test_mavl() -> None:
    """Five classes of nine texts: states side by side aspect by aspect, and the map of aspects 0, 6, 7 and 8."""
    adapter = stand_in_adapter("mavl", seed=SEED)
    state = adapter.module.state_dict()
    ids, mask = tokens([2 + (7 * row) % 63 for row in range(45)], (101, 102), 28996, separator=False)
    text = bert(below(state, "text_encoder."), 28996, ids, mask)[-1][:, 0]
    agree(adapter.encode_text(ids, mask), text, "text")
    network = below(state, "model.module.")
    cells = resnet(below(network, "backbone."), images(3))
    hidden = F.conv2d(cells, network["res_l1.0.weight"], network["res_l1.0.bias"])
    hidden = torch.where(hidden > 0, hidden, network["res_l1.1.weight"] * hidden)
    patches = F.conv2d(hidden, network["res_l2.weight"], network["res_l2.bias"]).flatten(2).transpose(1, 2)
    states, maps = decode(below(network, "decoder."), ask(network, text), patches, selves=True)
    by_class = torch.stack([torch.cat([states[:, 9 * c + a] for a in range(9)], dim=-1) for c in range(5)], dim=1)
    wanted = linear(network, "classifier", by_class)
    mean = maps.mean(0)
    heat = torch.stack([(sum(mean[:, 9 * c + a] for a in (0, 6, 7, 8))) / 4 for c in range(5)], dim=1)
    for shaped in (text, text.reshape(5, 9, 768)):
        logits, saliency = adapter.forward(images(3), shaped)
        agree(logits.sigmoid(), wanted.softmax(-1)[..., 1], "probabilities")
        agree(saliency.flatten(2), heat, "map")


def test_carzero() -> None:
    """Words of several pieces, a prompt without any word, one that fills all 97 places, both directions."""
    adapter = stand_in_adapter("carzero", seed=SEED)
    state = adapter.module.state_dict()
    ids, mask = tokens([2, 97, 6, 40, 3, 12], (101, 102), 28996)
    pieces = torch.from_numpy(np.random.default_rng(SEED).random(ids.shape) < 0.4)
    pieces &= (mask == 1) & (ids != 102)
    pieces[:, :2] = False
    layers = torch.stack(bert(below(state, "text_encoder.model."), 28996, ids, mask)[-4:])
    local = torch.stack([walk(layers[:, row], ids[row], pieces[row]) for row in range(len(ids))])
    text = torch.cat([local.mean(dim=1, keepdim=True), local], dim=1)
    agree(adapter.encode_text(ids, mask + pieces), text, "text")
    seen = vit(below(state, "img_encoder.model."), images(3))
    fusion = below(state, "fusion_module.")
    i2t, maps = fuse(fusion, text[:, 0], seen)
    t2i, _ = fuse(fusion, seen[:, 0], text)
    logits, saliency = adapter.forward(images(3), text)
    agree(logits, (i2t + t2i.T) / 2, "score")
    agree(saliency.flatten(2), maps.mean(0)[..., 1:], "map")


def walk(layers: Tensor, ids: Tensor, pieces: Tensor) -> Tensor:
    """The word merging of one prompt (docs/parity.md §3.6), token by token: layers [4, N, C] -> [97, C], summed."""
    words: list[Tensor] = []
    for place, number in enumerate(ids.tolist()):
        vector = layers[:, place]
        if number == 102:
            words.append(vector)
            break
        if pieces[place]:
            words[-1] = words[-1] + vector
        else:
            words.append(vector)
    empty = [torch.zeros_like(words[0])] * (97 - len(words))
    return torch.stack([*words, *empty]).sum(dim=1)


def fuse(state: State, queries: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    decoder = below(state, "decoder.")
    states, maps = decode(decoder, norm(decoder, "norm", queries), norm(decoder, "norm", memory), selves=False)
    steps: list[Callable[[Tensor], Tensor]] = [lambda x, n=n: linear(state, f"mlp_head.{n}", x) for n in (0, 3, 6)]
    for step in steps:
        states = step(states).relu()
    return linear(state, "mlp_head.9", states)[..., 0], maps


def test_every_model_takes_batches_of_any_size_and_one_query() -> None:
    """Seven images at once are seven images apart, here for the model whose queries cost most."""
    adapter = stand_in_adapter("mavl", seed=SEED)
    pixels, text = images(7), torch.from_numpy(image("text", (3, 9, 768), SEED))
    together: Any = adapter.forward(pixels, text)
    for number in (0, 4, 6):
        alone = adapter.forward(pixels[number : number + 1], text)
        agree(together[0][number], alone[0][0], "logits")
        agree(together[1][number], alone[1][0], "map")
    assert adapter.forward(pixels[:1], text[:1])[0].shape == (1, 1)
