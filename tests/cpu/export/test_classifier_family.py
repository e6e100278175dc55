"""The family classifier: logits against each library's own forward, class activation maps against its last features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_dual_family import WAYS, shaken
from test_model_families import normalised, pictures
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.select import open_engine
from xbench_fast.export import load_adapter
from xbench_fast.export.cli import main
from xbench_fast.export.models.families import FAMILIES
from xbench_fast.export.resolution import at_resolution

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")
for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("one_thread_of_torch")

FINDINGS = ["Mass", "Pleural effusion", ""]
VIT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
ADDS_UP = "applied to each cell of the features"
ALONE = "as the model's own pooling returns it alone"


def live_statistics(model: Any) -> Any:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return shaken(model)


def of_timm(name: str, **more: Any) -> Any:
    return live_statistics(timm.create_model(name, num_classes=3, **more))


def of_torchvision(name: str, **more: Any) -> Any:
    return live_statistics(torchvision.models.get_model(name, weights=None, num_classes=3, **more))


def of_transformers(config: Any, kind: str) -> Any:
    config.num_labels = 3
    return shaken(getattr(transformers, kind)(config))


def loaded(path: Path, **options: Any) -> Any:
    given = {"findings": FINDINGS, "preprocess": {"size": 64, **WAYS}, **options}
    return load_adapter(FAMILIES.target("classifier"), path, **given)


def cam(head: Any, cells: Any) -> Any:
    """cells [B, N, C] -> the maps [B, F, N]."""
    return torch.einsum("fc,bnc->bfn", head.weight, cells)


def tokens_of_timm(model: Any, image: Any, head: Any) -> Any:
    return cam(head, model.forward_features(image)[:, 1:])


def normed_tokens(model: Any, image: Any, head: Any) -> Any:
    return cam(head, model.fc_norm(model.forward_features(image)[:, 1:]))


def map_of(name: str) -> Callable[[Any, Any, Any], Any]:
    """By what enters the pooling: the output of the module `name`, [B, C, h, w], or its first input after "<"."""

    def maps(model: Any, image: Any, head: Any) -> Any:
        seen: list[Any] = []
        hook = model.get_submodule(name.lstrip("<")).register_forward_hook(
            lambda module, given, out: seen.append(given[0] if name.startswith("<") else out)
        )
        model(image)
        hook.remove()
        return cam(head, seen[0].flatten(2).transpose(1, 2))

    return maps


TIMM: dict[str, tuple[str, dict[str, Any], str, str, Callable[[Any, Any, Any], Any]]] = {
    "a ResNet": ("resnet10t", {}, "fc", ADDS_UP, map_of("layer4")),
    "the class token": ("test_vit", {"img_size": 64, "depth": 2}, "head", ALONE, tokens_of_timm),
    "a norm behind the mean": ("eva02_tiny_patch14_224", {"img_size": 56, "depth": 1}, "head", ALONE, normed_tokens),
    "windows, channels last": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 64, "window_size": 2, "depths": (1, 1), "embed_dim": 16, "num_heads": (1, 2)},
        "head.fc",
        ADDS_UP,
        lambda model, image, head: cam(head, model.forward_features(image).flatten(1, 2)),
    ),
}


@pytest.mark.parametrize("name", TIMM)
def test_towers_of_timm(name: str, tmp_path: Path) -> None:
    arch, more, head, described, maps = TIMM[name]
    torch.manual_seed(0)
    model, size = of_timm(arch, **more), more.get("img_size", 64)
    torch.save({"model": {f"module.{key}": value for key, value in model.state_dict().items()}}, tmp_path / "w.pt")
    options = {key: value for key, value in more.items() if key != "img_size"}
    preprocess = {"preprocess": {"size": size, **WAYS}}
    adapter = loaded(tmp_path / "w.pt", arch=f"timm:{arch}", arch_options=options, **preprocess)
    check(adapter, model, model.get_submodule(head), maps)
    assert adapter.saliency.description.endswith(described) and adapter.cautions() == ()


TORCHVISION: dict[str, tuple[str, str, Callable[[Any, Any, Any], Any]]] = {
    "a DenseNet": (
        "densenet121",
        "classifier",
        lambda model, image, head: cam(head, torch.relu(model.features(image)).flatten(2).transpose(1, 2)),
    ),
    "a ResNet": ("resnet18", "fc", map_of("layer4")),
    "an EfficientNet": ("efficientnet_b0", "classifier.1", map_of("features")),
    "a RegNet": ("regnet_y_400mf", "fc", map_of("trunk_output")),
    "a MobileNet": ("mobilenet_v2", "classifier.1", map_of("features")),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_towers_of_torchvision(name: str, tmp_path: Path) -> None:
    arch, head, maps = TORCHVISION[name]
    torch.manual_seed(1)
    model = of_torchvision(arch)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    adapter = loaded(tmp_path / "w.pt", arch=f"torchvision:{arch}")
    check(adapter, model, model.get_submodule(head), maps)
    assert adapter.saliency.description.endswith(ADDS_UP)
    at_resolution(adapter, 96)
    assert (adapter.resized, adapter.grid) == ("by size, trained at 64", (3, 3))


def test_a_densenet_of_one_grey_channel(tmp_path: Path) -> None:
    """As torchxrayvision has it: the first channel of the picture enters."""
    torch.manual_seed(6)
    model = torchvision.models.densenet121(num_classes=3)
    model.features.conv0 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    torch.save(live_statistics(model).state_dict(), tmp_path / "w.pt")
    adapter = loaded(tmp_path / "w.pt", arch="torchvision:densenet121")
    image = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        logits, _ = adapter.forward(image, torch.eye(2))
        torch.testing.assert_close(logits, model(image[:, :1])[:, :2], atol=1e-5, rtol=1e-4)


def test_a_vit_of_torchvision_and_its_positions(tmp_path: Path) -> None:
    from timm.layers import resample_abs_pos_embed

    torch.manual_seed(2)
    model = shaken(torchvision.models.VisionTransformer(64, 16, 1, 2, 32, 48, num_classes=3))
    with pytest.MonkeyPatch.context() as patch:
        from torchvision.models import vision_transformer

        whole = vision_transformer.VisionTransformer
        small = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 48}
        patch.setattr(vision_transformer, "VisionTransformer", lambda **sizes: whole(**{**sizes, **small}))
        torch.save(model.state_dict(), tmp_path / "w.pt")
        adapter = loaded(tmp_path / "w.pt", arch="torchvision:vit_b_16")

    def maps(model: Any, image: Any, head: Any) -> Any:
        x = model._process_input(image)
        return cam(head, model.encoder(torch.cat([model.class_token.expand(len(x), -1, -1), x], 1))[:, 1:])

    check(adapter, model, model.heads.head, maps)
    before = model.encoder.pos_embedding.detach()
    at_resolution(adapter, 96)
    wanted = resample_abs_pos_embed(before, [6, 6], num_prefix_tokens=1)
    torch.testing.assert_close(adapter.module.image.encoder.pos_embedding.data, wanted)
    assert (adapter.resized, adapter.grid) == ("positions resampled from 64", (6, 6))


def convnext_maps(model: Any, image: Any, head: Any) -> Any:
    hidden = model.convnext(image).last_hidden_state
    return cam(head, model.convnext.layernorm(hidden.flatten(2).transpose(1, 2)))


TRANSFORMERS: dict[str, tuple[Any, str, dict[str, Any], Callable[[Any, Any, Any], Any]]] = {
    "a DINOv2, class token and mean": (
        lambda: transformers.Dinov2Config(image_size=64, patch_size=16, **VIT),
        "Dinov2ForImageClassification",
        {"pooling": "cls+mean"},
        lambda model, image, head: cam(head, model.dinov2(image).last_hidden_state[:, 1:].repeat(1, 1, 2)),
    ),
    "a ViT of registers": (
        lambda: transformers.Dinov2WithRegistersConfig(image_size=64, patch_size=16, **VIT),
        "Dinov2WithRegistersForImageClassification",
        {"pooling": "cls+mean"},
        lambda model, image, head: cam(
            head, model.dinov2_with_registers(image).last_hidden_state[:, 5:].repeat(1, 1, 2)
        ),
    ),
    "a ViT": (
        lambda: transformers.ViTConfig(image_size=64, patch_size=16, **VIT),
        "ViTForImageClassification",
        {"pooling": "cls"},
        lambda model, image, head: cam(head, model.vit(image).last_hidden_state[:, 1:]),
    ),
    "windows": (
        lambda: transformers.SwinConfig(image_size=64, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
        "SwinForImageClassification",
        {},
        lambda model, image, head: cam(head, model.swin(image).last_hidden_state),
    ),
    "a ConvNeXt": (
        lambda: transformers.ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1]),
        "ConvNextForImageClassification",
        {},
        convnext_maps,
    ),
    "a ResNet": (
        lambda: transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1]),
        "ResNetForImageClassification",
        {},
        lambda model, image, head: cam(head, model.resnet(image).last_hidden_state.flatten(2).transpose(1, 2)),
    ),
    "a mean of the patches of a CLIP": (
        lambda: transformers.CLIPConfig(
            vision_config={"image_size": 64, "patch_size": 16, **VIT}, text_config={**VIT, "vocab_size": 20}
        ),
        "CLIPForImageClassification",
        {"pooling": "mean"},
        lambda model, image, head: cam(head, model.vision_model(image).last_hidden_state[:, 1:]),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_towers_of_transformers(name: str, tmp_path: Path) -> None:
    config, kind, options, maps = TRANSFORMERS[name]
    torch.manual_seed(3)
    model = of_transformers(config(), kind)
    model.save_pretrained(tmp_path)  # under the names of older releases, which the library restores
    adapter = loaded(tmp_path, arch=str(tmp_path), **options)
    head = model.classifier[1] if kind == "ResNetForImageClassification" else model.classifier
    check(adapter, model, head, maps)
    if name == "a ViT of registers":
        from timm.layers import resample_abs_pos_embed

        native = model.dinov2_with_registers.embeddings.position_embeddings.detach()
        at_resolution(adapter, 96)
        table = adapter.module.image.embeddings.position_embeddings.data
        torch.testing.assert_close(table, resample_abs_pos_embed(native, [6, 6], num_prefix_tokens=1))
        assert adapter.grid == (6, 6)


def test_a_tower_of_transformers_that_does_not_fit_its_file(tmp_path: Path) -> None:
    """What the library would fill with random values, and only report, is refused."""
    config = transformers.ViTConfig(image_size=64, patch_size=16, **VIT)
    model = of_transformers(config, "ViTForImageClassification")
    config.save_pretrained(tmp_path)
    state = model.state_dict()
    for change, words in (
        ({"vit.layernorm.bias": None}, r"tensors 1 missing \(layernorm.bias\)"),
        (
            {"vit.layernorm.bias": torch.zeros(3)},
            r"tensors 1 of another shape \(layernorm.bias \[3\] instead of \[32\]",
        ),
        ({"vit.extra.bias": torch.zeros(3)}, r"tensors 1 unexpected \(extra.bias\)"),
    ):
        changed = {name: tensor for name, tensor in {**state, **change}.items() if tensor is not None}
        torch.save(changed, tmp_path / "w.pt")
        with pytest.raises(CheckpointError, match=words):
            loaded(tmp_path / "w.pt", arch=str(tmp_path), pooling="cls")


def check(adapter: Any, model: Any, head: Any, maps: Callable[[Any, Any, Any], Any]) -> None:
    """The two outputs that count, in another order, against the library's forward and `maps`."""
    size = adapter.geometry.size
    image = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        logits, saliency = adapter.forward(image, torch.eye(2).flip(0))
        wanted = model(image)
        wanted = (wanted if isinstance(wanted, torch.Tensor) else wanted.logits)[:, [1, 0]]
        cells = maps(model, image, head)[:, [1, 0]]
    assert adapter.findings == ("Mass", "Pleural effusion") and saliency.shape[2:] == adapter.grid
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-4)
    largest = float(cells.abs().max())
    torch.testing.assert_close(saliency.flatten(2), cells, atol=1e-5 * largest, rtol=1e-4)


def test_a_bundle_from_configuration_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two heads and a projector before them, as Ark+ has; prompt sets hold the findings by torchxrayvision's names, or
    by the dataset's own."""
    torch.manual_seed(4)
    model = of_timm("resnet10t")
    projector, heads = torch.nn.Linear(512, 20), [torch.nn.Linear(20, outputs) for outputs in (5, 3)]
    state = {f"net.{name}": each for name, each in model.state_dict().items() if not name.startswith("fc")}
    for name, layer in {"projector": projector, "heads.0": heads[0], "heads.1": heads[1]}.items():
        state |= {f"net.{name}.{part}": tensor for part, tensor in layer.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pt")
    lines = [
        'bundles = ["bundles"]\n[models.mine]\nfamily = "classifier"\narch = "timm:resnet10t"\ncheckpoint = "w.pt"',
        '[models.mine.options]\nfindings = ["Effusion", "", "pleural thickening"]\nhead = ["projector", "heads.1"]',
        'unused = ["heads"]\npreprocess = {size = 64}',
    ]
    (tmp_path / "xbench.toml").write_text("\n".join(lines))
    assert main(["--config", str(tmp_path / "xbench.toml"), "--model", "mine"]) == 0
    said = capsys.readouterr().err
    assert (
        "caution: pictures enter as timm:resnet10t was trained on photographs (crop-64-64-bicubic, mean 0.485" in said
    )
    bundle = Bundle.load(tmp_path / "bundles" / "mine-64")
    manifest = bundle.manifest
    assert manifest.findings == ("Effusion", "pleural thickening") and "text" not in manifest.graphs
    assert manifest.saliency["kind"] == "activation" and manifest.weights == "own"
    sets = {name: bundle.prompt_set(name) for name in ("chexlocalize", "vindr")}
    asked = {name: dict(zip(each.findings, each.texts, strict=True)) for name, each in sets.items()}
    assert asked["chexlocalize"] == {"Pleural Effusion": "Effusion"}, "by torchxrayvision's name"
    assert asked["vindr"] == {"Pleural effusion": "Effusion", "Pleural thickening": "pleural thickening"}
    pixels = pictures(64)
    with open_engine(bundle, "onnxruntime-cpu", threads=1) as engine:
        scores = engine.run(pixels.numpy(), np.eye(2, dtype=np.float32))
    with torch.inference_mode():
        image = normalised(pixels, timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD)
        x = model.forward_features(image)
        wanted = heads[1](projector(x.mean((2, 3))))[:, [0, 2]]
        weight = heads[1].weight @ projector.weight
        cells = torch.einsum("fc,bchw->bfhw", weight, x)[:, [0, 2]]
    np.testing.assert_allclose(scores.logits, wanted, atol=1e-4 * float(wanted.abs().max()))
    np.testing.assert_allclose(scores.saliency, cells, atol=1e-4 * float(cells.abs().max()))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    torch.save(of_timm("test_vit", img_size=64, depth=2).state_dict(), folder / "w.pt")
    state = torch.load(folder / "w.pt")
    deep = {"head.1.weight": state.pop("head.weight"), "head.3.weight": torch.ones(3, 3)}
    del state["head.bias"]
    torch.save({**state, **deep}, folder / "mlp.pt")
    head = {"head.weight": torch.ones(3, 64), "head.bias": torch.ones(3)}
    torch.save(head | {f"{net}.{name}": each for net in "ab" for name, each in state.items()}, folder / "twice.pt")
    transformers.ViTConfig(image_size=64, patch_size=16, **VIT).save_pretrained(folder / "vit")
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"findings": ["A", "B"]}, r"^The head 'head' of .* has 3 outputs, and 'findings' names 2; name"),
        ({"findings": ["A", "A", "B"]}, r"^The findings of .* name each output once, and one at least\.$"),
        ({"findings": "Mass"}, r"^The family classifier: 'findings' must be a list, not 'Mass'\.$"),
        ({"findings": None}, r"^A model of the family classifier needs 'arch', its tower, and the option 'fi"),
        ({"arch": "timm:resnet10x"}, r"^timm has no model 'resnet10x': did you mean 'resnet10t'"),
        ({"head": "fc"}, r"has no layer 'fc'; "),
        ({"path": "mlp.pt"}, r"^The head 'head' of .*mlp.pt is not one linear layer, because it has the parts"),
        ({"path": "twice.pt"}, r"has the tensors of timm:test_vit under 'a\.' and 'b\.'; state one of them as 'pre"),
        ({"head": "norm"}, r"^The head 'norm' of .* is a LayerNorm, and a class activation map needs a linear"),
        ({"pooling": "max"}, r"^The option 'pooling' is 'max': "),
        ({"pooling": "cls+mean"}, r"^The head takes 64 values, and timm:test_vit, pooled by 'cls\+mean', gives 128; "),
        ({"arch_options": {"depth": 3}}, r"does not fit the model timm:test_vit: tensors 12 missing \(blocks\.2\."),
        ({"arch_options": {"depth": 1}}, r"has 12 tensors that are no part of timm:test_vit with the head"),
        (
            {"arch": "timm:mobilenetv3_small_050", "arch_options": {}},
            r"is not linear: behind its pooling is 'conv_head', a Conv2d, 'act2', a Hard",
        ),
        ({"arch": "torchvision:mobilenet_v3_small", "arch_options": {}}, r"'classifier.1', a Hardswish"),
        ({"arch": "torchvision:squeezenet1_1", "arch_options": {}}, r"^torchvision:squeezenet1_1 is a SqueezeNet, "),
        ({"arch": "torchvision:resnet18", "arch_options": {}, "pooling": "cls"}, r"is pooled as its class does it"),
        ({"arch": "VIT"}, r"^The head of the tower of .* is not linear: behind its pooling is 'pooler.dense', a"),
        ({"arch": "VIT", "preprocess": {"size": 64}}, r"^The option 'preprocess' of a tower of transformers rep"),
        ({"arch": "VIT", "preprocess": {}, "pooling": "cls"}, r"it needs its preprocessor_config\.json\.$"),
        ({"preprocess": {"size": 64, "resize": 32}}, r"^timm:test_vit: pictures resized to 32 and cut to 64"),
        ({"preprocess": {"size": 64, "mean": [0.5]}}, r"'mean' must be three numbers"),
    ],
)  # fmt: skip
def test_what_is_refused(small: Path, changes: dict[str, Any], words: str) -> None:
    right = {"arch": "timm:test_vit", "arch_options": {"depth": 2}}
    options = {**right, **changes}
    if options["arch"] == "VIT":
        options |= {"arch": str(small / "vit"), "arch_options": {}}
    with pytest.raises((ConfigError, CheckpointError), match=words) as raised:
        loaded(small / options.pop("path", "w.pt"), **options)
    assert "\n" not in str(raised.value)


def test_one_of_two_towers_by_its_prefix_and_pictures_as_timm_takes_them(small: Path) -> None:
    options = {"arch": "timm:test_vit", "arch_options": {"depth": 2}}
    assert loaded(small / "twice.pt", prefix="a", unused=["b."], **options).grid == (4, 4)
    for name, given, key in (
        ("resnet10t", {}, "crop-176-201-bicubic"),
        ("resnet10t", {"resize_mode": "squash"}, "squash-176-176-bicubic"),
        ("resnet10t", {"size": 96, "resize": 128}, "crop-96-128-bicubic"),
        ("test_vit", {"size": 96, "interpolation": "bilinear"}, "crop-96-96-bilinear"),
    ):
        from xbench_fast.export.models.families.backbones import backbone

        assert backbone(f"timm:{name}", {"preprocess": given}, "own").entry.geometry.key == key


def test_a_classifier_reads_no_text(small: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [
        "[models.mine]",
        'family = "classifier"',
        'arch = "timm:test_vit"',
        f"checkpoint = '{small}'",
    ]
    (tmp_path / "xbench.toml").write_text("\n".join([*lines, 'text_encoder = "bert"']))
    assert main(["--config", str(tmp_path / "xbench.toml"), "--model", "mine", "--out", str(tmp_path / "out")]) == 2
    assert "has no option 'text_encoder'" in capsys.readouterr().err
