"""Models at another size of the picture: positions against open_clip and timm, graphs against torch, refusals."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_models import MODELS, small_adapter
from xbench_fast.engines.errors import ConfigError
from xbench_fast.export.adapter import Adapter
from xbench_fast.export.resolution import at_resolution

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.usefixtures("one_thread_of_torch")

PAGE = Path(__file__).parents[3] / "docs" / "parity.md"
SIDES = {"biovil": 320, "biovil_t": 320, "devide": 280, "xrv": 64}
ALIKE = ("medklip", "biovil_t", "devide")
"""Their graphs are made of the same parts as those of mavl, biovil, and carzero with kad."""
VIT = {"layers": 1, "width": 32, "head_width": 16}


def documented() -> dict[str, str]:
    """Model -> the second column of the table in docs/parity.md §8."""
    rows = PAGE.read_text().partition("## §8 ")[2].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")]
    return {row[0]: row[1] for row in cells[1:]}


def by_open_clip(table: Any, cells: int) -> Any:
    """open_clip's own resampling of a table [1 + n * n, C]."""
    from open_clip.model import resize_pos_embed

    state = {"visual.positional_embedding": table.detach().clone()}
    resize_pos_embed(state, SimpleNamespace(visual=SimpleNamespace(grid_size=(cells, cells))))
    return state["visual.positional_embedding"]


def near(have: Any, want: Any) -> None:
    torch.testing.assert_close(have.detach(), want.detach(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_at_another_size(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table of the docs, the facts of the bundle, and ONNX Runtime against torch."""
    import onnxruntime
    from xbench_fast.export.onnx_graph import ImageGraph, export_image

    adapter = small_adapter(name, monkeypatch)
    native, side, old, grid = adapter.resolution, SIDES.get(name, 160), adapter.geometry, adapter.grid
    variant = adapter.variant
    assert at_resolution(adapter, None) is at_resolution(adapter, native) and not adapter.resized
    assert (adapter.geometry, adapter.grid, adapter.variant) == (old, grid, variant)
    how = {"resampled": "positions resampled from", "by size": "by size, trained at"}[documented()[name]]
    at_resolution(adapter, side)
    assert (adapter.resized, adapter.variant) == (f"{how} {native}", f"{variant}-at-{side}")
    size = adapter.geometry.size
    assert adapter.resolution == side and size == round(old.size * side / native)
    assert adapter.geometry.resize == round(old.resize * side / native) and adapter.grid != grid
    if name in ALIKE:
        return
    export_image(adapter, tmp_path)
    generator = torch.Generator().manual_seed(4)
    pixels = torch.randint(0, 256, (3, 1, size, size), generator=generator, dtype=torch.uint8)
    rows = torch.eye(*adapter.text_shape)[:2] if adapter.findings else torch.randn(2, *adapter.text_shape)
    with torch.inference_mode():
        wanted = ImageGraph(adapter).eval()(pixels, rows)
    session = onnxruntime.InferenceSession(str(tmp_path / "image.onnx"))
    for have, want in zip(session.run(["logits", "saliency"], {"pixels": pixels.numpy(), "text": rows.numpy()}),
                          (wanted[0], wanted[1]), strict=True):  # fmt: skip
        assert have.shape == want.shape
        assert np.abs(have - want.numpy()).max() <= 1e-4 * max(float(want.abs().max()), 1e-3)
    assert wanted[1].shape[2:] == adapter.grid


@pytest.mark.parametrize("side", [128, 448])
def test_positions_of_the_adapters_are_open_clips_and_timms(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from timm.layers import resample_abs_pos_embed

    for name, patch in (("clip", 32), ("chexzero", 32), ("biomedclip", 32), ("carzero", 32)):
        adapter: Any = small_adapter(name, monkeypatch)
        tower = {
            "clip": lambda a: a.module.visual,
            "chexzero": lambda a: a.module.members[0].visual,
            "biomedclip": lambda a: a.module.visual.trunk,
            "carzero": lambda a: a.module.img_encoder["model"],
        }[name](adapter)
        table = "positional_embedding" if hasattr(tower, "positional_embedding") else "pos_embed"
        before = getattr(tower, table).detach().clone()
        at_resolution(adapter, side)
        after, cells = getattr(tower, table), side // patch
        if table == "pos_embed":
            near(after, resample_abs_pos_embed(before, [cells, cells], num_prefix_tokens=1))
            before, after = before[0], after[0]
        near(after, by_open_clip(before, cells))
        assert after.shape[0] == 1 + cells**2 and not after.requires_grad


@pytest.mark.parametrize("kind", ["vit", "resnet", "timm", "convnext"])
def test_towers_of_open_clip(kind: str) -> None:
    """Against the same tower built at the new size, its positions by open_clip, or by timm in its forward."""
    from timm.layers import resample_abs_pos_embed
    from xbench_fast.export.models.layers.positions import resize_tower

    vision: dict[str, Any] = {
        "vit": {**VIT, "image_size": 32, "patch_size": 8},
        "resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16},
        "timm": {"image_size": 224, "timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": "linear"},
        "convnext": {"image_size": 64, "timm_model_name": "test_convnext", "timm_pool": "", "timm_proj": "linear"},
    }[kind]
    side = vision["image_size"] * 3 // 2
    torch.manual_seed(3)
    build = open_clip.model._build_vision_tower
    tower = build(24, open_clip.CLIPVisionCfg(**vision)).eval()
    other = build(24, open_clip.CLIPVisionCfg(**{**vision, "image_size": side})).eval()
    state = {name: value.detach().clone() for name, value in tower.state_dict().items()}
    for name, cells in (("positional_embedding", side // 8), ("attnpool.positional_embedding", side // 32)):
        if name in state:
            state[name] = by_open_clip(state[name], cells)
    other.load_state_dict(state)  # of timm's tower, which resamples in each call
    resize_tower(tower, side, "it")
    if kind == "timm":
        near(tower.trunk.pos_embed, resample_abs_pos_embed(state["trunk.pos_embed"], [side // 16] * 2))
    with torch.inference_mode():
        image = torch.randn(2, 3, side, side)
        near(tower(image), other(image))
    if kind != "convnext":
        with pytest.raises(ConfigError, match=r"it takes no pictures of .* because its patches have"):
            resize_tower(tower, side + 1, "it")


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_towers_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    from timm.layers import resample_abs_pos_embed
    from xbench_fast.export.models.families.transformers import TransformersAdapter

    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"clip": transformers.CLIPVisionConfig, "siglip": transformers.SiglipVisionConfig}[kind]
    built = {"clip": transformers.CLIPVisionModel, "siglip": transformers.SiglipVisionModel}[kind]
    torch.manual_seed(1)
    model, other = (built(config(image_size=size, patch_size=8, **small)).eval() for size in (32, 48))
    state, name = model.state_dict(), ""
    for name in [name for name in state if name.endswith("position_embedding.weight")]:
        state[name] = (
            by_open_clip(state[name], 6)
            if kind == "clip"
            else resample_abs_pos_embed(state[name][None], [6, 6], num_prefix_tokens=0)[0]
        )
    other.load_state_dict(state)
    tower = getattr(model, "vision_model", model)
    adapter: Any = SimpleNamespace(module=SimpleNamespace(vision_model=tower), name="mine")
    TransformersAdapter.resize(adapter, 48)
    image = torch.randn(2, 3, 48, 48)
    with torch.inference_mode():
        near(model(image).pooler_output, other(image).pooler_output)
    assert adapter.grid == (6, 6)
    with pytest.raises(ConfigError, match="multiple, such as 48"):
        TransformersAdapter.resize(adapter, 50)


def test_towers_that_have_one_size() -> None:
    from xbench_fast.export.models.layers.positions import resize_tower

    fixed = SimpleNamespace(trunk=SimpleNamespace(pos_embed=torch.zeros(1, 5, 4)))
    with pytest.raises(ConfigError, match="it has one size, because its SimpleNamespace of timm cannot resample"):
        resize_tower(fixed, 64, "it")
    owner: Any = SimpleNamespace(name="mine", resolution=224)
    with pytest.raises(ConfigError, match=r"mine takes pictures of 224 x 224 pixels alone.*'resize'"):
        Adapter.resize(owner, 448)


def test_a_refusal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = small_adapter("clip", monkeypatch)
    with pytest.raises(ConfigError, match="multiple, such as 224"):
        at_resolution(adapter, 230)
    assert not adapter.resized and adapter.geometry.size == 224 and adapter.module.visual.grid_size == (7, 7)


def test_the_cost_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    from xbench_fast.export.cost import measure_cost

    adapter = small_adapter("medklip", monkeypatch)
    before = measure_cost(adapter).image_macs
    assert measure_cost(at_resolution(adapter, 448)).image_macs == pytest.approx(4 * before, rel=0.01)
