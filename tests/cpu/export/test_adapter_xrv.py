"""torchxrayvision's DenseNet-121, loaded from a module saved whole, against its own outputs (docs/parity.md §3.12)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from small_models import small_xrv
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import SCHEMA_FIXED
from xbench_fast.export import load_adapter
from xbench_fast.export.bundle_options import BundleOptions
from xbench_fast.export.checkpoints.stand_in import fill
from xbench_fast.export.cli.radiographs import EvaluationMetrics
from xbench_fast.export.models.published_checkpoints import PUBLISHED
from xbench_fast.export.models.xrv import LABELS, TRAINED, XrvDenseNet
from xbench_fast.export.onnx_graph import ImageGraph
from xbench_fast.export.pipeline import export_adapter

torch.set_num_threads(2)

TOLERANCE = 2e-5  # of the golden's largest value
MODULE = "torchxrayvision.models"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published files of two variants with equal stand-in values: whole modules of a class that is not installed
    when they are read, the second in the form of torch before 1.6."""
    made = tmp_path_factory.mktemp("xrv")
    published = type("DenseNet", (XrvDenseNet,), {"__module__": MODULE})
    package, module = ModuleType(MODULE.partition(".")[0]), ModuleType(MODULE)
    module.DenseNet = published  # type: ignore[attr-defined]
    network = published(18)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    network.load_state_dict({name: torch.from_numpy(np.asarray(fill(name, shape))) for name, shape in shapes.items()})
    network.register_buffer("op_threshs", torch.full((18,), torch.nan))
    with pytest.MonkeyPatch.context() as patch:
        for each in (package, module):
            patch.setitem(sys.modules, each.__name__, each)
        torch.save(network, made / name_of("all"))
        torch.save(network, made / name_of("rsna"), _use_new_zipfile_serialization=False)
    return made


def name_of(variant: str) -> str:
    return Path(PUBLISHED["xrv"].variants[variant].paths[-1]).name


def golden(root: Path) -> tuple[NDArray[np.uint8], dict[str, NDArray[Any]]]:
    """The pixels [2, 1, 224, 224] and arrays of tests/golden/models."""
    count = 224 * 224
    pixels = [np.random.PCG64(seed).random_raw(count // 8).view(np.uint8).reshape(1, 224, 224) for seed in (1, 2)]
    with np.load(root / "tests" / "golden" / "models" / "xrv.npz") as file:
        return np.stack(pixels), dict(file)


def check(found: torch.Tensor, wanted: NDArray[Any]) -> None:
    error = float(np.abs(found.numpy() - wanted).max() / np.abs(wanted).max())
    print(f"{error:.1e} of the largest value")
    assert found.shape == wanted.shape and error <= TOLERANCE


def test_outputs_are_torchxrayvisions(folder: Path, root: Path) -> None:
    adapter = load_adapter("xrv", folder / name_of("all"))
    pixels, arrays = golden(root)
    assert adapter.findings == LABELS and adapter.variant == "all" and adapter.grid == (7, 7)
    assert adapter.geometry == Geometry("crop", 224, 224, "bilinear")
    seen: list[torch.Tensor] = []
    for part in ("", ".transition2"):
        adapter.module.get_submodule(f"features{part}").register_forward_hook(
            lambda _, given, out: seen.extend((given[0], out))
        )
    with torch.inference_mode():
        logits, maps = ImageGraph(adapter)(torch.from_numpy(pixels), torch.eye(18).flip(0))
    _, middle, image, features = seen
    assert (float(image.min()), float(image.max())) == (-1024, 1024) and image.shape == pixels.shape
    check(middle[:, ::32, ::4, ::4], arrays["middle"])
    check(torch.relu(features)[:, ::16], arrays["features"])
    check(logits.flip(1), arrays["logits"])
    check(maps.flip(1), arrays["cam"])


def test_only_trained_outputs_are_kept(folder: Path) -> None:
    adapter = load_adapter("xrv", folder / name_of("rsna"))
    assert adapter.findings == ("Pneumonia", "Lung Opacity") and adapter.text_shape == (2,)
    for name, wanted in (("weight", fill("classifier.weight", (18, 1024))), ("bias", fill("classifier.bias", (18,)))):
        np.testing.assert_array_equal(adapter.module.classifier.get_parameter(name).numpy(), wanted[[8, 16]])


def test_what_a_file_knows_follows_from_its_name(folder: Path, tmp_path: Path) -> None:
    assert {variant: len(findings) for variant, findings in TRAINED.items()} == {
        "all": 18, "nih": 14, "pc": 15, "chex": 11, "mimic_nb": 11, "mimic_ch": 11, "rsna": 2
    }  # fmt: skip
    assert set(TRAINED["pc"]) - set(TRAINED["nih"]) == {"Fracture"} and "Lung Lesion" not in TRAINED["pc"]
    assert set(TRAINED["chex"]) - set(TRAINED["nih"]) == {*LABELS[14:]} and set(TRAINED["rsna"]) == {
        LABELS[8],
        LABELS[16],
    }
    other = tmp_path / "best.pt"
    other.symlink_to(folder / name_of("all"))
    with pytest.raises(CheckpointError, match=r"has none of the published names.*'findings' under \[models\.NAME"):
        load_adapter("xrv", other)
    names = ["Blob", *[""] * 16, "Rod"]
    adapter = load_adapter("xrv", other, findings=names)
    assert (adapter.variant, adapter.findings) == ("own", ("Blob", "Rod"))
    for wrong in (["Blob", "Blob", *[""] * 16], [""] * 18):
        with pytest.raises(ConfigError, match="name each output once, and one at least"):
            load_adapter("xrv", other, findings=wrong)
    with pytest.raises(CheckpointError, match=r"classifier.weight \[18, 1024\] instead of \[2, 1024\]"):
        load_adapter("xrv", other, findings=["Blob", "Rod"])
    with pytest.raises(CheckpointError, match="it looks like a checkpoint of torchxrayvision's DenseNet-121"):
        load_adapter("medklip", folder / name_of("all"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, list[str]]:
    """In fp16, so that both precisions are compared."""
    said: list[str] = []
    options = BundleOptions(precision="fp16", metrics=EvaluationMetrics(), progress=said.append)
    made = export_adapter(small_xrv("nih"), tmp_path_factory.mktemp("bundle"), options)
    assert made.report and made.cost.text_parameters == made.cost.text_macs == 0
    return made.bundle, said


def test_the_bundle_has_fixed_findings_and_no_text_graph(exported: tuple[Bundle, list[str]]) -> None:
    bundle, said = exported
    manifest = bundle.manifest
    assert manifest.findings == tuple(TRAINED["nih"]) and set(manifest.graphs) == {"image"} and manifest.text == {}
    assert f'"schema": {SCHEMA_FIXED},' in (bundle.path / "bundle.json").read_text()
    assert sorted(manifest.files) == ["image.onnx", *(f"prompts/{name}.npz" for name in sorted(manifest.prompt_sets))]
    sets = {name: record.findings for name, record in manifest.prompt_sets.items()}
    assert "covid_rural" not in sets and sets["findings"] == manifest.findings
    assert sets["siim"] == ("Pneumothorax",) and sets["chestxray14"][3] == "Infiltrate"
    assert "Airspace Opacity" not in sets["chexlocalize"], "of Lung Opacity, which NIH's labels do not have"
    vindr = bundle.prompt_set("vindr")
    place = vindr.findings.index("Nodule/Mass")
    asked = vindr.features[vindr.finding_of == place]
    np.testing.assert_array_equal(asked, np.eye(14, dtype=np.float32)[[11, 12]])
    assert vindr.status_of("Nodule/Mass") == "adapted" and vindr.status_of("Pleural thickening") == "official"
    assert any("14 findings, reads no text; not asked: Airspace Opacity, Aortic enlargement," in line for line in said)


def test_lower_precision_keeps_the_last_layer(exported: tuple[Bundle, list[str]]) -> None:
    """In fp16 the linear layer stays in float32, for scores and for maps."""
    graph = onnx.load(str(exported[0].file("image"))).graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    rows = [kind for name, kind in kinds.items() if "classifier" in name]
    assert rows and set(rows) == {onnx.TensorProto.FLOAT}
    assert kinds["network.features.denseblock1.denselayer1.conv2.weight_fp16"] == onnx.TensorProto.FLOAT16


def test_texts_and_tokenizers_are_refused(tmp_path: Path) -> None:
    adapter = small_xrv("rsna")
    with pytest.raises(ConfigError, match="supervised and reads no text; leave out --tokenizer"):
        export_adapter(adapter, tmp_path, BundleOptions(tokenizer=tmp_path))
    with pytest.raises(ConfigError, match="defines no 'encode_text'"):
        adapter.encode_text(torch.ones(1, 2, dtype=torch.int64))
