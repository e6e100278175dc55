"""Small worlds for tests of the evaluation: a dataset of generated images, a bundle, and an engine that NumPy runs.

The model is exact: its saliency is a sum of 8 x 8 pixel blocks times a small integer, plus a ramp times another, so
NumPy, ONNX Runtime and a test's own loop must agree to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.engines.base import Engine, EngineInfo, Scores
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec
from xbench_fast.engines.prompts.prompt_encoding import name_sets
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.engines.prompts.prompt_set import FINDINGS_SET, PromptSet
from xbench_fast.engines.tokenizing.tokenizers import HashTokenizer
from xbench_fast.metrics_gpu.sweep.counts import Counts

SIZE, GRID = 32, 4
CLASSES = ("Mass", "Effusion")
RAMP = np.arange(GRID * GRID, dtype=np.float32).reshape(1, 1, GRID, GRID)
LOGIT_DIVISOR = np.float32(65536)
TAUS = (np.arange(101) / 100).astype(np.float32)
TOKENIZER = HashTokenizer(64, 8)
WORDS = np.random.default_rng(3).integers(-3, 4, (64, 2)).astype(np.float32)
TEXT = GraphSpec(
    "text.onnx",
    (TensorSpec("input_ids", "int64", ("texts", "tokens")),),
    (TensorSpec("features", "float32", ("texts", 2)),),
)


def make_dataset(root: Path, count: int = 20, *, seed: int = 1, missing: tuple[int, ...] = ()) -> Path:
    """A dataset in COCO's form: `count` grey images, 40 x 56; every third has a Mass, every fourth an Effusion."""
    rng = np.random.default_rng(seed)
    (root / "images").mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(count):
        picture = rng.integers(0, 120, (40, 56), dtype=np.uint8)
        name = f"case{index:04d}.png"
        images.append(
            {"id": f"case{index:04d}", "file_name": name, "height": 40, "width": 56, "patient_id": f"p{index // 2}"}
        )
        for category, period in ((1, 3), (2, 4)):
            if index % period == 0:
                x, y = (int(v) for v in rng.integers(0, 24, 2))
                w, h = (int(v) for v in rng.integers(4, 14, 2))
                picture[y : y + h, x : x + w] += 100
                annotations.append({"image_id": f"case{index:04d}", "category_id": category, "bbox": [x, y, w, h]})
        if index not in missing:
            Image.fromarray(picture).save(root / "images" / name)
    categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(document))
    return root


def make_rsna(root: Path, count: int = 6) -> Path:
    """RSNA's files, with PNG inside: dark 64 x 48 images of few grey levels; every second has a box."""
    rng = np.random.default_rng(4)
    (root / "stage_2_train_images").mkdir(parents=True)
    lines = ["patientId,x,y,width,height,Target"]
    for index in range(count):
        grey = (rng.random((64, 48)) ** 3 * 90 + 20).astype(np.uint8)
        Image.fromarray(grey).save(root / "stage_2_train_images" / f"{index:04d}.dcm", "PNG")
        lines.append(f"{index:04d},200,300,400,300,1" if index % 2 == 0 else f"{index:04d},,,,,0")
    (root / "stage_2_train_labels.csv").write_text("\n".join(lines) + "\n")
    return root


def equalised_input(path: Path) -> NDArray[np.uint8]:
    """The model's input as the authors' loader makes it: every pixel through the histogram, then the resize."""
    values = np.asarray(Image.open(path)) / 255.0
    counts, edges = np.histogram(values, bins=256)
    share = counts.cumsum() / counts.sum()
    levels = np.interp(values.ravel(), (edges[:-1] + edges[1:]) / 2, share).reshape(values.shape)
    image = Image.fromarray((255 * levels).astype(np.uint8))
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def prompt_set(name: str = "coco", *, several: bool = False, findings: tuple[str, ...] = CLASSES) -> PromptSet:
    """Queries for two findings and one that no dataset has; `several`: two positive prompts and a negative one."""
    queries = [(0, 1, (1, 0)), (1, 1, (-1, 3)), (2, 1, (2, 1))]
    if several:
        queries = [(0, 1, (1, 0)), (0, 1, (2, 5)), (0, -1, (-3, 1)), (1, 1, (-1, 3)), (1, -1, (1, 1)), (2, 1, (2, 1))]
    return PromptSet(
        name=name,
        findings=(*findings, "Unicorn"),
        texts=tuple(f"text {index}" for index in range(len(queries))),
        finding_of=np.array([f for f, _, _ in queries], np.int32),
        polarity=np.array([p for _, p, _ in queries], np.int8),
        features=np.array([t for _, _, t in queries], np.float32),
        status=("own", "own", "own"),
    )


def make_bundle(
    path: Path,
    *,
    weights: str = "published",
    several: bool = False,
    sets: tuple[str, ...] = ("coco",),
    geometry: Geometry | None = None,
    graph: Path | None = None,
    findings: tuple[str, ...] = CLASSES,
    text: bool = False,
    supervised: tuple[str, ...] = (),
    smoothing: float = 0.0,
    largest_batch: int | None = None,
    checkpoint: dict[str, str] | None = None,
) -> Bundle:
    """A bundle at `path`; `graph` is its image graph, by default a file only the engine below pretends to run. `text`:
    with the text graph of `save_text_graph` and a tokenizer without a vocabulary. `supervised`: all that its model
    knows; it then has the set of these findings alone. `smoothing`, `largest_batch`: what it says of its
    maps and batches. `checkpoint`: the record of its weights."""
    source = path.parent / f".source-{path.name}"
    source.mkdir(parents=True)
    (source / "image.onnx").write_bytes(graph.read_bytes() if graph else b"run by NumPy in this test")
    files = {"image.onnx": source / "image.onnx"}
    prompts = {name: prompt_set(name, several=several, findings=findings) for name in sets}
    if supervised:
        entries = tuple(FindingPrompts(name, (name,)) for name in supervised)
        prompts = {FINDINGS_SET: name_sets(supervised, {FINDINGS_SET: entries})[0]}
    for name, item in prompts.items():
        item.save(source / f"{name}.npz")
        files[item.file] = source / f"{name}.npz"
    if text:
        files["text.onnx"] = save_text_graph(source / "text.onnx")
    image = GraphSpec(
        "image.onnx",
        (TensorSpec("pixels", "uint8", ("batch", 1, SIZE, SIZE)), TensorSpec("text", "float32", ("findings", 2))),
        (
            TensorSpec("logits", "float32", ("batch", "findings")),
            TensorSpec("saliency", "float32", ("batch", "findings", GRID, GRID)),
        ),
    )
    manifest = Manifest(
        model="blocks",
        variant="32",
        weights=weights,  # type: ignore[arg-type]
        checkpoint=checkpoint,
        geometry=geometry or Geometry("squash", SIZE, SIZE, "bilinear"),
        grid=(GRID, GRID),
        saliency={"kind": "attention", "description": "sums of pixel blocks", "smoothing": smoothing},
        logit_scale=1.0,
        text={} if supervised else {"context": 8, **({"tokenizer": TOKENIZER.record} if text else {})},
        graphs={"image": image, **({"text": TEXT} if text else {})},
        prompt_sets={name: item.record() for name, item in prompts.items()},
        opset=18,
        exporter={"test": "1"},
        parity={"passed": True, "compared": 12, "needed": 1e-6, "tolerance": 1e-4},
        findings=supervised,
        largest_batch=largest_batch,
    )
    return write_bundle(path, manifest, files)


def make_served(folder: Path) -> Path:
    """What a server is tested with, in `folder`: models/blocks-32, models/several-32 with two prompt sets, data/."""
    graph = save_graph(folder / "blocks.onnx")
    (folder / "models").mkdir()
    make_bundle(folder / "models" / "blocks-32", graph=graph)
    make_bundle(folder / "models" / "several-32", graph=graph, several=True, weights="demo", sets=("coco", "other"))
    make_dataset(folder / "data", 6)
    return folder


def model(pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits [B, Q] and saliency [B, Q, 4, 4] of pixels uint8 [B, 1, 32, 32]; all intermediate values are exact."""
    side = SIZE // GRID
    blocks = pixels.astype(np.float32).reshape(len(pixels), 1, GRID, side, GRID, side).sum((3, 5))
    saliency = (blocks * text[None, :, 0, None, None] + RAMP * text[None, :, 1, None, None]).astype(np.float32)
    return saliency.sum((2, 3)) / LOGIT_DIVISOR, saliency


class BlockEngine(Engine):
    """Runs the model above; `calls` are the batch sizes it met. After `fail_after` calls it raises `error`."""

    def __init__(self, bundle: Bundle, **how: Any) -> None:
        super().__init__(bundle, **how)
        self.calls: list[int] = []
        self.fail_after: int | None = None
        self.error: BaseException | None = None

    def _open(self) -> EngineInfo:
        return EngineInfo("numpy", "cpu", "fp32", "test")

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        if self.error is not None and self.fail_after is not None and len(self.calls) >= self.fail_after:
            raise self.error
        self.calls.append(len(pixels))
        return Scores(*model(pixels, text))

    def _close(self) -> None:
        pass


def save_graph(path: Path) -> Path:
    """The model above as an ONNX file."""
    import onnx

    h, t = onnx.helper, onnx.TensorProto
    side = SIZE // GRID
    arrays = {
        "kernel": np.ones((1, 1, side, side), np.float32),
        "ramp": RAMP,
        "first": np.array([0]),
        "second": np.array([1]),
        "shape": np.array([1, -1, 1, 1]),
        "axes": np.array([2, 3]),
        "divisor": LOGIT_DIVISOR,
    }
    nodes = [
        h.make_node("Cast", ["pixels"], ["grey"], to=t.FLOAT),
        h.make_node("Conv", ["grey", "kernel"], ["blocks"], strides=[side, side]),
        h.make_node("Gather", ["text", "first"], ["gain"], axis=1),
        h.make_node("Gather", ["text", "second"], ["slope"], axis=1),
        h.make_node("Reshape", ["gain", "shape"], ["gain4"]),
        h.make_node("Reshape", ["slope", "shape"], ["slope4"]),
        h.make_node("Mul", ["blocks", "gain4"], ["seen"]),
        h.make_node("Mul", ["ramp", "slope4"], ["added"]),
        h.make_node("Add", ["seen", "added"], ["saliency"]),
        h.make_node("ReduceSum", ["saliency", "axes"], ["total"], keepdims=0),
        h.make_node("Div", ["total", "divisor"], ["logits"]),
    ]
    graph = h.make_graph(
        nodes,
        "image",
        [
            h.make_tensor_value_info("pixels", t.UINT8, ["batch", 1, SIZE, SIZE]),
            h.make_tensor_value_info("text", t.FLOAT, ["findings", 2]),
        ],
        [
            h.make_tensor_value_info("logits", t.FLOAT, ["batch", "findings"]),
            h.make_tensor_value_info("saliency", t.FLOAT, ["batch", "findings", GRID, GRID]),
        ],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(made.SerializeToString())
    return path


def phrase_features(phrases: Sequence[str]) -> NDArray[np.float32]:
    """The features float32 [Q, 2] that the text graph gives."""
    return np.stack([WORDS[TOKENIZER([phrase]).ids[0]].sum(0) for phrase in phrases])


def save_text_graph(path: Path) -> Path:
    """Features of a text: the sum of two small numbers per token, as an ONNX file."""
    import onnx

    h, t = onnx.helper, onnx.TensorProto
    nodes = [
        h.make_node("Gather", ["words", "input_ids"], ["found"]),
        h.make_node("ReduceSum", ["found", "axes"], ["features"], keepdims=0),
    ]
    graph = h.make_graph(
        nodes,
        "text",
        [h.make_tensor_value_info("input_ids", t.INT64, ["texts", "tokens"])],
        [h.make_tensor_value_info("features", t.FLOAT, ["texts", 2])],
        [onnx.numpy_helper.from_array(WORDS, "words"), onnx.numpy_helper.from_array(np.array([1]), "axes")],
    )
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(made.SerializeToString())
    return path


def make_ms_cxr(root: Path, count: int = 12) -> Path:
    """MS-CXR's CSV beside the images of `make_dataset`: every image has a phrase, every third two of one category, and
    the last one only a box without area."""
    rng = np.random.default_rng(7)
    lines = ["dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split"]
    for index in range(count):
        name = f"case{index:04d}"
        place = f"files/p10/p1000{index // 2:04d}/s1/{name}.jpg"
        asked = [("Edema", ("Mild edema", "dense opacity, left")[index % 2])]
        asked += [("Edema", "Another edema")] if index % 3 == 0 else []
        asked += [("Pneumonia", "Dense opacity, left")] if index % 4 == 0 else []
        for category, phrase in asked:
            x, y, w, h = (int(v) for v in rng.integers(4, 20, 4))
            size = f"{0 if index == count - 1 else w},{h}"
            lines.append(f'{name},{category},"{phrase}",{place},{x},{y},{size},56,40,{("train", "test")[index % 2]}')
    (root / "MS_CXR_Local_Alignment_v1.1.0.csv").write_text("\n".join(lines) + "\n")
    return root


def reference_sweep(
    saliency: NDArray[np.float32],
    masks: NDArray[Any],
    *,
    size: tuple[int, int] = (224, 224),
    frames: NDArray[np.float64] | None = None,
    upsample: str = "bilinear",
) -> Counts:
    """Counts of whole maps at 101 thresholds, in the canonical arithmetic (docs/metrics.md §2 and §3)."""
    assert upsample == "bilinear"
    if masks.dtype == np.uint8:
        masks = np.unpackbits(masks, axis=-1, count=size[1], bitorder="little").astype(bool)
    whole = np.tile([0.0, 0.0, 1.0, 1.0], (len(saliency), 1)) if frames is None else frames
    parts = [_swept(grid, mask, frame, size) for grid, mask, frame in zip(saliency, masks, whole, strict=True)]
    area, overlap, argmax, hit, degenerate = (np.array(column) for column in zip(*parts, strict=True))
    region = masks.sum((1, 2)).astype(np.int32)
    return Counts(area.astype(np.int32), overlap.astype(np.int32), region, argmax.astype(np.int32), hit, degenerate)


def _swept(grid: Any, mask: Any, frame: Any, size: tuple[int, int]) -> tuple[Any, Any, int, bool, bool]:
    (y_lo, y_hi, y_w, y_seen), (x_lo, x_hi, x_w, x_seen) = (
        _axis(grid.shape[i], size[i], frame[i], frame[i + 2]) for i in (0, 1)
    )
    one = np.float32(1)
    rows = grid[:, x_lo] * (one - x_w) + grid[:, x_hi] * x_w
    value = rows[y_lo] * (one - y_w)[:, None] + rows[y_hi] * y_w[:, None]
    seen = y_seen[:, None] & x_seen[None, :]
    low, high = value[seen].min(), value[seen].max()
    value = np.where(seen, value, low)
    degenerate = not (np.isfinite(value).all() and high > low)
    scaled = np.zeros(size, np.float32) if degenerate else (value - low) / (high - low)
    argmax = 0 if degenerate else int(np.argmax(value))
    hit = not degenerate and bool(mask.reshape(-1)[argmax])
    return _reaching(scaled), _reaching(scaled[mask]), argmax, hit, degenerate


def _reaching(values: Any) -> Any:
    """How many of the values are at least each threshold."""
    return values.size - np.searchsorted(np.sort(values, axis=None), TAUS)


def _axis(cells: int, pixels: int, start: float, stop: float) -> tuple[Any, Any, Any, Any]:
    centre = (np.arange(pixels) + 0.5) / pixels
    source = np.clip((centre - start) / (stop - start) * cells - 0.5, 0, cells - 1)
    lo = np.floor(source).astype(int)
    return lo, np.minimum(lo + 1, cells - 1), (source - lo).astype(np.float32), (centre >= start) & (centre < stop)
