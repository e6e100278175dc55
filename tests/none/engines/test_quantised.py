"""INT8 bundles: which processor and engine may run which form, and what bundle.json says of one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from synthetic import BlockEngine, make_bundle
from xbench_fast.engines import quantised
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import BundleError, EngineError
from xbench_fast.engines.manifest import CalibrationImage, Manifest, Quantisation
from xbench_fast.engines.manifest_json import parse_manifest
from xbench_fast.engines.quantised import FORMS, engine_complaint, sums_exactly

FLAGS = "processor\t: 0\nflags\t\t: fpu sse4_2 avx2 avx512f {}\nbugs\t\t: spectre\n"
IMAGES = (CalibrationImage("annotations.csv row 2", "a" * 64),)


def quantisation(form: Any) -> Quantisation:
    return Quantisation(
        form, "min-max", "the dataset 'mine'", IMAGES, 7, ("node_Conv_1",), "1", "onnxruntime 1", ("OpenVINO",)
    )


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return dataclasses.replace(make_bundle(tmp_path / "b").manifest, precision="int8")


@pytest.mark.parametrize(
    ("machine", "text", "exact"),
    [
        ("x86_64", FLAGS.format("avx512_vnni"), True),
        ("AMD64", FLAGS.format("avx_vnni"), True),
        ("x86_64", FLAGS.format("avx512_vnni2"), False),
        ("x86_64", FLAGS.format(""), False),
        ("x86_64", "", False),
        ("x86_64", "bugs : avx512_vnni\n", False),
        ("aarch64", "", True),
        ("arm64", FLAGS.format(""), True),
    ],
)
def test_vnni_is_read_from_the_flags(machine: str, text: str, exact: bool) -> None:
    assert sums_exactly(machine, text) == exact


@pytest.mark.parametrize("saturates", [False, True])
def test_each_engine_takes_the_forms_that_give_the_measured_numbers(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch, saturates: bool
) -> None:
    monkeypatch.setattr(quantised, "saturates", lambda: saturates)
    cut = set() if not saturates else {"vnni", "tensorrt", None}
    refused = {
        "onnxruntime-cpu": cut,
        "onnxruntime-cuda": {*FORMS, None},
        "torch": {*FORMS, None},
        "tensorrt": {"vnni", "any-cpu"},
        "tensorrt-rtx": {"vnni", "any-cpu"},
        "of somebody else": set[str | None](),
        "somebody_s_openvino": {*FORMS, None},
    }
    for backend, forms in refused.items():
        for form in (*FORMS, None):
            entry = None if form is None else quantisation(form)
            found = engine_complaint(dataclasses.replace(manifest, quantisation=entry), "kad-int8", backend)
            assert (found is not None) == (form in forms), (backend, form)
            assert found is None or (found.startswith("kad-int8 ") and "; " in found)
        for other in ("fp32", "fp16", "bf16"):
            assert engine_complaint(dataclasses.replace(manifest, precision=other), "kad", backend) is None


def test_no_engine_opens_a_graph_whose_sums_would_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path / "b")
    entry = dataclasses.replace(bundle.manifest, precision="int8", quantisation=quantisation("vnni"))
    bundle = Bundle(bundle.path, entry, bundle.digest)
    monkeypatch.setattr(BlockEngine, "backend", "onnxruntime-cpu")
    monkeypatch.setattr(quantised, "saturates", lambda: True)
    with pytest.raises(
        EngineError, match=r"this processor has no VNNI.* give other numbers; export it with --int8-for"
    ):
        BlockEngine(bundle).__enter__()
    monkeypatch.setattr(quantised, "saturates", lambda: False)
    with BlockEngine(bundle):
        pass


def test_the_manifest_holds_how_it_was_quantised(manifest: Manifest) -> None:
    assert set(get_args(get_type_hints(Quantisation)["form"])) == set(FORMS)
    for form in FORMS:
        written = dataclasses.replace(manifest, quantisation=quantisation(form))
        assert parse_manifest(written.dump(), "here").quantisation == quantisation(form)
    older = json.loads(written.dump())
    for key in ("checksum", "compared_on", "not_on"):
        (older if key == "checksum" else older["quantisation"]).pop(key)
    read = parse_manifest(json.dumps(older).encode(), "here").quantisation
    assert read is not None and (read.compared_on, read.not_on, read.reader) == ("", (), "1")
    plain = json.loads(dataclasses.replace(manifest, precision="fp32").dump())
    assert "quantisation" not in plain
    with pytest.raises(BundleError, match="'quantisation' belongs to int8, and the precision is fp16"):
        parse_manifest(dataclasses.replace(written, precision="fp16").dump(), "here")
    for change in ({"form": "avx2"}, {"layers": 0}, {"images": [{"name": "a", "sha256": "b"}]}):
        raw = {**json.loads(written.dump()), "checksum": None}
        raw["quantisation"].update(change)
        del raw["checksum"]
        with pytest.raises(BundleError, match="not valid at 'quantisation"):
            parse_manifest(json.dumps(raw).encode(), "here")
