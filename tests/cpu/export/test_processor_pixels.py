"""Pixels of the family transformers: each rule of an image processor is the one of transformers itself."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from xbench_fast.engines.errors import ConfigError
from xbench_fast.export.models.families.preprocessing import from_processor
from xbench_fast.runtime.data.images.resizing import field_of_view, to_model

transformers = pytest.importorskip("transformers")

CROP = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}


def with_pillow(model: str, name: str) -> Any:
    """The class that resizes with Pillow, which transformers 5 calls otherwise."""
    try:
        module = import_module(f"transformers.models.{model}.image_processing_pil_{model}")
    except ImportError:
        return getattr(transformers, name)
    return getattr(module, f"{name}Pil")


def library(processor: Any, grey: np.ndarray) -> np.ndarray:
    """What the library makes of an image, in grey levels."""
    found = processor(Image.fromarray(grey).convert("RGB"), return_tensors="np")["pixel_values"]
    return np.round(np.asarray(found)[0, 0] * 255).astype(np.uint8)


def test_the_centre_begins_where_that_of_transformers_begins() -> None:
    """The width is that of the crop, so that nothing is resized. torchvision's rule is another one for each height
    that is 3 above a multiple of 4."""
    processor = transformers.CLIPImageProcessor(do_normalize=False)
    geometry = from_processor(processor, 224, "x").geometry
    for height in range(224, 300):
        grey = np.tile((np.arange(height)[:, None] * 7) % 251, (1, 224)).astype(np.uint8)
        np.testing.assert_array_equal(to_model(grey, geometry), library(processor, grey), str(height))
        np.testing.assert_array_equal(to_model(grey.T, geometry), library(processor, grey.T), str(height))
        assert field_of_view(geometry, height, 224)[0] == ((height - 224) // 2) / height


@pytest.mark.parametrize(
    ("model", "name", "more"),
    [
        ("clip", "CLIPImageProcessor", CROP),
        ("clip", "CLIPImageProcessor", CROP | {"resample": 2}),
        ("bit", "BitImageProcessor", CROP),
        ("blip", "BlipImageProcessor", {"size": {"height": 32, "width": 32}, "do_center_crop": False}),
        ("siglip", "SiglipImageProcessor", {"size": {"height": 32, "width": 32}}),
        ("vit", "ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
    ],
)
def test_pixels_are_those_of_transformers_with_pillow(model: str, name: str, more: dict[str, Any]) -> None:
    processor = with_pillow(model, name)(do_normalize=False, **more)
    geometry = from_processor(processor, 32, "x").geometry
    random = np.random.default_rng(0)
    for height, width in ((47, 61), (61, 47), (200, 41), (33, 150), (39, 40), (20, 31)):
        grey = random.integers(0, 256, (height, width), np.uint8)
        np.testing.assert_array_equal(to_model(grey, geometry), library(processor, grey), f"{height} x {width}")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 32}}),  # resizes to 36 and cuts
        ("LevitImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
        ("EfficientNetImageProcessor", {"size": {"height": 32, "width": 32}}),
    ],
)
def test_a_processor_with_rules_of_its_own_is_refused(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"The file is a {name}.*, whose rules are not known here: known are CLIPIm"):
        from_processor(getattr(transformers, name)(**more), 32, "The file")


def test_a_crop_larger_than_the_resized_side_names_the_file(tmp_path: Path) -> None:
    from xbench_fast.export.models.families.transformers import TransformersAdapter

    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**tower, "image_size": 32, "patch_size": 16}
    config = transformers.CLIPConfig(text_config={**tower, "vocab_size": 50}, vision_config=vision, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    transformers.CLIPImageProcessor(**CROP | {"size": {"shortest_edge": 28}}).save_pretrained(tmp_path)
    with pytest.raises(
        ConfigError, match=r"of .*preprocessor_config\.json.* 28 pixels \(shortest_edge\), less than the 32"
    ):
        TransformersAdapter.load(tmp_path)
