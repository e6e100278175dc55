"""Every script of benchmarks/ in a tiny form: it runs to its end, and writes the fields of its committed result."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
import numpy as np
import synthetic
from PIL import Image
from scaling_world import InProcess
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.prompts.prompt_encoding import add_prompts, prompt_encoder
from xbench_fast.engines.prompts.prompt_files import read_prompt_file
from xbench_fast.export import pipeline, stand_in_adapter
from xbench_fast.runtime.cli.app import _run

RESULTS = {
    "ask_run": "ask",
    "bootstrap_run": "bootstrap", "box_lines": "box-lines", "boxes": "boxes", "calibration_run": "calibration",
    "device_loop": "device-loop", "dicom_objects": "dicom-objects",
    "evaluate": "evaluate", "export_models": "export", "faithfulness": "faithfulness", "grid": "grid",
    "grid_compared": "grid-compared",
    "host_loop": "host-loop", "int8": "int8", "own_metrics": "own-metrics", "pacs_run": "pacs", "prepare": "prepare",
    "prompt_sets": "prompt-sets",
    "ray_overhead": "ray", "reading": "reading",
    "report_run": "report", "serve_load": "serve", "serve_pytriton": "serve-pytriton",
    "serve_questions": "serve-questions", "sweep": "sweep",
    "text_share": "text-share",
    "torch_parity": "torch-parity", "trust": "trust", "words_run": "words-run",
}  # fmt: skip
"""Script -> its committed result, benchmarks/results/NAME-cpu.json."""

ELSEWHERE = {
    "gpu_check": "test_gpu_check.py, where there is no GPU",
    "gpu_engines": "test_gpu_check.py",
    "gpu_parts": "test_gpu_check.py",
    "grid": "test_grid_run.py",
    "grid_compared": "test_grid_run.py",
    "sweep_ways": "test_sweep_ways.py",
    "v2_client": "the scripts of serve here, which import it",
    "from_checkout": "a subprocess here, because it replaces the imported package",
}
"""Scripts without a tiny form in this file, and what runs them."""

BY_HAND = ("note", "warning")
"""Of a result: a remark of the one who measured it, and that the machine was busy."""

Script = Callable[..., Any]


@pytest.fixture
def importable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts can be imported by their names, some of which files of demo/ have too, during a test alone."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    for path in (root / "benchmarks").glob("*.py"):
        monkeypatch.setitem(sys.modules, path.stem, ModuleType(path.stem))  # what is there now comes back afterwards
        del sys.modules[path.stem]


@pytest.fixture
def script(importable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Runs the main function of a script with arguments and --json, and returns what it wrote."""

    def run(name: str, *arguments: object) -> Any:
        out = tmp_path / f"{name}.json"
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments), "--json", str(out)])
        importlib.import_module(name).main()
        return json.loads(out.read_text(encoding="utf-8"))

    return run


@pytest.fixture
def module(importable: None) -> Callable[[str], Any]:
    """Imports a script."""
    return importlib.import_module


def lacking(made: Any, wanted: Any, depth: int = 2) -> list[str]:
    """Fields of `wanted` that `made` has not, some levels deep. `made` may have more: a result that was measured by an
    earlier version of its script lacks later facts."""
    if not isinstance(wanted, dict) or depth == 0:
        return []
    here = [name for name in wanted if name not in made and name not in BY_HAND]
    return here + [f"{name}.{each}" for name in set(wanted) & set(made)
                   for each in lacking(made[name], wanted[name], depth - 1)]  # fmt: skip


def committed(root: Path, name: str) -> Any:
    return json.loads((root / "benchmarks" / "results" / f"{RESULTS[name]}-cpu.json").read_text(encoding="utf-8"))


def writes_again(root: Path, name: str, made: Any, depth: int = 2) -> None:
    """Everything that the committed result of a script holds, the script still writes."""
    assert not lacking(made, committed(root, name), depth)


def test_every_script_has_a_tiny_form(root: Path) -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    scripts = {path.stem for path in (root / "benchmarks").glob("*.py")}
    missing = {name for name in scripts - set(ELSEWHERE) if f'("{name}"' not in tested}
    assert not missing and set(ELSEWHERE) < scripts
    results = {path.stem.removesuffix("-cpu") for path in (root / "benchmarks" / "results").glob("*.json")}
    assert results == {*RESULTS.values(), "serve-batching", "tiles"}


def test_the_bootstrap_of_a_run(script: Script, root: Path) -> None:
    writes_again(root, "bootstrap_run", script("bootstrap_run", "--cases", 120, "--replicates", 4))


def test_boxes_in_memory(script: Script, root: Path) -> None:
    writes_again(root, "boxes", script("boxes", "--answers", 60, "--replicates", 4), 3)


def test_asking(script: Script, root: Path) -> None:
    made = script("ask_run", "--images", 4, "--requests", 32)
    writes_again(root, "ask_run", made, 3)
    again = made["complete_run_again"]
    assert (made["whole_run"]["requests"], again["requests"], again["decoded"]) == (12, 0, 0)


def test_reading_words(script: Script, root: Path) -> None:
    made = script("words_run", "--reports", 20)
    writes_again(root, "words_run", made)
    assert made["words_per_report"] >= 60 and made["long_text_bytes"] == 160_000


def test_films_of_an_archive(script: Script, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("highdicom")
    bundle = synthetic.make_served(tmp_path) / "models" / "blocks-32"
    made = script("pacs_run", "--bundle", bundle, "--films", 2, "--side", 40)
    writes_again(root, "pacs_run", made, 3)
    again, empty = made["same_run_again"], made["with_an_empty_log"]
    assert (made["whole_run"]["stored"], again["before"], again["films"], empty["kept"]) == (6, 2, 0, 6)


def test_boxes_from_the_command_line(script: Script, root: Path) -> None:
    made = script("box_lines", "--lines", 20)
    wanted = committed(root, "box_lines")
    assert not lacking(made["lines"]["20"], wanted["lines"]["100000"])
    assert lacking(made, wanted, 1) == ["of_one_dataset"], "which takes two sizes"


def test_the_sweep(script: Script, root: Path, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module("sweep"), "single_threaded", lambda: None)  # of this whole process
    writes_again(root, "sweep", script("sweep"), 3)


def test_preparing_and_reading(
    script: Script, module: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        Image.new("L", (300, 260), 90 * number).save(tmp_path / f"{number}.png")
    monkeypatch.setattr(module("prepare"), "NAMES", (2,))
    made = script("prepare", "--png", tmp_path, "--rounds", 1, "--threads", 1)
    lost = lacking(made["png"], committed(root, "prepare")["png"], 1)
    assert all("opencv" in name for name in lost), "which may not be installed"


def test_the_report(script: Script, root: Path, empty_drawings: None) -> None:
    made = script("report_run", "--models", "kad", "clip", "--datasets", "covid_rural")
    wanted = committed(root, "report_run")
    assert (made["models"], made["datasets"], made["cases_per_model"], made["pairs_per_model"]) == (2, 1, 45, 32)
    assert not lacking(made, wanted) and not made["not_made"]


def test_what_own_metrics_add(script: Script, root: Path, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report in this process, without its page, in place of the command."""
    one, made = module("own_metrics"), list[str]()

    def spent(run: Path, config: Path) -> float:
        made.append(config.stem)
        assert _run(["report", str(run), "--config", str(config), "--quiet", "--no-page", "--replicates", "0"]) == 0
        own = [line for line in (run / "report" / "tables.md").read_text().splitlines() if "metric own" in line]
        assert bool(own) == (config.stem != "none")
        return 1.0

    monkeypatch.setattr(one, "spent", spent)
    document = script("own_metrics", "--rounds", 1, "--models", "kad", "--datasets", "covid_rural")
    assert made == ["none", "none", "counts", "levels", "maps"] and document["pairs_per_model"] == 32
    writes_again(root, "own_metrics", document)


def test_the_report_is_that_of_the_command(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_drawings: None
) -> None:
    from xbench_fast.runtime.reporting.report import make_report

    one = module("report_run")
    one.write_run(tmp_path / "run", ("kad", "clip"), {"covid_rural": one.DATASETS["covid_rural"]})
    made: list[Any] = []
    monkeypatch.setattr(one, "write_report", lambda report, page: made.append(report))
    monkeypatch.setattr(one, "draw_report", lambda *arguments: None)
    one.timed_report(tmp_path / "run")
    wanted = make_report(tmp_path / "run")
    assert [table.title for table in made[0].tables] == [table.title for table in wanted.tables]
    assert made[0].tables[0] == wanted.tables[0] and made[0].facts == wanted.facts


def test_the_study_of_calibration(script: Script, root: Path, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = module("calibration_run")
    monkeypatch.setattr(one, "RUNS", {"14 findings": {"covid_rural": one.DATASETS["covid_rural"]}})
    made, wanted = script("calibration_run", "--models", 2), committed(root, "calibration_run")
    assert not lacking({**made, "7 datasets": made["14 findings"]}, wanted)
    assert "64 maps" in made["14 findings"]["said"], "two models of 32 pairs"


def test_the_study_of_trust(script: Script, root: Path) -> None:
    writes_again(root, "trust", script("trust", "--cases", 40, "--pairs", 60))


def test_an_evaluation_beside_the_usual_pipeline(
    script: Script, module: Any, root: Path, kad_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands run in this process; KAD is the small one, with its prompts of ChestX-Det10."""
    images = root / "demo" / "chestxdet10"
    listed = [entry for entry in json.loads((images / "test.json").read_text(encoding="utf-8")) if set(entry["syms"])][
        :2
    ]
    (tmp_path / "list.json").write_text(json.dumps(listed), encoding="utf-8")

    def run(command: list[str], **how: Any) -> None:
        assert command[1:3] == ["-m", "xbench_fast.runtime.cli"] and how["check"]
        assert _run(command[3:]) == 0

    one = module("evaluate")
    monkeypatch.setattr(one, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL))
    monkeypatch.setattr("xbench_fast.export.adapter.stand_in_adapter", lambda *names: stand_in_adapter("kad", "demo"))
    given = ["--images", images / "test_data", "--annotations", tmp_path / "list.json", "--repeat", 1, "--threads", 1]
    shutil.copytree(kad_demo.folder, tmp_path / "bundles" / "kad-demo")
    made = script("evaluate", *given, "--bundle", tmp_path / "bundles" / "kad-demo")
    assert made["images"] == 2 and made["pairs"] == sum(len(set(entry["syms"])) for entry in listed)
    writes_again(root, "evaluate", made)


@pytest.fixture
def exported_kad(kad_demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of an image graph give the one that this session has made, of the small KAD."""
    from xbench_fast.export import onnx_graph

    def export_image(adapter: Any, folder: Path) -> Any:
        shutil.copy2(kad_demo.folder / "image.onnx", folder)
        return onnx_graph.image_spec(adapter)

    monkeypatch.setattr(onnx_graph, "export_image", export_image)
    adapter = lambda *names: stand_in_adapter("kad", "demo")  # noqa: E731
    monkeypatch.setattr(sys.modules["xbench_fast.export"], "stand_in_adapter", adapter)


def test_the_share_behind_the_text(script: Script, root: Path, exported_kad: None) -> None:
    made = script("text_share", "--models", "kad")
    wanted = committed(root, "text_share")
    assert not lacking(made, wanted, 1) and made["models"]["kad"].keys() == wanted["models"]["kad"].keys()
    assert 0 < made["models"]["kad"]["text_macs"] < made["models"]["kad"]["image_macs"]


def test_many_prompt_sets(
    script: Script, module: Any, root: Path, exported_kad: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands run in this process."""
    cells = list[int]()

    def spend(program: str, bundle: Path, data: Path, cache: Path, *more: str) -> dict[str, float]:
        line = ["--bundles", bundle.parent, "--model", bundle.name, "--cache", cache, "--data", f"chestxdet10={data}"]
        assert _run([program, *map(str, line), *more]) == 0
        if program == "eval":
            out = Path(more[more.index("--out") + 1])
            cells.append(len(json.loads((out / "run.json").read_text(encoding="utf-8"))["cells"]))
        images = len(list((data / "test_data").iterdir()))
        return {"wall_s": images, "cpu_s": images * (1 + more.count("--prompts"))}

    monkeypatch.setattr(module("prompt_sets"), "spend", spend)
    monkeypatch.setattr(module("prompt_sets"), "use_checkout", lambda: None)  # the package is imported already
    made = script("prompt_sets", "--models", "kad:demo", "--sets", 3, "--images", 5, "--side", 64)
    wanted = committed(root, "prompt_sets")
    assert cells == [1, 3, 1, 3] and not lacking(made, wanted, 1)
    figures = made["models"]["kad-demo"]
    assert figures.keys() == wanted["models"]["kad-224"].keys() and figures["ratio_of_one_more_image"] == 2.0
    cells.clear()
    made = script("prompt_sets", "--models", "kad:demo", "--tiles", "2x2", "--images", 5, "--side", 64)
    wanted = json.loads((root / "benchmarks" / "results" / "tiles-cpu.json").read_text(encoding="utf-8"))
    assert cells == [1] * 6 and not lacking(made, wanted, 1) and made["what"].startswith("eval in tiles 2x2")
    assert made["models"]["kad-demo"].keys() == wanted["models"]["kad-224"].keys()


def test_exports(script: Script, module: Any, root: Path, kad_demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process measures an export; here it is the one that this session has made."""
    real = inspect.signature(pipeline.export_bundle)

    def made_before(*arguments: Any, **how: Any) -> Any:
        real.bind(*arguments, **how)
        return kad_demo.result

    monkeypatch.setattr(pipeline, "export_bundle", made_before)
    one = module("export_models")
    measured = one.export_one("kad", None, Path("unused"))
    monkeypatch.setattr(one, "run", lambda models, prompts, keep: dict.fromkeys(models, measured))
    made = script("export_models", "--models", "kad")
    wanted = committed(root, "export_models")
    assert not lacking(made, wanted, 1) and set(made["models"]) == {"kad"}
    wanted["models"]["kad"]["queries_per_set"] = {}
    assert not lacking(measured, wanted["models"]["kad"], 3)


def test_deletion_and_insertion(
    script: Script, root: Path, kad_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the weights of the small KAD on both sides."""
    shutil.copytree(kad_demo.folder, tmp_path / "kad-demo")
    bundle = Bundle.load(tmp_path / "kad-demo")
    add_prompts(bundle, prompt_encoder(bundle)(read_prompt_file(root / "demo" / "prompts.yaml")), replace=True)
    monkeypatch.setattr("xbench_fast.export.load_adapter", lambda *names: kad_demo.adapter)
    given = ["--images", 1, "--rounds", 1, "--threads", 1]
    made = script("faithfulness", "--bundle", tmp_path / "kad-demo", *given)
    writes_again(root, "faithfulness", made)
    assert made["passes"] >= 3 * made["images"] == 3


def test_the_server_under_load(script: Script, root: Path, tmp_path: Path) -> None:
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    synthetic.make_bundle(tmp_path / "bundles" / "blocks-32", graph=graph)
    given = ["--bundles", tmp_path / "bundles", "--seconds", 0.3, "--warm-up", 0.1, "--factors", "0.5"]
    made = script("serve_load", *given)
    wanted = committed(root, "serve_load")
    assert not lacking(made, wanted) and made["capacity"]["answered"] > 0 and not made["capacity"]["lost"]
    assert not lacking(made["phases"][0], wanted["phases"][0])


def test_the_server_beside_pytriton(script: Script, module: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTriton needs an environment of its own, with an earlier NumPy: serve takes its place."""
    one = module("serve_pytriton")
    both = one.both

    @contextmanager
    def two(folder: Path, python: Path) -> Iterator[list[Any]]:
        ports = one.free_ports(1)
        line = [*map(str, ("-m", "xbench_fast.runtime.cli", "serve", "--bundles", one.save_bundle(folder), "--port"))]
        line = [str(python), *line, str(ports[0]), "--engine", "onnxruntime-cpu", "--no-access-log", "--threads", "1"]
        with one.started("xbench-fast serve", line, f"http://127.0.0.1:{ports[0]}", {}, folder / "log") as server:
            yield [server, one.Server("PyTriton", server.url, server.process)]

    assert list(inspect.signature(both).parameters) == list(inspect.signature(two).parameters)
    monkeypatch.setattr(one, "both", two)
    given = ["--rounds", 1, "--seconds", 0.2, "--connections", 2]
    made = script("serve_pytriton", "--pytriton", sys.executable, *given)
    wanted = committed(root, "serve_pytriton")
    assert not lacking(made, wanted) and not lacking(made["runs"]["PyTriton"][0], wanted["runs"]["PyTriton"][0])


def test_further_questions_about_an_image(
    script: Script, module: Any, root: Path, exported_kad: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module("serve_questions"), "use_checkout", lambda: None)  # the package is imported already
    given = ["--model", "kad:demo", "--sets", 2, "--images", 2, "--rounds", 1, "--side", 64]
    made, wanted = script("serve_questions", *given), committed(root, "serve_questions")
    assert not lacking(made, wanted) and made["model"] == "kad-demo"
    assert wanted["model"] == "kad-224" and wanted["ratio_of_cpu"] <= 0.15


def test_dicom_objects_of_a_film(script: Script, module: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("highdicom")
    monkeypatch.setattr(module("dicom_objects"), "use_checkout", lambda: None)  # the package is imported already
    made = script("dicom_objects", "--model", "kad:demo", "--films", 2, "--side", 64, "--rounds", 1)
    wanted = committed(root, "dicom_objects")
    assert not lacking(made, wanted, 3) and made["models"][0]["model"] == "kad-demo"
    assert wanted["side"] == 1024 and all(row["ratio"] < 2 and row["ratio_of_cpu"] < 2 for row in wanted["models"])


def test_ray_beside_the_loop(script: Script, module: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in this process takes the place of the cluster, whose start takes ten seconds of CPU time;
    tests/cpu/evaluation/scaling starts one."""
    ray = SimpleNamespace(init=lambda **how: None, shutdown=lambda: None)
    monkeypatch.setattr(module("ray_overhead"), "RayWorkers", lambda *_, **__: nullcontext(InProcess(1)))
    monkeypatch.setitem(sys.modules, "ray", ray)
    made = script("ray_overhead", "--cases", 4, "--chunk", 2, "--rounds", 1)
    writes_again(root, "ray_overhead", made)
    assert made["rows_equal"]


def test_int8_beside_float32(script: Script, module: Any, root: Path, kad_demo: Any, tmp_path: Path) -> None:
    """Without exports in INT8, which take minutes: both precisions are one bundle."""
    one = module("int8")
    for name in ("full/kad-demo", "low/kad-demo-int8"):
        shutil.copytree(kad_demo.folder, tmp_path / name)
    (tmp_path / "int8.json").write_text(json.dumps({"models": {"kad-demo-int8": {}}}), encoding="utf-8")
    made = script("int8", "--repeat", 0, "--threads", 1, "--speed", tmp_path / "full", tmp_path / "low", "--models")
    wanted = committed(root, "int8")["models"]["kad-224-int8"]
    assert set(made["models"]["kad-demo-int8"]) <= set(wanted) and "cpu_ratio" in made["models"]["kad-demo-int8"]
    assert one.structure(kad_demo.folder / "image.onnx").keys() == wanted["structure"].keys()


def test_the_loop_around_an_engine(module: Any, root: Path, tmp_path: Path) -> None:
    """This version alone: the earlier one is in the history, which a copy of the repository may lack."""
    one = module("host_loop")
    now = one.make_tree(tmp_path / "now", root)
    one.make_images(tmp_path / "images", 6)
    one.ask("prepare", now, tmp_path, 6, 4)
    found = one.ask("lock", now, tmp_path, 6, 4)
    assert one.same_rows(tmp_path / "rows-now.parquet", tmp_path / "rows-now.parquet")
    options = argparse.Namespace(cases=6, batch=16, before=one.BEFORE, json=tmp_path / "made.json")
    both = [[found, found]]
    one.report(options, both, ["case_id"], {16: both, 256: both}, {5000: found, 20000: found})
    writes_again(root, "host_loop", json.loads((tmp_path / "made.json").read_text(encoding="utf-8")), 3)


def test_the_loop_around_a_device(module: Any, root: Path, tmp_path: Path) -> None:
    """A device that takes ten milliseconds for an image bounds the loop."""
    one = module("device_loop")
    module("host_loop").make_images(tmp_path / "images", 40)
    options = argparse.Namespace(cases=40, rate=100.0, batch=8, json=tmp_path / "made.json")
    one.ask("prepare", options, tmp_path, 1)
    whole, lock = (one.ask(what, options, tmp_path, 2) for what in ("whole", "lock"))
    assert whole["images_per_s"] <= 100 and {"rows", "feed", "loop", "merging"} == set(whole["us"])
    assert module("host_loop").same_rows(tmp_path / "rows-2.parquet", tmp_path / "rows-2.parquet")
    one.report(options, [1, 3], [[whole, whole]], [lock, lock])
    writes_again(root, "device_loop", json.loads((tmp_path / "made.json").read_text(encoding="utf-8")), 3)


def test_the_engine_torch_beside_onnxruntime(
    script: Script, module: Any, root: Path, kad_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export of the small KAD, and the comparison in this process; both engines are real."""
    one = module("torch_parity")
    monkeypatch.setattr(one, "exported", lambda name, folder: shutil.copytree(kad_demo.folder, folder / "kad-demo"))
    monkeypatch.setattr(one, "compare_apart", one.compare)
    made = script("torch_parity", "--models", "kad", "--images", 1)
    wanted = committed(root, "torch_parity")
    assert not lacking(made, wanted, 1) and set(made["bundles"]) == {"kad-demo"}
    found = made["bundles"]["kad-demo"]
    assert not lacking(found, wanted["bundles"]["kad-224"]) and 0 <= max(found["logits"], found["saliency"]) < 1e-5


def test_reading_beside_an_earlier_version(
    script: Script, module: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last commit stands for the earlier version, which needs packages that the project no longer has."""
    one = module("reading")
    monkeypatch.setattr(one, "BEFORE", "HEAD")
    if subprocess.run(["git", "-C", str(root), "cat-file", "-e", "HEAD"], capture_output=True).returncode:
        pytest.skip("this copy has no history")
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "a.dcm").write_bytes(one.coded(pixels, 8, "uncompressed"))
    writes_again(root, "reading", script("reading", "--png", tmp_path, "--dicom", tmp_path, "--rounds", 1), 3)


def test_bundles_small_enough_to_carry(module: Any, kad_demo: Any, tmp_path: Path, monkeypatch: Any) -> None:
    one = module("tile_bundles")
    monkeypatch.setattr(one, "use_checkout", lambda: None)
    monkeypatch.setattr(sys, "argv", ["tile_bundles", str(tmp_path / "out.tar.xz"), str(kad_demo.folder)])
    one.main()
    with tarfile.open(tmp_path / "out.tar.xz") as archive:
        archive.extractall(tmp_path / "there", filter="data")
    (found,) = (tmp_path / "there").iterdir()
    assert Bundle.load(found).graph("image") == Bundle.load(kad_demo.folder).graph("image")
    packed, before = (len(zlib.compress((one / "image.onnx").read_bytes())) for one in (found, kad_demo.folder))
    assert packed < before


def test_the_checkout_without_an_installation(root: Path) -> None:
    line = [sys.executable, str(root / "benchmarks" / "from_checkout.py"), "fast", "--version"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("xbench-fast")
