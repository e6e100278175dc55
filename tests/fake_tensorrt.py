"""A TensorRT that runs the model of `synthetic`, with the names of version 10, version 11 or TensorRT for RTX.

A name that the version does not have raises AttributeError here as it would there. Names from the vendors' bindings:
10.16 still has the precision flags and EXPLICIT_BATCH, 11.4 and RTX 1.7 have neither.
"""

from __future__ import annotations

import ctypes
import json
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

import numpy as np
import synthetic

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)


def make(version: str, streams: list[Any], layers: list[tuple[str, str]] | None = None, **behaviour: Any) -> Any:
    """A module. layers: (kind, type) of the network's layers. behaviour: parse_error, build_error, load_error (words),
    start_failures (how many contexts run out of memory), run_error (words).

    A launch that was captured must not be replayed once its context was given a shape or an address: such a graph
    may read what the context holds, which is why NVIDIA advises one context for each.
    """
    layers = layers or [("CONVOLUTION", "FLOAT"), ("SOFTMAX", "FLOAT")]
    ten = version.startswith("10.")
    log: dict[str, Any] = {"created_with": None, "flags": {}, "profiles": [], "timing": None, "builds": 0}
    log["contexts"], log["kernels"] = [], []
    is_rtx = int(version.split(".")[0]) < 10
    failures = [behaviour.get("start_failures", 0)]

    class Severity:
        INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    class ILogger:
        def __init__(self):
            self.ready = True

    ILogger.Severity = Severity

    def complain(logger, words):
        assert logger.ready
        logger.log(Severity.WARNING, "nothing of interest")
        logger.log(Severity.ERROR, words)

    class Network:
        num_inputs = 2
        num_layers = len(layers)

        def get_input(self, index):
            name, shape = [("pixels", (-1, 1, synthetic.SIZE, synthetic.SIZE)), ("text", (-1, 2))][index]
            return SimpleNamespace(name=name, shape=shape)

        def get_layer(self, index):
            kind, dtype = layers[index]
            output = SimpleNamespace(dtype=f"DataType.{dtype}")
            return SimpleNamespace(type=f"LayerType.{kind}", num_outputs=1, get_output=lambda _: output)

    class OnnxParser:
        def __init__(self, network, logger):
            self.num_errors = 1 if behaviour.get("parse_error") else 0

        def parse_from_file(self, path):
            log["parsed"] = path
            return not self.num_errors

        def get_error(self, index):
            words = behaviour["parse_error"]
            return SimpleNamespace(
                node_name=lambda: "node_7", node=lambda: 7, node_operator=lambda: "Unique", desc=lambda: words
            )

    class Profile:
        def __init__(self):
            self.shapes = {}

        def set_shape(self, name, low, best, high):
            self.shapes[name] = (low, best, high)

    class Config:
        def __init__(self):
            self.cache = None

        def add_optimization_profile(self, profile):
            log["profiles"].append(profile.shapes)

        def set_flag(self, flag):
            log["flags"][flag] = True

        def clear_flag(self, flag):
            log["flags"][flag] = False

        def create_timing_cache(self, data):
            assert isinstance(data, bytes)
            return SimpleNamespace(given=data, serialize=lambda: bytearray(data + b"t"))

        def set_timing_cache(self, cache, ignore_mismatch):
            self.cache, log["timing"] = cache, cache.given

        def get_timing_cache(self):
            return self.cache

    class Builder:
        def __init__(self, logger):
            self.logger = logger

        def create_network(self, flags):
            log["created_with"] = flags
            return Network()

        def create_builder_config(self):
            return Config()

        def create_optimization_profile(self):
            return Profile()

        def build_serialized_network(self, network, config):
            if behaviour.get("build_error"):
                complain(self.logger, behaviour["build_error"])
                return None
            log["builds"] += 1
            return memoryview(json.dumps({"build": log["builds"], "profile": log["profiles"][-1]}).encode())

    class Context:
        def __init__(self, logger, profile, config):
            self.logger, self.profile, self.executed, self.config, self.memory = logger, profile, 0, config, None
            self.shapes, self.addresses = {}, {}
            self.changes, self.settled = 0, False

        def set_device_memory(self, address, size):
            assert is_rtx and self.config.strategy == "USER_MANAGED" and size == 4096 and address
            self.memory = address

        def set_optimization_profile_async(self, index, stream):
            assert index == 0
            return True

        def set_input_shape(self, name, shape):
            low, _, high = self.profile[name]
            self.shapes[name] = shape
            self.changes, self.settled = self.changes + 1, False
            return all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))

        def set_tensor_address(self, name, address):
            self.addresses[name] = address
            self.changes += 1
            return True

        def execute_async_v3(self, stream_handle):
            if behaviour.get("run_error"):
                complain(self.logger, behaviour["run_error"])
                return False
            assert (self.memory is not None) == is_rtx
            stream = next(s for s in streams if s.ptr == stream_handle)
            assert not is_rtx or stream.capturing is None, "it captures launches itself"
            addresses, shapes, changes = dict(self.addresses), dict(self.shapes), self.changes
            captured = stream.capturing is not None
            if captured and not self.settled:
                complain(self.logger, "a first launch with new shapes cannot be captured")
                return False

            def launch():
                assert not captured or self.changes == changes, "a graph is replayed though its context has changed"
                run(addresses, shapes)

            stream.enqueue(launch)
            self.settled = True
            self.executed += 1
            return True

    class Engine:
        num_io_tensors = 4

        def __init__(self, logger, profile):
            self.logger, self.profile = logger, profile

        def get_tensor_name(self, index):
            return ("pixels", "text", "logits", "saliency")[index]

        def create_execution_context(self, config=None):
            assert (config is not None) == is_rtx
            if failures[0]:
                failures[0] -= 1
                complain(self.logger, "Error Code 2: OutOfMemory (Requested size was 123 bytes.)")
                return None
            log["contexts"].append(Context(self.logger, self.profile, config))
            return log["contexts"][-1]

        device_memory_size_v2 = 4096

        def create_runtime_config(self):
            assert is_rtx
            return RuntimeConfig()

    class RuntimeConfig:
        cuda_graph_strategy = dynamic_shapes_kernel_specialization_strategy = strategy = cache = None

        def set_execution_context_allocation_strategy(self, strategy):
            self.strategy = strategy

        def create_runtime_cache(self):
            return RuntimeCache()

        def set_runtime_cache(self, cache):
            self.cache = cache
            return True

    class RuntimeCache:
        kernels = b""

        def serialize(self):
            return memoryview(self.kernels + b"k")

        def deserialize(self, blob):
            log["kernels"].append(blob)
            if not blob.startswith(b"k"):
                return False
            self.kernels = blob
            return True

    class Runtime:
        def __init__(self, logger):
            self.logger = logger

        def deserialize_cuda_engine(self, plan):
            if behaviour.get("load_error"):
                complain(self.logger, behaviour["load_error"])
                return None
            assert isinstance(plan, bytes)
            return Engine(self.logger, json.loads(plan)["profile"])

    architectures = ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121", "CURRENT")
    rtx = {
        "ComputeCapability": SimpleNamespace(**dict.fromkeys(architectures)),
        "DynamicShapesKernelSpecializationStrategy": SimpleNamespace(LAZY="LAZY", EAGER="EAGER", NONE="NONE"),
        "CudaGraphStrategy": SimpleNamespace(DISABLED="DISABLED", WHOLE_GRAPH_CAPTURE="WHOLE_GRAPH_CAPTURE"),
        "ExecutionContextAllocationStrategy": SimpleNamespace(STATIC="STATIC", USER_MANAGED="USER_MANAGED"),
    }
    creation = SimpleNamespace(STRONGLY_TYPED=1, EXPLICIT_BATCH=0) if ten else SimpleNamespace(STRONGLY_TYPED=0)
    flags = {"TF32": "TF32", "REFIT": "REFIT"} | ({"FP16": "FP16", "BF16": "BF16"} if ten else {})
    flags |= {"REQUIRE_USER_ALLOCATION": "REQUIRE_USER_ALLOCATION"} if is_rtx else {}
    return SimpleNamespace(
        __version__=version,
        __spec__=ModuleSpec("tensorrt", None),  # torch looks whether the package is there
        ILogger=ILogger,
        Builder=Builder,
        OnnxParser=OnnxParser,
        Runtime=Runtime,
        NetworkDefinitionCreationFlag=creation,
        BuilderFlag=SimpleNamespace(**flags),
        **(rtx if is_rtx else {}),
        log=log,
    )


def run(addresses: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> None:
    """The synthetic model from and to these addresses."""
    logits, saliency = synthetic.model(
        at(addresses["pixels"], shapes["pixels"], U8), at(addresses["text"], shapes["text"], F32)
    )
    at(addresses["logits"], logits.shape, F32)[...] = logits
    at(addresses["saliency"], saliency.shape, F32)[...] = saliency


def at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """The memory at an address."""
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(address), dtype).reshape(shape)
