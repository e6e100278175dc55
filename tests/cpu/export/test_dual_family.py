"""The family dual: towers of timm, torchvision and transformers against these libraries, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_model_families import TEXTS, WORDS, answers, normalised, own_prompts, pictures, unit
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.export import load_adapter
from xbench_fast.export.cli import main
from xbench_fast.export.models.families import FAMILIES

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")
for package in ("onnx", "onnxscript", "onnxruntime", "tokenizers"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("one_thread_of_torch")

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
WAYS = {"mean": [0.5, 0.4, 0.6], "std": [0.2, 0.25, 0.3], "interpolation": "bilinear", "resize_mode": "squash"}


def text_folder(folder: Path, model_type: str = "bert") -> Any:
    """A text tower without weights, and its tokenizer; returns the untrained model."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    special = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    made = {"bert": transformers.BertConfig, "roberta": transformers.RobertaConfig}[model_type]
    config = made(vocab_size=len(WORDS), max_position_embeddings=24, pad_token_id=0, **SIZES)
    config.save_pretrained(folder)
    return transformers.AutoModel.from_config(config, attn_implementation="eager").eval()


def shaken(model: Any) -> Any:
    """The model with values worth comparing."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1 * torch.randn(value.shape, generator=generator))
    return model.eval()


class Trained(torch.nn.Module):
    """Two towers and their projections, as a training script has them."""

    def __init__(self, image: Any, text: Any, widths: tuple[int, int], *, deep: bool = False) -> None:
        super().__init__()
        self.image_encoder = torch.nn.ModuleDict({"model": image})
        self.text_encoder = torch.nn.ModuleDict({"model": text})
        last = torch.nn.Linear(widths[0], 24)
        if deep:
            first = torch.nn.Linear(widths[0], 40, bias=False), torch.nn.BatchNorm1d(40)
            last = torch.nn.Sequential(*first, torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(40, 24))
        self.image_projection = last
        self.text_projection = torch.nn.Linear(widths[1], 24, bias=False)
        self.logit_scale = torch.nn.Parameter(torch.tensor(2.5))
        self.prototypes = torch.nn.Parameter(torch.zeros(3, 24))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a text tower, and the weights of a ViT of timm and a BERT below `net.`; and the model."""
    folder = tmp_path_factory.mktemp("dual")
    text = text_folder(folder / "bert")
    image = timm.create_model("test_vit", num_classes=0, img_size=64, depth=2)
    torch.manual_seed(3)
    model = shaken(Trained(image, text, (64, 32)))
    state = {f"net.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": {**state, "loss.weight": torch.ones(1)}}, folder / "weights.pt")
    return folder, model


def texts_of(folder: Path, model: Any, pool: Callable[[Any, Any], Any]) -> Any:
    """The projected vectors of TEXTS, each encoded alone without padding."""
    words = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in TEXTS:
        ids = torch.tensor([words(text)["input_ids"]])
        rows.append(model.text_projection(pool(model.text_encoder["model"](ids), ids))[0])
    return unit(torch.stack(rows))


def test_a_vit_of_timm_and_a_bert_from_configuration_alone(
    two: tuple[Path, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = two
    own_prompts(folder)
    lines = [
        'bundles = ["bundles"]\n[models.mine]\nfamily = "dual"\narch = "timm:test_vit"\ntext_encoder = "bert"',
        'checkpoint = "weights.pt"\nprompts = "prompts.json"\n[models.mine.options]\nunused = ["prototypes"]',
        'arch_options = {depth = 2}\nimage = {projection = "image_projection"}',
        'text = {projection = "text_projection", pooling = "last"}',
        "preprocess = {size = 64, mean = [0.5, 0.4, 0.6], std = [0.2, 0.25, 0.3], "
        'interpolation = "bilinear", resize_mode = "squash"}',
    ]
    (folder / "xbench.toml").write_text("\n".join(lines))
    monkeypatch.chdir(folder)
    assert main(["--model", "mine"]) == 0
    assert "photographs" not in capsys.readouterr().err, "mean and std are given"
    bundle = Bundle.load(folder / "bundles" / "mine-64")
    manifest = bundle.manifest
    assert manifest.parity["passed"] is True and (manifest.weights, manifest.grid) == ("own", (4, 4))
    assert manifest.geometry.key == "squash-64-64-bilinear" and manifest.text["compared"]["library"] == "transformers"
    assert manifest.logit_scale == pytest.approx(float(model.logit_scale.detach().exp()))
    assert bundle.prompt_set("rsna").texts[0] == "a chest x-ray showing pneumonia"
    pixels = pictures(64)
    logits, saliency = answers(bundle, pixels)
    with torch.inference_mode():
        tower = model.image_encoder["model"]
        tokens = tower.forward_features(normalised(pixels, WAYS["mean"], WAYS["std"]))
        texts = texts_of(folder / "bert", model, lambda out, ids: out.last_hidden_state[:, -1])
        wanted = model.logit_scale.exp() * unit(model.image_projection(tokens[:, 0])) @ texts.T
        cells = unit(model.image_projection(tokens[:, 1:])) @ texts.T
    np.testing.assert_allclose(logits, wanted, atol=1e-4)
    np.testing.assert_allclose(saliency, cells.transpose(1, 2).reshape(3, 3, 4, 4), atol=2e-5)


def loaded(path: Path, **options: Any) -> Any:
    return load_adapter(FAMILIES.target("dual"), path, **options)


def scores(adapter: Any, size: int, texts: list[str]) -> tuple[Any, Any, Any]:
    """A normalised image, and the adapter's logits and maps for its own features of the texts."""
    from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer

    words = select_tokenizer(adapter)
    assert words is not None
    given = words(texts)
    image = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        features = adapter.encode_text(torch.from_numpy(given.ids), torch.from_numpy(given.mask))
        return image, *adapter.forward(image, features)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last", "own"])
@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_a_dinov2_of_transformers_and_the_poolings_of_texts(pooling: str, model_type: str, tmp_path: Path) -> None:
    """Names of tensors as releases before transformers 5 wrote them (RAD-DINO), a projection of several layers, and a
    picture of another size than the table of positions, which the class resamples by itself."""
    text = text_folder(tmp_path / "text", model_type)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    image = transformers.Dinov2Model(transformers.Dinov2Config(image_size=70, patch_size=14, **sizes))
    processor = transformers.BitImageProcessor(size={"shortest_edge": 60}, crop_size={"height": 56, "width": 56})
    for part in (image, processor):
        part.save_pretrained(tmp_path / "image")
    model = shaken(Trained(image, text, (32, 32), deep=True))
    state = model.state_dict()
    for name in [name for name in state if name.startswith("image_encoder.")]:
        older = name.replace("q_proj", "attention.query").replace("k_proj", "attention.key")
        older = older.replace("v_proj", "attention.value").replace("o_proj", "output.dense")
        state[older] = state.pop(name)
    if pooling != "own":  # which the file need not have then
        state = {name: tensor for name, tensor in state.items() if ".pooler." not in name}
    torch.save(state, tmp_path / "weights.pt")
    adapter = loaded(
        tmp_path / "weights.pt",
        arch=str(tmp_path / "image"),
        text_encoder=tmp_path / "text",
        image={"projection": "image_projection"},
        text={"projection": "text_projection", "pooling": pooling},
        activation="relu",
        unused=["prototypes"],
    )
    assert (adapter.geometry.key, adapter.grid, adapter.context) == (
        "floor_crop-56-60-bicubic",
        (4, 4),
        24 if model_type == "bert" else 23,
    )
    pixels, logits, maps = scores(adapter, 56, TEXTS)
    ids, mask = torch.tensor([[1, 4, 2, 9, 9], [1, 4, 6, 7, 2]]), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    alone = adapter.encode_text(ids[:1, :3])
    torch.testing.assert_close(adapter.encode_text(ids, mask)[:1], alone, msg="whatever fills a text")
    pools: dict[str, Callable[[Any, Any], Any]] = {
        "cls": lambda out, ids: out.last_hidden_state[:, 0],
        "mean": lambda out, ids: out.last_hidden_state.mean(1),
        "last": lambda out, ids: out.last_hidden_state[:, -1],
        "own": lambda out, ids: out.pooler_output,
    }
    with torch.inference_mode():
        hidden = image(pixels).last_hidden_state
        texts = texts_of(tmp_path / "text", model, pools[pooling])
        wanted = model.logit_scale.exp() * unit(model.image_projection(hidden[:, 0])) @ texts.T
        alone = torch.stack([unit(model.image_projection(hidden[:, place])) for place in range(1, 17)], 1)
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(maps, (alone @ texts.T).transpose(1, 2).reshape(2, 3, 4, 4), atol=1e-5, rtol=1e-4)
    native = adapter.module.image.embeddings.position_embeddings.detach().clone()
    adapter.resize(84)
    from timm.layers import resample_abs_pos_embed

    wanted_table = resample_abs_pos_embed(native, [6, 6], num_prefix_tokens=1)
    torch.testing.assert_close(adapter.module.image.embeddings.position_embeddings.data, wanted_table)
    assert adapter.grid == (6, 6)


def test_weights_of_the_text_tower_from_its_own_folder_and_scale_and_bias(
    two: tuple[Path, Any], tmp_path: Path
) -> None:
    """A frozen text tower is not in the file; its folder may have other heads. A matrix multiplies from the right."""
    text = shaken(transformers.BertForMaskedLM(text_folder(tmp_path / "bert").config))
    text.save_pretrained(tmp_path / "bert")
    model = two[1]
    state = {name: each for name, each in model.state_dict().items() if not name.startswith(("text_encoder", "proto"))}
    del state["text_projection.weight"], state["logit_scale"]
    matrix = torch.randn(32, 24, generator=torch.Generator().manual_seed(2))
    torch.save({**state, "text_projection": matrix, "logit_bias": torch.tensor([-3.0])}, tmp_path / "weights.pt")
    adapter = loaded(
        tmp_path / "weights.pt",
        arch="timm:test_vit",
        text_encoder=tmp_path / "bert",
        image={"projection": "image_projection", "prefix": "image_encoder.model"},
        text={"projection": "text_projection"},
        logit_scale=20,
        preprocess={"size": 64, **WAYS},
        arch_options={"depth": 2},
    )
    assert adapter.text_checkpoint.name == "model.safetensors" and adapter.logit_scale == 1.0
    pixels, logits, _ = scores(adapter, 64, ["lung mass"])
    with torch.inference_mode():
        hidden = text.bert(torch.tensor([[1, 4, 5, 2]])).last_hidden_state[:, 0]
        wanted = 20 * unit(model.image_projection(model.image_encoder["model"](pixels))) @ unit(hidden @ matrix).T - 3
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "timm:tset_vit"}, r"^timm has no model 'tset_vit': did you mean 'test_vit"),
        ({"arch": "torchvision:resnet19"}, r"^torchvision has no model 'resnet19': did you mean 'resnet18'"),
        ({"arch": "vit"}, r"^The image tower 'vit' is not known: write timm:NAME, torchvision:NAME, or a folder"),
        ({"arch": None}, r"^A model of the family dual needs 'arch', its image tower, and 'text_encoder', a folder"),
        ({"text_encoder": Path("absent")}, r"^There is no absent/config.json; give as 'text_encoder' the folder of a "),
        ({"image": {}}, r"^The option 'image' of the family dual names no 'projection': write the name of its layers"),
        ({"image": {"projction": ""}}, r"^The option 'image' has no key 'projction': did you mean 'projection'"),
        (
            {"image": {"projection": ""}, "unused": ["proto", "image_proj"]},
            r"image vectors of .* have 64 values and its text vectors 24, so the towers share no space: name",
        ),
        ({"image": {"projection": 3}}, r"^The option 'image': 'projection' must be a text or a list, not 3\.$"),
        ({"text": {"projection": "text_projection", "pooling": "max"}}, r"^The option 'pooling' is 'max': did you"),
        ({"text": {"projection": "text_projection", "context": 99}}, r"takes texts of 2 to 24 tokens, not of 99"),
        ({"image": {"projection": "image_projektion"}}, r"has no layer 'image_projektion'; did you mean 'image_proj"),
        ({"unused": ["prototypes", "head"]}, r"has no tensor whose name begins with 'head', which 'unused' names"),
        ({"unused": []}, r"^.*weights.pt has 1 tensors that are no part of .* \(prototypes\); if the model does not n"),
        ({"logit_scale": "scale"}, r"has no tensor 'scale' of one value"),
        ({"logit_scale": -2}, r"^The option 'logit_scale' is -2; the factor of the cosine is above 0"),
        ({"arch_options": {"depht": 2}}, r"^timm cannot build timm:test_vit: .*depht"),
        ({"arch_options": {"depth": 3}}, r"tensors 12 missing \(blocks\.2\.norm1\.weight, "),
        ({"preprocess": {"size": 80, **WAYS}}, r"is of another image size, because it has the positions of 4 x 4"),
        ({"preprocess": {"siez": 64}}, r"^The option 'preprocess' has no key 'siez': did you mean 'size'"),
        ({"image": {"projection": "image_projection", "prefix": "encoder"}}, r"tensors \d+ missing \(cls_token, "),
        ({"prompt_style": "clop"}, r"no built-in prompts in the style 'clop'"),
        ({"imgae": {}}, r"has no option 'imgae': did you mean 'image'"),
    ],
)  # fmt: skip
def test_what_is_refused(two: tuple[Path, Any], changes: dict[str, Any], words: str) -> None:
    right = {
        "arch": "timm:test_vit",
        "text_encoder": two[0] / "bert",
        "image": {"projection": "image_projection"},
        "text": {"projection": "text_projection"},
        "preprocess": {"size": 64, **WAYS},
        "arch_options": {"depth": 2},
        "unused": ["prototypes"],
    }
    with pytest.raises((ConfigError, CheckpointError), match=words) as raised:
        loaded(two[0] / "weights.pt", **{**right, **changes})
    assert "\n" not in str(raised.value)


def test_layers_whose_order_or_activation_is_not_stated(tmp_path: Path) -> None:
    text = text_folder(tmp_path / "bert")
    image = timm.create_model("test_vit", num_classes=0, img_size=64, depth=2)
    state = shaken(Trained(image, text, (64, 32), deep=True)).state_dict()
    options = {
        "arch": "timm:test_vit",
        "text_encoder": tmp_path / "bert",
        "image": {"projection": "image_projection"},
        "text": {"projection": "text_projection"},
        "preprocess": {"size": 64, **WAYS},
        "arch_options": {"depth": 2},
        "unused": ["prototypes"],
    }
    torch.save(state, tmp_path / "deep.pt")
    with pytest.raises(ConfigError, match=r"has several layers, and weights do not show what is between them: state"):
        loaded(tmp_path / "deep.pt", **options)
    named = {name.replace("image_projection.0", "image_projection.fc1"): tensor for name, tensor in state.items()}
    torch.save(named, tmp_path / "named.pt")
    with pytest.raises(ConfigError, match=r"The parts of 'image_projection' in .* have no order \(1, 4, fc1\); name"):
        loaded(tmp_path / "named.pt", **options)
    flat = {name: tensor for name, tensor in state.items() if not name.startswith("image_projection.")}
    first, second = torch.randn(40, 64), torch.randn(24, 40)
    flat |= {"image_projection.fc1.weight": first, "image_projection.fc2.weight": second}
    torch.save(flat, tmp_path / "flat.pt")
    listed = {**options, "image": {"projection": ["image_projection.fc1", "image_projection.fc2"]}}
    with pytest.raises(ConfigError, match=r"^'image_projection.fc1, image_projection.fc2' of .* has several layers"):
        loaded(tmp_path / "flat.pt", **listed)
    made = loaded(tmp_path / "flat.pt", activation="gelu", **listed)
    x = torch.randn(3, 64)
    wanted = torch.nn.functional.gelu(x @ first.T) @ second.T
    torch.testing.assert_close(made.module.image_projection(x), wanted)
    torch.save({**state, "image_projection.4.weight": torch.zeros(2, 3, 5, 5)}, tmp_path / "odd.pt")
    with pytest.raises(ConfigError, match=r"'image_projection.4' of .* is neither a linear layer nor a norm: it has w"):
        loaded(tmp_path / "odd.pt", activation="relu", **options)
    torch.save({**state, "text_projection.weight": torch.zeros(24, 31)}, tmp_path / "wide.pt")
    with pytest.raises(ConfigError, match=r"The projection of the text tower does not fit its vectors"):
        loaded(tmp_path / "wide.pt", activation="relu", **options)


def test_texts_that_are_filled_on_the_left(two: tuple[Path, Any], tmp_path: Path) -> None:
    text_folder(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "padding_side": "left"}))
    named = {"projection": "text_projection"}
    with pytest.raises(ConfigError, match=r"fills texts on the left .* so that what the text tower computes depends"):
        loaded(two[0] / "weights.pt", arch="timm:test_vit", text_encoder=tmp_path, image=named, text=named)


def test_what_the_command_line_lacks(two: tuple[Path, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = ["--family", "dual", "--arch", "timm:test_vit", "--text-encoder", str(two[0] / "bert")]
    assert main([*line, "--checkpoint", str(two[0] / "weights.pt"), "--out", str(tmp_path)]) == 2
    assert "names no 'projection'" in capsys.readouterr().err
