"""Each of the models with few and narrow layers: the code of the real ones, exported in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import MODEL_ORDER, Manifest
from xbench_fast.engines.prompts.prompt_set import PromptSet
from xbench_fast.export import Adapter, stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import fill_module
from xbench_fast.export.models import (
    afloc,
    biomedclip,
    biovil,
    carzero,
    chexzero,
    clinical_bert,
    clip,
    devide,
    mavl,
    medklip,
    xrv,
)
from xbench_fast.export.models.carzero import CarzeroConfig
from xbench_fast.export.models.class_activation import with_rows
from xbench_fast.export.models.kad_checkpoint import KadConfig
from xbench_fast.export.models.layers.bert import BertConfig
from xbench_fast.export.models.layers.query_decoder import DecoderConfig
from xbench_fast.export.models.layers.resnet import ResNetConfig
from xbench_fast.export.models.layers.vit import ViTConfig
from xbench_fast.export.onnx_graph import export_image, image_spec, not_learnt

VIT = ViTConfig(patch=32, width=32, layers=2, heads=2, hidden=64)
BERT = BertConfig(vocabulary=64, width=32, layers=1, heads=2, hidden=32, pooler=False)
DECODER = DecoderConfig(width=32, layers=2, heads=2, hidden=48)
RESNET = ResNetConfig(stem=8, widths=(8, 8, 16), blocks=(1, 1, 1))


def _filled(build: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        module = build()
    fill_module(module, 0)
    return module


def _carzero() -> Adapter:
    decoder = DecoderConfig(width=32, layers=2, heads=2, hidden=48, self_attention=False)
    config = CarzeroConfig(words=5, vit=VIT, bert=BERT, decoder=decoder, head=(32, 16))
    return carzero.CarzeroAdapter._describe(_filled(lambda: carzero.Carzero(config)), "stand-in", None)


def _afloc() -> Adapter:
    resnet = ResNetConfig(stem=8, widths=(8, 8, 16, 16), blocks=(1, 1, 1, 1))
    return afloc.AflocAdapter._describe(_filled(lambda: afloc.Afloc(BERT, resnet)), "stand-in", None)


def _devide() -> Adapter:
    text = replace(BERT, hidden=48, positions=64, pooler=True)
    vit = ViTConfig(patch=56, width=32, layers=1, heads=2, hidden=48)
    config = devide.DevideConfig(vit, KadConfig(bert=text, decoder=DECODER))
    return devide.DevideAdapter._describe(_filled(lambda: devide.Devide(config)), "stand-in", None)


def _biomedclip() -> Adapter:
    return biomedclip.BiomedClipAdapter._describe(_filled(lambda: biomedclip.BiomedClip(VIT, BERT)), "stand-in", None)


def _biovil(monkeypatch: pytest.MonkeyPatch, adapter: type[Adapter]) -> Adapter:
    bert, resnet = replace(BERT, positions=64), ResNetConfig(stem=8, widths=(4, 4, 8, 8), blocks=(1, 1, 1, 1))
    monkeypatch.setattr(biovil, "BertConfig", lambda **sizes: replace(bert, **sizes))
    monkeypatch.setattr(biovil, "ResNetConfig", lambda: resnet)
    return adapter.stand_in(adapter.variants[0])


def _clip(monkeypatch: pytest.MonkeyPatch, adapter: type[clip.ClipAdapter]) -> Adapter:
    model = pytest.importorskip("open_clip.model")
    vision, text = model.CLIPVisionCfg, model.CLIPTextCfg
    small = {"layers": 2, "width": 64}
    monkeypatch.setattr(model, "CLIPVisionCfg", lambda **sizes: vision(**{**sizes, **small, "head_width": 32}))
    monkeypatch.setattr(model, "CLIPTextCfg", lambda **sizes: text(**{**sizes, **small, "heads": 2}))
    return adapter.stand_in("vit-b-32")


def small_xrv(variant: str = "nih") -> Adapter:
    """torchxrayvision's DenseNet with few layers and pixels."""
    module = _filled(lambda: xrv.XrvDenseNet(len(xrv.LABELS), (1, 1, 1, 1)))
    module.classifier = with_rows(module.classifier, [xrv.LABELS.index(name) for name in xrv.TRAINED[variant]])
    adapter = xrv.XrvAdapter._describe(module, variant, xrv.TRAINED[variant], "stand-in", None)
    return replace(adapter, geometry=Geometry("crop", 32, 32, "bilinear"), grid=(0, 0))


def _clinical(monkeypatch: pytest.MonkeyPatch, module: Any, adapter: type[Adapter]) -> Adapter:
    for place in (clinical_bert, module):
        for name, value in (("RESNET", RESNET), ("DECODER", DECODER), ("BERT", BertConfig(64, 768, 1, 2, 32))):
            monkeypatch.setattr(place, name, value, raising=False)
    return adapter.stand_in("224")


def small_adapter(name: str, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """The model `name`, small."""
    makers: dict[str, Callable[[], Adapter]] = {
        "afloc": _afloc,
        "biomedclip": _biomedclip,
        "biovil": lambda: _biovil(monkeypatch, biovil.BioVilAdapter),
        "biovil_t": lambda: _biovil(monkeypatch, biovil.BioVilTAdapter),
        "carzero": _carzero,
        "chexzero": lambda: _clip(monkeypatch, chexzero.ChexzeroAdapter),
        "clip": lambda: _clip(monkeypatch, clip.ClipAdapter),
        "devide": _devide,
        "kad": lambda: stand_in_adapter("kad", "demo"),
        "mavl": lambda: _clinical(monkeypatch, mavl, mavl.MavlAdapter),
        "medklip": lambda: _clinical(monkeypatch, medklip, medklip.MedKlipAdapter),
        "xrv": small_xrv,
    }
    return makers[name]()


QUERIES = [("Mass", 1), ("Mass", 1), ("Mass", -1), ("Effusion", 1), ("Effusion", -1), ("Unicorn", 1)]
"""(finding, polarity) of each query of the set `coco`."""

MODELS = MODEL_ORDER


def image_bundle(adapter: Adapter, folder: Path, sets: dict[str, PromptSet]) -> Bundle:
    """A bundle at `folder` with the adapter's image graph and prompt sets whose features are made up."""
    source = folder.parent / f".source-{folder.name}"
    source.mkdir()
    export_image(adapter, source)
    files = {"image.onnx": source / "image.onnx"}
    for item in sets.values():
        item.save(source / item.file)
        files[item.file] = source / item.file
    manifest = Manifest(
        model=adapter.name,
        variant=adapter.variant,
        weights="stand-in",
        checkpoint=None,
        geometry=adapter.geometry,
        grid=adapter.grid,
        saliency={"kind": adapter.saliency.kind, "description": adapter.saliency.description},
        logit_scale=adapter.logit_scale,
        not_learnt=not_learnt(adapter, files["image.onnx"]),
        text={} if adapter.findings else {"context": adapter.context},
        graphs={"image": image_spec(adapter)},
        prompt_sets={name: item.record() for name, item in sets.items()},
        opset=20,
        exporter={"test": "1"},
        parity={},
        findings=adapter.findings,
    )
    return write_bundle(folder, manifest, files)


def made_up_set(adapter: Adapter, name: str, queries: list[tuple[str, int]], seed: int) -> PromptSet:
    """A set of random features, of a supervised model of its findings in turn; `queries` are (finding, polarity)."""
    findings = tuple(dict.fromkeys(finding for finding, _ in queries))
    shape = (len(queries), *adapter.text_shape)
    features = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    if adapter.findings:
        features = np.eye(len(adapter.findings), dtype=np.float32)[: len(queries)]
    return PromptSet(
        name=name,
        findings=findings,
        texts=tuple(f"text {number}" for number in range(len(queries))),
        finding_of=np.array([findings.index(finding) for finding, _ in queries], np.int32),
        polarity=np.array([polarity for _, polarity in queries], np.int8),
        features=features,
        status=("own",) * len(findings),
    )
