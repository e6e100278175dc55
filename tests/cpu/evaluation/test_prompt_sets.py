"""Several prompt sets of a bundle in one pass; with every other feature: tests/cpu/joints/pairs_of_sets.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic
import xbench_fast as xb
from xbench_fast.engines.backends.ort_parts import OrtParts
from xbench_fast.engines.base import Engine
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.evaluation import cell_inputs
from xbench_fast.runtime.evaluation.drawn import CaseColumns, DrawnPairs

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SETS = ("coco", "other", "third")
CASES = 10


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    synthetic.make_dataset(tmp_path / "data", CASES)
    return synthetic.make_bundle(tmp_path / "blocks", sets=SETS, graph=synthetic.save_graph(tmp_path / "graph.onnx"))


def evaluate(bundle: Bundle, prompts: Any, out: str = "run", **more: Any) -> dict[str, Any]:
    folder = bundle.path.parent
    options = {"threads": 1, "batch": 4, "chunk": 4, "engine": "onnxruntime-cpu", "progress": False, **more}
    xb.evaluate(bundle.path, "coco", folder / "data", out=folder / out, prompts=prompts, **options)
    cells: dict[str, Any] = json.loads((folder / out / "run.json").read_text())["cells"]
    return cells


def rows(bundle: Bundle, entry: dict[str, Any], out: str = "run") -> Any:
    return pq.read_table(bundle.path.parent / out / entry["file"])


def test_the_image_part_runs_once_for_an_image(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not images times sets; the whole graph does not run at all."""
    encoded, asked, whole = list[int](), list[int](), list[int]()
    encode, ask, run = OrtParts.encode, OrtParts.ask, Engine.run
    monkeypatch.setattr(OrtParts, "encode", lambda self, pixels: (encoded.append(len(pixels)), encode(self, pixels))[1])
    monkeypatch.setattr(OrtParts, "ask", lambda self, *given: (asked.append(1), ask(self, *given))[1])
    monkeypatch.setattr(Engine, "run", lambda self, *given: (whole.append(1), run(self, *given))[1])
    loads, load = list[int](), cell_inputs.load_dataset
    monkeypatch.setattr(cell_inputs, "load_dataset", lambda *given, **how: (loads.append(1), load(*given, **how))[1])
    together = evaluate(bundle, SETS)
    assert len(loads) == 1
    assert sum(encoded) == CASES and not whole
    assert len(asked) == 2 + len(SETS) * 3, "three batches, of which one of four is asked by pairs too, once"
    assert set(together) == {f"blocks@{name}--coco" for name in SETS}
    encoded.clear()
    evaluate(bundle, [*SETS, SETS[0]])
    assert not encoded, "finished cells are reused"
    for name in SETS:
        (entry,) = evaluate(bundle, name, out=name).values()
        assert entry["key"] == together[f"blocks@{name}--coco"]["key"] and entry["variant_of"] == "blocks"
        assert rows(bundle, entry, name).equals(rows(bundle, together[f"blocks@{name}--coco"]))


def test_one_set_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = synthetic.prompt_set

    def prompt_set(name: str, **how: Any) -> Any:
        made = usual(name, **how)
        return replace(made, features=made.features * np.float32(1e38)) if name == "other" else made

    monkeypatch.setattr(synthetic, "prompt_set", prompt_set)
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    made = synthetic.make_bundle(tmp_path / "blocks", sets=SETS, graph=graph)
    synthetic.make_dataset(tmp_path / "data", CASES)
    with pytest.raises(RunError, match="blocks@other on coco: blocks on onnxruntime-cpu returned a logit that is not"):
        evaluate(made, SETS)
    cells = json.loads((tmp_path / "run/run.json").read_text())["cells"]
    assert {name: entry["state"] for name, entry in cells.items()} == {
        "blocks@coco--coco": "done",
        "blocks@other--coco": "failed",
        "blocks@third--coco": "done",
    }
    (alone,) = evaluate(made, "coco", out="alone").values()
    assert rows(made, alone, "alone").equals(rows(made, cells["blocks@coco--coco"]))


def test_a_bundle_that_cannot_be_opened_fails_under_the_names_of_its_sets(bundle: Bundle) -> None:
    """The results of a run before are kept, and nothing is left of the failure once the bundle is whole again."""
    graph, views = bundle.file("image"), {"data_options": {"coco": {"augment": "flip"}}}
    before, whole = evaluate(bundle, SETS, **views), graph.read_bytes()
    graph.write_bytes(whole[:-1])
    with pytest.raises(RunError, match=r"blocks@third\+flip on coco"):
        evaluate(bundle, SETS, **views)
    failed = json.loads((bundle.path.parent / "run/run.json").read_text())["cells"]
    attempts = {name: entry.pop("last_attempt")["state"] for name, entry in failed.items()}
    assert failed == before and set(attempts.values()) == {"failed"} and len(attempts) == 2 * len(SETS)
    graph.write_bytes(whole)
    assert evaluate(bundle, SETS, **views) == before


def test_a_folder_with_the_name_of_a_set_is_another_model(bundle: Bundle) -> None:
    """A folder blocks@other stands for itself in a run directory, and never for the set `other` of blocks."""
    folder = bundle.path.parent
    graph = synthetic.save_graph(folder / "more.onnx")
    made = synthetic.make_bundle(folder / "blocks@other", sets=SETS, graph=graph, several=True)
    cells = evaluate(made, ["other"]) | evaluate(made, None)
    assert {(entry["model"], entry.get("variant_of")) for entry in cells.values()} == {
        ("blocks@other", None),
        ("blocks@other@other", "blocks@other"),
    }
    before = rows(made, cells["blocks@other--coco"])
    with pytest.raises(
        RunError, match=r"'blocks@other' is a model of its own in .*run, and a prompt set of the bundle"
    ):
        evaluate(bundle, SETS)
    cells = json.loads((folder / "run/run.json").read_text())["cells"]
    kept = cells["blocks@other--coco"]
    assert kept["state"] == "done" and "rename the model" in kept["last_attempt"]["reason"]
    assert rows(made, kept).equals(before) and cells["blocks@third--coco"]["state"] == "done"
    evaluate(bundle, SETS, out="other")
    with pytest.raises(RunError, match=r"is a prompt set of the bundle blocks in .*other, and a model of its own here"):
        evaluate(made, None, out="other")


def test_seconds_of_a_pass_count_once(bundle: Bundle) -> None:
    cells = evaluate(bundle, SETS).values()
    assert len({entry["seconds"] for entry in cells}) == 1 and {entry["computed"] for entry in cells} == {CASES}


def test_where_one_set_is_needed_several_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    from xbench_fast.runtime.evaluation.pairing import prompt_set_name
    from xbench_fast.runtime.host.config import DatasetConfig

    config = DatasetConfig("coco", tmp_path, "coco", ("coco", "other"))
    with pytest.raises(ConfigError, match=r"names several prompt sets \(coco, other\), and one is needed here"):
        prompt_set_name(bundle, config, None)  # type: ignore[arg-type]
    assert [one.prompts for one in config.each_set] == ["coco", "other"]


def test_pairs_of_some_findings_are_in_the_order_of_these() -> None:
    """Of cases 0 to 2 with the findings A, B and C; the asked ones come in another order."""
    of_case, of_finding = np.array([0, 0, 0, 2, 2]), np.array([0, 1, 2, 0, 2])
    masks, frames = np.arange(5, dtype=np.uint8).reshape(5, 1, 1), np.zeros((5, 4))
    sizes = np.zeros((3, 2), np.int32)
    pairs = DrawnPairs(("A", "B", "C"), of_case, of_finding, masks, frames, np.zeros(5, bool), [None] * 3, sizes)  # type: ignore[list-item]
    some = pairs.asked(("C", "A"))
    assert some.of_case.tolist() == [0, 0, 2, 2] and some.of_finding.tolist() == [0, 1, 0, 1]
    assert some.masks.reshape(-1).tolist() == [2, 0, 4, 3] and some.findings == ("C", "A")
    assert pairs.asked(("A", "B", "C")) is pairs
    columns = CaseColumns(
        [], np.zeros(0, bool), np.zeros((0, 16), np.uint8), np.zeros(0, bool), [(0, 1, "x"), (1, 2, "y"), (2, 0, "z")]
    )
    assert columns.asked(("A", "B", "C"), ("C", "A")).faults == [(1, 0, "y"), (2, 1, "z")]
