"""The TensorRT engines and their plans, over a module with the names of each version and a device made of arrays.

Real plans are built in tests/cpu/engines/test_tensorrt_rtx.py; what runs on a device is in tests/gpu.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import device_on_cpu
import fake_onnxruntime
import fake_tensorrt
import numpy as np
import pytest
import synthetic
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.errors import EngineError, MissingExtraError
from xbench_fast.engines.plans.build import LayerTypes
from xbench_fast.engines.plans.key import Profile
from xbench_fast.engines.select import backend_status, choose, open_engine

VERSIONS = [("tensorrt", "10.16.1.11"), ("tensorrt", "11.4.0.106"), ("tensorrt-rtx", "1.7.1.116")]


class World:
    """A bundle, a device and a TensorRT."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.bundle = synthetic.make_bundle(folder / "blocks")
        self.patch, self.said = patch, []
        self.cupy = device_on_cpu.fake_device()
        patch.setitem(sys.modules, "cupy", self.cupy)
        self.install("tensorrt", "11.4.0.106")

    def install(self, name: str, version: str, **behaviour):
        for other in ("tensorrt", "tensorrt_rtx"):
            self.patch.setitem(sys.modules, other, None)
        self.name, self.trt = name, fake_tensorrt.make(version, self.cupy.streams, **behaviour)
        self.patch.setitem(sys.modules, name.replace("-", "_"), self.trt)

    def device(self, **options):
        self.cupy = device_on_cpu.fake_device(**options)
        self.patch.setitem(sys.modules, "cupy", self.cupy)
        self.install("tensorrt", "11.4.0.106")

    def open(self, **options):
        return open_engine(self.bundle, self.name, options=EngineOptions(say=self.said.append, **options))

    @property
    def plans(self) -> Path:
        return self.bundle.path / "plans"


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def pictures(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 1, synthetic.SIZE, synthetic.SIZE), dtype=np.uint8)


TEXT = np.array([[1, 0], [-1, 3], [2, 1]], np.float32)


def check(engine, count, seed=0, text=TEXT):
    pixels = pictures(count, seed)
    scores = engine.run(pixels, text)
    logits, saliency = synthetic.model(pixels, text)
    np.testing.assert_array_equal(scores.logits, logits)
    np.testing.assert_array_equal(scores.saliency, saliency)


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_scores_are_the_models(world, name, version):
    world.install(name, version)
    with world.open(max_batch=4) as engine:
        for count in (1, 4, 3, 11, 3):
            check(engine, count, seed=count)
        check(engine, 2, text=TEXT[:1])
        assert (engine.info.backend, engine.info.precision, engine.info.device) == (name, "fp32", "cuda:0")
    strongly_typed = 2 if version.startswith("10.") else 0
    assert world.trt.log["created_with"] == strongly_typed
    own = {"REQUIRE_USER_ALLOCATION": True} if name == "tensorrt-rtx" else {}
    assert world.trt.log["flags"] == {"TF32": False, **own}
    assert world.trt.log["profiles"][0]["pixels"] == tuple((n, 1, 32, 32) for n in (1, 4, 4))
    assert world.trt.log["profiles"][0]["text"] == ((1, 2), (3, 2), (3, 2))


def test_launches_are_captured_when_they_come_again_and_replayed(world):
    with world.open(max_batch=4) as engine:
        for seed in range(5):
            check(engine, 4, seed)
        context, other = world.trt.log["contexts"]
        assert context.executed == 2  # the first run, and its capture
        assert [graph.launches for graph in world.cupy.streams[-1].graphs] == [4]
        check(engine, 2)
        check(engine, 4, text=TEXT.copy() + 1)  # other features live at another address
        assert context.executed == 4 and len(world.said) == 1 and not other.executed


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_memory_belongs_to_the_stream_that_uses_it(world, monkeypatch, name, version):
    """Of buffers and of contexts: CuPy gives memory that is released back to its stream at once."""
    world.install(name, version)
    streams, empty = [], world.cupy.empty
    current = world.cupy.cuda.get_current_stream
    monkeypatch.setattr(world.cupy, "empty", lambda *given: streams.append(current()) or empty(*given))
    with world.open(max_batch=4) as engine:
        check(engine, 3)
        assert len(streams) == 6 + 2 * (name == "tensorrt-rtx")
        assert set(map(id, streams)) == {id(engine.stream)}


def sealed(data: bytes) -> bytes:
    return data + hashlib.sha256(data).digest()


def test_tensorrt_for_rtx_captures_itself_and_its_kernels_are_kept(world):
    """Eager kernels for every shape, CuPy's memory, and nothing captured here; a run before leaves its kernels."""
    kept: list[bytes] = []
    for turn in range(3):
        world.install("tensorrt-rtx", "1.7.1.116")
        with world.open(max_batch=4) as engine:
            for seed in range(4):
                check(engine, 4, seed)
            for context in world.trt.log["contexts"]:
                config = context.config
                assert config.dynamic_shapes_kernel_specialization_strategy == "EAGER"
                assert (config.cuda_graph_strategy, config.strategy) == ("WHOLE_GRAPH_CAPTURE", "USER_MANAGED")
            first, second = world.trt.log["contexts"]
            assert first.executed == 4 and first.config.cache is second.config.cache
            assert first.memory != second.memory and not world.cupy.streams[-1].graphs
        assert world.trt.log["kernels"] == kept, "read once, for both contexts"
        (place,) = world.plans.glob("*.kernels")
        kept = [b"k" * (turn + 1)]
        assert place.read_bytes() == sealed(kept[0])
        assert type(world.bundle).load(world.bundle.path).name == world.bundle.name, "a bundle with such a file loads"
    whole = place.read_bytes()
    flipped = bytes([whole[0] ^ 1]) + whole[1:]
    for content in (sealed(b"of another driver"), flipped, b"kkk", whole[:-1], sealed(b"k") + b"k", b""):
        place.write_bytes(content)
        world.install("tensorrt-rtx", "1.7.1.116")
        with world.open(max_batch=4) as engine:
            check(engine, 4)
        assert world.trt.log["kernels"] == [b"of another driver"] * (b"driver" in content), (
            "what is damaged is not read"
        )
        assert place.read_bytes() == sealed(b"k") and not world.said[1:]
    world.bundle.path.joinpath("elsewhere").write_bytes(b"k")
    place.unlink()
    place.symlink_to(world.bundle.path / "elsewhere")
    world.install("tensorrt-rtx", "1.7.1.116")
    with world.open(max_batch=4) as engine:
        check(engine, 4)
    assert not world.trt.log["kernels"] and not place.is_symlink()


def test_a_graph_is_not_replayed_once_its_context_has_changed(world):
    """The stand-in refuses such a replay. Shapes, features and slots change between batches that were captured."""
    with world.open(max_batch=4) as engine:
        for count in (4, 4, 2, 2, 4, 4, 2, 4):
            check(engine, count, seed=count)
        buffers = [engine.input(slot, len(TEXT)) for slot in (0, 1)]
        for turn, count in enumerate((4, 4, 4, 4, 3, 4, 4, 4, 4)):
            pixels, slot = pictures(count, turn), turn % 2
            buffers[slot][:count].set(pixels, stream=engine.stream)
            scores = engine.submit(buffers[slot][:count], TEXT, slot)
            np.testing.assert_array_equal(scores.saliency.get(), synthetic.model(pixels, TEXT)[1])
        for _ in range(3):
            check(engine, 4)
            check(engine, 4, text=TEXT + 1)
        assert sum(graph.launches for graph in world.cupy.streams[-1].graphs) > 4
        assert all(context.executed for context in world.trt.log["contexts"])


def test_without_captures_every_batch_is_enqueued(world):
    with world.open(max_batch=4) as engine:
        engine.stream.captures_fail = True
        for seed in range(3):
            check(engine, 3, seed)
        assert world.trt.log["contexts"][0].executed == 3
    assert sum("without CUDA graphs" in line for line in world.said) == 1


def test_scores_stay_on_the_device_in_two_slots(world):
    with world.open(max_batch=4) as engine:
        first, second = pictures(4, 1), world.cupy.asarray(pictures(3, 2))
        a = engine.submit(first, TEXT, 0)
        b = engine.submit(second, TEXT, 1)
        for scores, pixels in ((a, first), (b, np.asarray(second))):
            assert isinstance(scores.logits, world.cupy.ndarray) and isinstance(scores.saliency, world.cupy.ndarray)
            logits, saliency = synthetic.model(pixels, TEXT)
            np.testing.assert_array_equal(scores.logits.get(), logits)
            np.testing.assert_array_equal(scores.saliency.get(), saliency)
        with pytest.raises(EngineError, match="takes 1 to 3 queries, not 4"):
            engine.submit(first, np.ones((4, 2), np.float32), 0)


def test_a_plan_is_built_once_and_kept(world):
    for _ in range(2):
        with world.open(max_batch=4) as engine:
            check(engine, 4)
    assert world.trt.log["builds"] == 1 and len(world.said) == 1 and "building its fp32 plan" in world.said[0]
    stem = "nvidia_h200-tensorrt_11.4.0.106-fp32-batch4"
    assert {path.name for path in world.plans.iterdir() if path.name[0] != "."} == {
        f"{stem}.plan",
        f"{stem}.json",
        "nvidia_h200-tensorrt_11.4.0.106.timing",
    }
    with world.open(max_batch=4, tf32=True) as engine:
        assert engine.info.precision == "tf32" and world.trt.log["flags"] == {"TF32": True}
        assert world.trt.log["timing"] == b"t", "the timing cache of the first build is used by the second"
    (place,) = world.plans.glob("*.timing")
    assert place.read_bytes() == sealed(b"tt")
    place.write_bytes(b"u" + place.read_bytes()[1:])
    with world.open(max_batch=2) as engine:
        assert world.trt.log["timing"] == b"", "a damaged one is begun again"


@pytest.mark.parametrize("change", ["queries", "gpu", "library", "graph", "damage", "description", "schema"])
def test_a_plan_for_something_else_is_replaced_or_refused(world, change):
    with world.open(max_batch=4) as engine:
        check(engine, 1)
    plan, described = next(world.plans.glob("*.plan")), next(world.plans.glob("*.json"))
    if change in ("queries", "gpu", "library", "graph", "schema"):
        record = json.loads(described.read_text())
        if change == "schema":
            record["schema"], words = 99, "another version"
        elif change == "queries":
            record["key"]["profile"]["queries"], words = [1, 2, 2], r"profile was .*queries \[1, 2, 2\], is"
        else:
            value = {"gpu": {"name": "NVIDIA L4", "capability": "8.9"}, "library": "tensorrt-rtx", "graph": "0" * 64}
            record["key"][change] = value[change]
            words = (
                f"{change} was {'name NVIDIA L4' if change == 'gpu' else '000000000000' if change == 'graph' else ''}"
            )
        described.write_text(json.dumps(record))
    elif change == "damage":
        plan.write_bytes(plan.read_bytes()[:-1] + b" ")
        words = "does not match its sha256"
    else:
        described.write_text("{")
        words = "cannot be read"
    with pytest.raises(EngineError, match=rf"(?s){words}.*--no-build"), world.open(max_batch=4, build=False):
        pass
    world.said.clear()
    with world.open(max_batch=4) as engine:
        check(engine, 4)
    assert len(world.said) == 1 and "again, because" in world.said[0]
    with world.open(max_batch=4, build=False) as engine:
        check(engine, 4)


def test_no_plan_and_no_build_is_one_sentence(world):
    with (
        pytest.raises(EngineError, match=r"has no fp32 plan for NVIDIA H200 .*there is none yet.*--no-build"),
        world.open(build=False),
    ):
        pass


def test_a_killed_build_leaves_nothing_that_is_used(world, monkeypatch):
    def dies(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt), world.open(max_batch=4):
            pass
    assert not [path for path in world.plans.iterdir() if path.suffix in (".plan", ".json", ".part")]
    with world.open(max_batch=4) as engine:
        check(engine, 4)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"parse_error": "No importer registered\n for op"}, r"node node_7 \(Unique\): No importer registered for op"),
        ({"build_error": "no implementation for node 3"}, "cannot build a plan .*no implementation for node 3"),
        ({"load_error": "serialization version mismatch"}, "cannot load the plan .*serialization version mismatch"),
        ({"run_error": "illegal memory access"}, "failed on blocks: illegal memory access"),
        (
            {"layers": [("MATRIX_MULTIPLY", "HALF"), ("SOFTMAX", "FLOAT")]},
            "is no fp32 graph: its products compute 1 in HALF",
        ),
    ],
)
def test_what_the_library_refuses_is_one_sentence(world, behaviour, words):
    world.install("tensorrt", "11.4.0.106", **behaviour)
    with pytest.raises(EngineError, match=words) as raised, world.open(max_batch=4) as engine:
        check(engine, 1)
    assert "\n" not in str(raised.value)


def test_too_little_memory_halves_the_batch(world):
    world.install("tensorrt", "11.4.0.106", start_failures=2)
    with world.open(max_batch=16) as engine:
        assert engine.max_batch == 4
        check(engine, 9)
    assert [line for line in world.said if "out of GPU memory" in line] == [
        "blocks: out of GPU memory, going on with batches of 8",
        "blocks: out of GPU memory, going on with batches of 4",
    ]
    assert world.trt.log["profiles"][-1]["pixels"][2][0] == 4, "a smaller plan, which also needs less memory"
    with world.open(max_batch=16, build=False) as engine:
        check(engine, 16)


def test_buffers_that_do_not_fit_halve_the_batch_too(world):
    world.device(memory=6000)
    with world.open(max_batch=16) as engine:
        check(engine, 16)
        assert engine.max_batch == 4
    world.device(memory=10)
    with pytest.raises(EngineError, match="not even one image at a time"), world.open(max_batch=2) as engine:
        check(engine, 1)


def test_a_read_only_bundle_keeps_its_plans_in_the_users_cache(world, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with world.open(max_batch=4) as engine:
        check(engine, 1)
    assert not world.plans.exists() and list((tmp_path / "cache").rglob("*.plan"))


def test_plans_are_no_part_of_the_bundles_identity(world):
    from xbench_fast.engines.bundle import Bundle

    before = world.bundle.digest
    with world.open(max_batch=4):
        pass
    assert Bundle.load(world.bundle.path).digest == before


def test_a_tf32_plan_needs_a_float32_graph(world):
    import dataclasses

    world.bundle.manifest = dataclasses.replace(world.bundle.manifest, precision="fp16")
    with pytest.raises(EngineError, match="TF32 is for float32 graphs"), world.open(tf32=True):
        pass


def test_half_graphs_are_checked_layer_by_layer():
    fine = {("CONVOLUTION", "HALF"): 3, ("MATRIX_MULTIPLY", "HALF"): 2, ("SOFTMAX", "FLOAT"): 1, ("SLICE", "HALF"): 1}
    assert LayerTypes(fine).complaint("fp16") is None
    heads = {**fine, ("MATRIX_MULTIPLY", "FLOAT"): 2}
    assert LayerTypes(heads).complaint("fp16") is None, "the last products before the outputs are float32"
    assert "3 in FLOAT" in str(LayerTypes({("CONVOLUTION", "FLOAT"): 3}).complaint("fp16"))
    assert "5 in HALF" in str(LayerTypes(heads).complaint("fp32"))
    assert "5 in HALF" in str(LayerTypes(fine).complaint("bf16"))
    assert "SOFTMAX compute in HALF" in str(LayerTypes({**fine, ("SOFTMAX", "HALF"): 1}).complaint("fp16"))
    assert LayerTypes({("MATRIX_MULTIPLY", "BF16"): 1}).complaint("bf16") is None
    assert "no product" in str(LayerTypes({("SLICE", "FLOAT"): 1}).complaint("fp32"))


def test_profiles_are_in_order():
    with pytest.raises(EngineError, match="is not in order"):
        Profile((1, 8, 4), (1, 2, 2))


def test_what_is_missing_is_said(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(MissingExtraError, match="tensorrt is not installed"), world.open():
        pass
    reasons = {status.name: status for status in backend_status()}
    assert not reasons["tensorrt"].usable and "not installed" in reasons["tensorrt"].reason
    world.install("tensorrt", "10.16.1.11")
    assert choose("auto")[0] == "tensorrt"
    world.cupy.cuda.runtime.getDeviceCount = lambda: 0
    assert "there is no NVIDIA GPU" in {s.name: s.reason for s in backend_status()}["tensorrt"]

    def old(*_):
        raise device_on_cpu.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    world.cupy.cuda.runtime.getDeviceCount = old
    assert "too old" in {s.name: s.reason for s in backend_status()}["tensorrt"]
    with pytest.raises(EngineError, match="No GPU can be used"), world.open():
        pass
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtraError, match="CuPy is not installed"), world.open():
        pass


def test_a_gpu_that_cannot_be_used_is_one_sentence(world):
    """An engine that is asked for by name is not probed before it is opened."""

    def refuses(*_, **__):
        raise device_on_cpu.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver\nversion is insufficient")

    with world.open(max_batch=4) as engine:
        check(engine, 1)
        engine.stream.enqueue = refuses
        with pytest.raises(
            EngineError, match=r"The GPU failed while blocks ran \(cudaErrorInsufficientDriver: .*--engine"
        ) as no:
            engine.submit(pictures(2), TEXT, 0)
        assert "\n" not in str(no.value)
        del engine.stream.enqueue
        engine.stream.synchronize = refuses
        with pytest.raises(EngineError, match="The GPU failed while blocks ran"):
            engine.run(pictures(1), TEXT)
        del engine.stream.synchronize
    world.cupy.cuda.Stream = refuses
    with pytest.raises(EngineError, match="The GPU failed while blocks ran"), world.open():
        pass
    world.cupy.cuda.runtime.getDeviceCount = refuses
    with pytest.raises(EngineError, match=r"No GPU can be used: .*too old.*--engine onnxruntime-cpu"), world.open():
        pass


def test_a_fault_while_closing_is_one_sentence_too(world):
    def refuses():
        raise device_on_cpu.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    with pytest.raises(EngineError, match="an illegal memory access"), world.open(max_batch=4) as engine:
        engine.stream.synchronize = refuses
    assert not hasattr(engine, "_engine"), "what the engine took is released all the same"


@pytest.mark.parametrize(("gpu", "capability", "wanted"), [("NVIDIA H200", (9, 0), False), ("NVIDIA L4", (8, 9), True)])
def test_tensorrt_for_rtx_is_chosen_unasked_only_for_gpus_it_names(world, gpu, capability, wanted):
    world.device(name=gpu, capability=capability)
    world.install("tensorrt-rtx", "1.7.1.116")
    world.patch.setitem(sys.modules, "onnxruntime", fake_onnxruntime.make(world.cupy.streams))
    name, why = choose("auto")
    assert name == ("tensorrt-rtx" if wanted else "onnxruntime-cuda")
    assert wanted or f"not tensorrt-rtx: its makers do not name {gpu} (compute capability 9.0)" in why
    assert next(s for s in backend_status() if s.name == "tensorrt-rtx").usable, "asked for, it may be tried"
    with world.open(max_batch=4) as engine:
        check(engine, 4)


def test_plans_are_built_ahead_by_the_command(world, capsys):
    from xbench_fast.export.cli import main

    assert main(["plan", str(world.bundle.path.parent), "--batch", "4"]) == 0
    assert "blocks: fp32 plan for NVIDIA H200, batches up to 4" in capsys.readouterr().err
    with world.open(max_batch=4, build=False) as engine:
        check(engine, 4)
    assert world.trt.log["builds"] == 1
    world.patch.setitem(sys.modules, "tensorrt", None)
    assert main(["plan", str(world.bundle.path)]) == 1
    assert "No tensorrt plan can be built here: tensorrt is not installed" in capsys.readouterr().err
