"""docs/recipes/published-clips.md: stand-ins with the published configurations are exported, evaluated and reported by
its text. The logits of the run equal those of the library's own pipeline from the picture file and the prompt."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import clip_stand_ins as published
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from synthetic import CLASSES, make_dataset
from xbench_fast.engines.bundle import Bundle
from xbench_fast.export.cli import main as export
from xbench_fast.runtime.cli import main as fast

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
transformers = pytest.importorskip("transformers")
for package in ("timm", "onnx", "onnxscript", "onnxruntime", "tokenizers", "sentencepiece", "safetensors"):
    pytest.importorskip(package)

PROGRAMS: dict[str, Callable[[Any], Any]] = {"xbench-export": export, "xbench-fast": fast}
Pipeline = Callable[[Image.Image, list[str]], Any]
"""RGB picture and texts -> logits [texts], by the library."""
PICTURES = 3
EQUAL = 1e-4
"""Share of the largest logit: the bound of the parity check."""

BUNDLES = {
    "medsiglip": ("medsiglip-448", "squash-448-448-bicubic", 32, 64),
    "xrayclip": ("xrayclip-512", "squash-512-512-bicubic", 32, 77),
    "xraysiglip": ("xraysiglip-512", "squash-512-512-bicubic", 32, 64),
    "pubmedclip": ("pubmedclip-224", "floor_crop-224-224-bicubic", 7, 77),
    "unimed": ("unimed-vit-l-14-336", "crop-336-336-bicubic", 24, 256),
    "biomedclip-cxr": ("biomedclip-cxr-biomedclipcxr-518", "crop-518-518-bicubic", 37, 256),
}
"""Model -> bundle, geometry, side of the map and tokens of a text, as the page's table states them."""


@dataclass(frozen=True)
class Followed:
    """The folder in which the page was followed, the library's pipeline of each model, what each command printed."""

    folder: Path
    pipelines: dict[str, Pipeline]
    printed: dict[str, str]


@pytest.fixture(scope="module")
def followed(root: Path, tmp_path_factory: pytest.TempPathFactory, one_thread_of_torch: None) -> Iterator[Followed]:
    """The page's files and commands, on stand-ins and made radiographs of 40 x 56 pixels."""
    page = (root / "docs/recipes/published-clips.md").read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("published-clips"))
        small_dinov2(patch)
        few_batches(patch)
        make_dataset(Path("radiographs"), PICTURES)
        for name, content in re.findall(r"File `([^`]+)`[^\n]*\n\n```\w+\n(.*?)```", page, re.DOTALL):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(content)
        tables = re.findall(r"Add to `xbench\.toml`:\n\n```toml\n(.*?)```", page, re.DOTALL)
        Path("xbench.toml").write_text("\n".join([Path("xbench.toml").read_text(), *tables]))
        pipelines = write_stand_ins()
        (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        *lines, report = commands.splitlines()
        printed = {line: printed_by(line) for line in lines}
        printed[report] = printed_by(f"{report} --no-page")  # the page has tests of its own
        yield Followed(Path.cwd(), pipelines, printed)


def printed_by(line: str) -> str:
    """What a command printed, on both streams. It must succeed."""
    program, *arguments = shlex.split(line)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            status = PROGRAMS[program](arguments)
        except SystemExit as end:
            status = end.code
    assert not status, out.getvalue()
    return out.getvalue()


def small_dinov2(patch: pytest.MonkeyPatch) -> None:
    """timm's architecture of the published name with one narrow block."""
    from timm.models import _registry

    name = "vit_base_patch14_dinov2"
    whole = _registry._model_entrypoints[name]
    small = {"embed_dim": 32, "depth": 1, "num_heads": 1}
    patch.setitem(_registry._model_entrypoints, name, lambda *a, **more: whole(*a, **{**more, **small}))


def few_batches(patch: pytest.MonkeyPatch) -> None:
    """Parity in batches of 1 and 3; the tests of small pictures have those of 17."""
    from xbench_fast.export.parity.compare_graphs import check_parity

    patch.setitem(check_parity.__kwdefaults__, "batches", (1, 3))


def write_stand_ins() -> dict[str, Pipeline]:
    """The files that a reader of the page downloads, in the current folder."""
    from safetensors.torch import save_file

    bert, pipelines = published.biomedbert(Path("biomedbert")), dict[str, Pipeline]()
    for name, (folder, config, pictures, words) in published.REPOSITORIES.items():
        model = published.saved(Path(folder), config, pictures, words)
        tensors = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
        if name == "pubmedclip":  # a release of 2023 saved index buffers too
            buffers = {f"{tower}_model.embeddings.position_ids": torch.arange(50)[None] for tower in ("text", "vision")}
            torch.save(tensors | buffers, Path(folder, "pytorch_model.bin"))
        else:
            save_file(tensors, Path(folder, "model.safetensors"), metadata={"format": "pt"})
        pipelines[name] = of_transformers(Path(folder), model)
    architecture = Path("unimed-clip/vit-l-14-336.json")
    unimed = json.loads(architecture.read_text())
    unimed |= {"embed_dim": 32, "vision_cfg": {**unimed["vision_cfg"], "layers": 1, "width": 64}}
    architecture.write_text(json.dumps(unimed))
    model, tensors = published.trained(unimed, bert)
    file = architecture.with_name("unimed_clip_vit_l14_base_text_encoder.pt")
    published.save_training({re.sub("^text", "text_encoder", name): one for name, one in tensors.items()}, file)
    pipelines["unimed"] = of_open_clip(bert, model)
    Path("llava-rad").mkdir()
    Path("llava-rad/biomedclipcxr_518.json").write_text(json.dumps(published.BIOMEDCLIP_CXR))
    model, tensors = published.trained(published.BIOMEDCLIP_CXR, bert)
    pooling = {"weight": torch.ones(32, 32), "bias": torch.ones(32)}
    tensors |= {f"text.transformer.pooler.dense.{name}": one for name, one in pooling.items()}
    published.save_training(tensors, Path("llava-rad/biomedclipcxr_518_checkpoint.pt"))
    pipelines["biomedclip-cxr"] = of_open_clip(bert, model)
    return pipelines


def of_transformers(folder: Path, model: Any) -> Pipeline:
    """The image processor with Pillow, the tokenizer and the model, each by its own configuration."""
    name = json.loads((folder / "preprocessor_config.json").read_text())["image_processor_type"]
    try:  # transformers 5 calls the class with Pillow otherwise
        module = import_module(f"transformers.models.{(kind := name[:-14].lower())}.image_processing_pil_{kind}")
        pillow = getattr(module, f"{name}Pil")
    except ImportError:
        pillow = getattr(transformers, name)
    processor, words = pillow.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)

    def logits(picture: Image.Image, texts: list[str]) -> Any:
        ids = words(texts, padding="max_length", truncation=True, return_tensors="pt")
        return model(pixel_values=processor(picture, return_tensors="pt")["pixel_values"], **ids).logits_per_image[0]

    return logits


def of_open_clip(bert: Path, model: Any) -> Pipeline:
    """open_clip's transform for a configuration without `preprocess_cfg`, and its tokenizer of BERT."""
    size = open_clip.transform.PreprocessCfg(size=model.visual.image_size[0])
    transform = open_clip.transform.image_transform_v2(size, is_train=False)
    words = open_clip.tokenizer.HFTokenizer(str(bert), context_length=256)

    def logits(picture: Image.Image, texts: list[str]) -> Any:
        image = model.encode_image(transform(picture)[None], normalize=True)
        return (model.logit_scale.exp() * image @ model.encode_text(words(texts), normalize=True).T)[0]

    return logits


@pytest.mark.parametrize("name", BUNDLES)
def test_the_run_has_the_logits_of_the_librarys_own_pipeline(followed: Followed, name: str) -> None:
    bundle, geometry, side, tokens = BUNDLES[name]
    manifest = Bundle.load(followed.folder / "bundles" / bundle).manifest
    assert (manifest.geometry.key, manifest.grid, manifest.text["context"]) == (geometry, (side, side), tokens)
    assert manifest.parity["passed"] is True and manifest.text["compared"]["texts"] > 30
    cell = json.loads((followed.folder / "run/run.json").read_text())["cells"][f"{bundle}--radiographs"]
    rows = pq.read_table(followed.folder / "run" / cell["file"]).to_pylist()
    of_run = {(row["case_id"], row["finding"]): row["logit"] for row in rows}
    file = "unimed-clip/prompts.json" if name == "unimed" else "prompts.json"
    texts = [text for (text,) in json.loads((followed.folder / file).read_text())["radiographs"].values()]
    cases = [f"case{number:04d}" for number in range(PICTURES)]
    with torch.inference_mode():
        opened = [Image.open(followed.folder / f"radiographs/images/{case}.png").convert("RGB") for case in cases]
        wanted = np.array([followed.pipelines[name](picture, texts).tolist() for picture in opened])
    bound = EQUAL * np.abs(wanted).max()
    assert min(np.ptp(wanted, axis).min() for axis in (0, 1)) > 30 * bound, "pictures and texts must make a difference"
    np.testing.assert_allclose([[of_run[case, finding] for finding in CLASSES] for case in cases], wanted, atol=bound)


def test_the_report_has_all_models_and_the_cautions_of_the_page(followed: Followed) -> None:
    table = (followed.folder / "run/report/table1.csv").read_text()
    assert all(name in table for name, *_ in BUNDLES.values())
    cautions = {line.split()[-1]: text.count("caution: ") for line, text in followed.printed.items()}
    assert cautions == {**dict.fromkeys(BUNDLES, 0), "biomedclip-cxr": 1, "--all": 0, "run": 0}
    said = followed.printed["xbench-export --model biomedclip-cxr"]
    assert "the pooling layer of BERT, which hf_pooler_type = 'cls_last_hidden_state_pooler' does not use" in said
