"""The small inputs of all pairs of features: bundles, a dataset, own maps, a reader, and a dataset of RSNA's form.

Twelve images of 40 x 56 pixels: Mass in cases 0, 3, 6 and 9, Effusion in 0, 4 and 8, so seven pairs, four of them in
the first six cases. The model runs on ONNX Runtime or, as another engine, on NumPy, with equal results.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from synthetic import BlockEngine, make_bundle, make_dataset, make_ms_cxr, prompt_set, save_graph, save_text_graph
from xbench_fast.engines.backends.ort import CpuEngine
from xbench_fast.engines.base import EngineInfo, Scores
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.manifest import Quantisation
from xbench_fast.engines.prompts.prompt_set import PromptSet
from xbench_fast.export.half_precision import lower
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr
from xbench_fast.runtime.data.datasets.phrases.phrase_pairs import image_id
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

CASES, LIMITED = 12, 6
FP32, FP16, INT8 = "blocks-32", "blocks-32-fp16", "blocks-32-int8"
NUMPY = "synthetic:BlockEngine"
STOPPED = "joint_inputs:Stopped"
READER = '''
import json
from xbench_fast.runtime.data.datasets.dataset import Case, Dataset
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_shapes import union

MOVED = 0


class Films(Dataset):
    """The files of coco, read otherwise."""

    name = title = "films"
    classes = ("Mass", "Effusion")

    def sources(self):
        return [self.root / "annotations.json"]

    def read(self, notes):
        document = json.loads(self.sources()[0].read_text())
        cases = []
        for row, image in enumerate(document["images"], 1):
            boxes = {name: [] for name in self.classes}
            for one in document["annotations"]:
                if one["image_id"] == image["id"]:
                    x, y, w, h = one["bbox"]
                    boxes[self.classes[one["category_id"] - 1]].append((x + MOVED, y, x + w + MOVED, y + h))
            regions = {name: union([Boxes((box,)) for box in found]) for name, found in boxes.items() if found}
            labels = {name: int(name in regions) for name in self.classes}
            path = self.root / "images" / image["file_name"]
            patient, size = image["patient_id"], (image["height"], image["width"])
            cases.append(Case(image["id"], path, labels, regions, "all", patient, (row,), size))
        return cases
'''


@dataclass
class Originals:
    """The inputs, which no pair changes, and whole runs that several pairs compare with, each made once."""

    folder: Path
    made: dict[tuple[str, ...], Path] = field(default_factory=dict)

    @property
    def graphs(self) -> dict[str, Path]:
        return {name: self.folder / f"{name}.onnx" for name in ("fp32", "fp16", "int8")}


def make_originals(folder: Path) -> Originals:
    """Bundles blocks-32 (sets coco, mass, other, rsna) and blocks-32-fp16 (coco); data/ (of coco and of mscxr), maps/,
    answers.jsonl, phrases.jsonl, films.py, rsna/."""
    found = Originals(folder)
    _save_lowered(save_graph(found.graphs["fp32"]), found.graphs["fp16"])
    _save_quantised(found.graphs["fp32"], found.graphs["int8"])
    (folder / "models").mkdir()
    rsna = replace(prompt_set("rsna"), findings=("pneumonia", "Effusion", "Unicorn"))
    mass = replace(prompt_set("mass"), findings=("Mass", "Edema", "Unicorn"))
    sets = [prompt_set(), mass, prompt_set("other", several=True), rsna]
    put_bundle(found, folder / "models" / FP32, "fp32", sets)
    put_bundle(found, folder / "models" / FP16, "fp16", [prompt_set()])
    make_ms_cxr(make_dataset(folder / "data", CASES))
    for path in sorted((folder / "data" / "images").iterdir()):
        # Not compressed and of one time: two images can be exchanged without a change of size or time.
        Image.open(path).save(path, compress_level=0)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (folder / "films.py").write_text(READER)
    put_maps(folder / "maps", range(CASES))
    put_boxes(folder / "answers.jsonl", folder / "data")
    put_phrases(folder / "phrases.jsonl", folder / "data")
    _make_rsna(folder)
    return found


def _save_lowered(source: Path, target: Path) -> None:
    """The graph in fp16, with a ramp that has a rounding error there; all other values of the model are exact."""
    import onnx

    made = onnx.load(str(source))
    (ramp,) = [item for item in made.graph.initializer if item.name == "ramp"]
    ramp.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(ramp) * np.float32(0.3), "ramp"))
    onnx.save(made, str(target))
    lower(target, target, "fp16")


def _save_quantised(source: Path, target: Path) -> None:
    """The graph in INT8: pixels in steps of 3, and weights of 1, so that every processor computes the same."""
    import onnx

    h, made = onnx.helper, onnx.load(str(source))
    arrays = {"step": np.float32(3), "zero": np.uint8(0), "one": np.float32(1), "none": np.int8(0)}
    arrays["bytes"] = np.ones_like(onnx.numpy_helper.to_array(made.graph.initializer[0]), np.int8)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(each), name) for name, each in arrays.items())
    (conv,) = [node for node in made.graph.node if node.op_type == "Conv"]
    place = list(made.graph.node).index(conv)
    for node in (
        h.make_node("DequantizeLinear", ["bytes", "one", "none"], ["weight"]),
        h.make_node("DequantizeLinear", ["steps", "step", "zero"], ["back"]),
        h.make_node("QuantizeLinear", ["grey", "step", "zero"], ["steps"]),
    ):
        made.graph.node.insert(place, node)
    conv.input[:] = ["back", "weight"]
    made.graph.node[place + 3].CopyFrom(conv)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, str(target))


def put_bundle(originals: Originals, path: Path, precision: str, sets: list[PromptSet]) -> Bundle:
    """A bundle at `path`, in place of one that is there."""
    work = originals.folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)
    plain = make_bundle(work / path.name, graph=originals.graphs[precision], text=True)
    files = {"image.onnx": originals.graphs[precision], "text.onnx": save_text_graph(work / "text.onnx")}
    for item in sets:
        item.save(work / f"{item.name}.npz")
        files[item.file] = work / f"{item.name}.npz"
    records = {item.name: item.record() for item in sets}
    how = Quantisation("any-cpu", "min-max", "nothing", (), 1) if precision == "int8" else None
    manifest = replace(plain.manifest, precision=precision, prompt_sets=records, quantisation=how)
    return write_bundle(path, manifest, files)


class Stopped(BlockEngine):
    """The NumPy engine, which somebody interrupts with Ctrl-C in the second chunk."""

    def _open(self) -> EngineInfo:
        self.fail_after, self.error = 3, KeyboardInterrupt()
        return super()._open()


class StoppedSession(CpuEngine):
    """ONNX Runtime on the CPU, interrupted in the same way; its parts are those of the engine itself."""

    most = 3

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        self.runs = getattr(self, "runs", 0) + 1
        if self.runs > self.most:
            raise KeyboardInterrupt
        return super()._run(pixels, text)


def put_maps(folder: Path, cases: Iterable[int], seed: int = 5) -> None:
    """Own maps of 14 x 14 cells on the scale of attention, for both classes of each case."""
    rng = np.random.default_rng(seed)
    for case in cases:
        for name in ("Mass", "Effusion"):
            (folder / f"case{case:04d}").mkdir(parents=True, exist_ok=True)
            np.save(folder / f"case{case:04d}" / f"{name}.npy", rng.random((14, 14), dtype=np.float32) / 60)


def put_boxes(path: Path, data: Path, shift: int = 2) -> None:
    """Answers to the pairs of a dataset: the boxes, moved to the right; case 3 is silent, and case 1 invents a Mass."""
    document = json.loads((data / "annotations.json").read_text())
    names = {image["id"]: Path(image["file_name"]).stem for image in document["images"]}
    lines: dict[tuple[str, str], list[list[float]]] = {("case0001", "Mass"): [[0, 0, 9, 9]], ("case0002", "Mass"): []}
    for one in document["annotations"]:
        x, y, w, h = one["bbox"]
        pair = (names[one["image_id"]], ("Mass", "Effusion")[one["category_id"] - 1])
        lines.setdefault(pair, []).append([x + shift, y, x + w + shift, y + h])
    lines["case0003", "Mass"] = []
    told = [{"case": case, "finding": finding, "boxes": boxes} for (case, finding), boxes in lines.items()]
    path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "pixels"}, *told])) + "\n")


def put_phrases(path: Path, data: Path, shift: int = 2, by: str = "phrase") -> None:
    """Answers to the pairs of MS-CXR, by the phrase or finding: the boxes, moved to the right; the third is silent."""
    told: list[dict[str, object]] = []
    for case in MsCxr(data).cases():
        for finding, region in case.regions.items():
            boxes = [[x1 + shift, y1, x2 + shift, y2] for x1, y1, x2, y2 in cast(Boxes, region).corners]
            asked = {"phrase": case.phrases[finding].upper(), "case": image_id(case.case_id)}
            line = asked if by == "phrase" else {"finding": finding, "case": case.case_id}
            told.append({**line, "boxes": [] if shift and len(told) == 2 else boxes})
    path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "pixels"}, *told])) + "\n")


def _make_rsna(folder: Path) -> None:
    images = folder / "rsna" / "stage_2_train_images"
    images.mkdir(parents=True)
    lines = ["patientId,x,y,width,height,Target"]
    for index, path in enumerate(sorted((folder / "data" / "images").iterdir())[:4]):
        shutil.copy2(path, images / path.name)
        lines.append(f"{path.stem},{100 + 50 * index},200,300,400,1" if index % 2 else f"{path.stem},,,,,0")
    (folder / "rsna" / "stage_2_train_labels.csv").write_text("\n".join(lines) + "\n")


def move_box(annotations: Path, case: int = 3, by: int = 3) -> None:
    """The box of a Mass, so many pixels lower."""
    document = json.loads(annotations.read_text())
    box = next(one["bbox"] for one in document["annotations"] if one["image_id"] == f"case{case:04d}")
    box[1] += by
    annotations.write_text(json.dumps(document))
