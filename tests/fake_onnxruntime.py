"""An onnxruntime with a CUDA provider that runs the model of `synthetic` from and to bound addresses.

A graph in bytes, such as a part of a bundle's, is run by the installed library on the CPU. Names and parameters are
those of the installed library, which a test compares.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

import numpy as np
import synthetic
from fake_tensorrt import at, run
from xbench_fast.engines.backends.ort_session import IDENTITY

try:
    import onnxruntime as installed
except ImportError:  # then no graph is given in bytes
    installed = None


class EPFail(Exception):
    """A provider that failed while running; the library's own has no other base either."""


def make(streams: list[Any], **behaviour: Any) -> Any:
    """A module. behaviour: providers (those that start), left (operations that stay on the CPU), create_errors and
    run_errors (words that the next sessions with CUDA, and the next runs, fail with; None for one that does not),
    keyword (False: a version that does not know enable_fallback), version, cuda_version, graph_refusal (words that a
    session with CUDA graphs fails with), capture_errors (words that the next captures fail with).

    As the library does, a session falls back to the CPU with a banner on standard output, once, unless told not to:
    when it cannot be made, and when `run` fails with EP_FAIL.
    """
    log: dict[str, Any] = {
        "sessions": [],
        "runs": 0,
        "shapes": [],
        "probes": 0,
        "bound": 0,
        "host_runs": [],
        "graphs": [],
        "parts": [],
    }
    providers = behaviour.get("providers", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    errors: list[str | None] = list(behaviour.get("run_errors", []))
    refusals: list[str | None] = list(behaviour.get("create_errors", []))
    capture_errors: list[str] = list(behaviour.get("capture_errors", []))

    class SessionOptions:
        def __init__(self):
            self.log_severity_level, self.intra_op_num_threads, self.entries = 2, 0, {}
            self.graph_optimization_level = None

        def add_session_config_entry(self, key, value):
            self.entries[key] = value

    class RunOptions:
        def __init__(self):
            self.log_severity_level, self.entries = 2, {}

        def add_run_config_entry(self, key, value):
            self.entries[key] = value

    class IOBinding:
        def __init__(self, session):
            self.session, self.addresses, self.shapes = session, {}, {}
            self.values, self.left, self.made = {}, [], []

        def bind_input(self, name, device_type, device_id, element_type, shape, buffer_ptr):
            self._bind(name, device_type, device_id, element_type, shape, buffer_ptr)

        def bind_output(self, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None):
            if buffer_ptr is None:
                assert (device_type, str(device_id)) == ("cuda", self.session.settings["device_id"])
                self.left.append(name)
                return
            self._bind(name, device_type, device_id, element_type, shape, buffer_ptr)

        def bind_ortvalue_input(self, name, ortvalue):
            self.values[name] = ortvalue

        def get_outputs(self):
            return self.made

        def _bind(self, name, device_type, device_id, element_type, shape, buffer_ptr):
            assert (device_type, str(device_id)) == ("cuda", self.session.settings["device_id"])
            assert isinstance(buffer_ptr, int) and isinstance(shape, tuple)
            assert element_type is (np.uint8 if name == "pixels" else np.float32)
            self.addresses[name], self.shapes[name] = buffer_ptr, shape
            log["bound"] += 1

    class InferenceSession:
        def __init__(self, path_or_bytes, sess_options=None, providers=None, provider_options=None, **kwargs):
            self.options = sess_options
            self.fallback = not behaviour.get("keyword", True) or int(kwargs.get("enable_fallback", 1)) == 1
            asked = [p if isinstance(p, str) else p[0] for p in providers]
            self.settings = next((p[1] for p in providers if not isinstance(p, str)), {})
            self.providers = [p for p in asked if p in started] or ["CPUExecutionProvider"]
            words = refusals.pop(0) if refusals and "CUDAExecutionProvider" in asked else None
            if words is not None:
                self.fall_back(RuntimeError(words))
            if self.settings.get("enable_cuda_graph") == "1" and (words := behaviour.get("graph_refusal")):
                raise RuntimeError(words)
            self.captured = {}
            self.part = None
            if isinstance(path_or_bytes, bytes) and path_or_bytes != IDENTITY:
                self.part = installed.InferenceSession(path_or_bytes, providers=["CPUExecutionProvider"])
            log["sessions"].append(self)

        def fall_back(self, error):
            if not self.fallback:
                raise error
            print(f"EP Error {error}\nFalling back to ['CPUExecutionProvider'] and retrying.")
            self.providers, self.fallback = ["CPUExecutionProvider"], False

        def disable_fallback(self):
            self.fallback = False

        def get_providers(self):
            return self.providers

        def get_inputs(self):
            if self.part is not None:
                return self.part.get_inputs()
            return [
                SimpleNamespace(name="pixels", type="tensor(uint8)", shape=["b", 1, synthetic.SIZE, synthetic.SIZE]),
                SimpleNamespace(name="text", type="tensor(float)", shape=["q", 2]),
            ]

        def get_outputs(self):
            if self.part is not None:
                return self.part.get_outputs()
            grid = [synthetic.GRID, synthetic.GRID]
            return [
                SimpleNamespace(name="logits", type="tensor(float)", shape=["b", "q"]),
                SimpleNamespace(name="saliency", type="tensor(float)", shape=["b", "q", *grid]),
            ]

        def get_provider_graph_assignment_info(self):
            assert self.options.entries["session.record_ep_graph_assignment_info"] == "1"
            nodes = [SimpleNamespace(op_type=kind) for kind in behaviour.get("left", [])]
            on_gpu = SimpleNamespace(op_type="MatMul")
            return [
                SimpleNamespace(ep_name="CUDAExecutionProvider", get_nodes=lambda: [on_gpu]),
                SimpleNamespace(ep_name="CPUExecutionProvider", get_nodes=lambda: nodes),
            ]

        def io_binding(self):
            return IOBinding(self)

        def run_part(self, binding):
            outputs = [item.name for item in self.part.get_outputs()]
            given = dict(binding.values)
            for name in binding.addresses.keys() - set(outputs):
                dtype = np.dtype(np.uint8 if name == "pixels" else np.float32)
                array = at(binding.addresses[name], binding.shapes[name], dtype).copy()
                given[name] = installed.OrtValue.ortvalue_from_numpy(array)
            assert given.keys() == {item.name for item in self.part.get_inputs()}
            log["parts"].append(sorted(given))
            binding.made = self.part.run_with_ort_values(outputs, given)
            for name, value in zip(outputs, binding.made, strict=True):
                if name not in binding.left:
                    at(binding.addresses[name], binding.shapes[name], np.dtype(np.float32))[...] = value.numpy()

        def run_with_iobinding(self, iobinding, run_options=None):
            assert iobinding.session is self
            if self.part is None:
                assert set(iobinding.addresses) == {"pixels", "text", "logits", "saliency"}
            entries = dict(run_options.entries)
            assert entries.pop("disable_synchronize_execution_providers") == "1"
            number = int(entries.pop("gpu_graph_id", 0 if self.settings.get("enable_cuda_graph") == "1" else -1))
            assert not entries and (number == -1 or self.settings["enable_cuda_graph"] == "1")
            fail()
            stream = next(s for s in streams if str(s.ptr) == self.settings["user_compute_stream"])
            if self.part is not None:
                assert number == -1
                stream.enqueue(lambda: self.run_part(iobinding))
                return
            addresses, shapes = dict(iobinding.addresses), dict(iobinding.shapes)
            log["graphs"].append(number)
            if number != -1:
                if number not in self.captured and capture_errors:
                    raise RuntimeError(capture_errors.pop(0))
                # A replay reads and writes where the capture did, whatever is bound now.
                addresses, shapes = self.captured.setdefault(number, (addresses, shapes))
            stream.enqueue(lambda: run(addresses, shapes))
            log["runs"] += 1
            log["shapes"].append(shapes)

        def run(self, output_names, input_feed, run_options=None):
            if output_names is None:  # the probe
                log["probes"] += 1
                return list(input_feed.values())
            assert output_names == ["logits", "saliency"]
            try:
                fail()
            except EPFail as error:
                self.fall_back(error)
            log["host_runs"].append(len(input_feed["pixels"]))
            return list(synthetic.model(input_feed["pixels"], input_feed["text"]))

    def fail():
        words = errors.pop(0) if errors else None
        if words is not None:
            raise (EPFail if "EP_FAIL" in words else RuntimeError)(words)

    started = set(providers)
    return SimpleNamespace(
        __version__=behaviour.get("version", "1.31.1"),
        __spec__=ModuleSpec("onnxruntime", None),  # torch looks whether the package is there
        cuda_version=behaviour.get("cuda_version", ""),
        set_default_logger_severity=lambda severity: log.setdefault("severities", []).append(severity),
        SessionOptions=SessionOptions,
        RunOptions=RunOptions,
        IOBinding=IOBinding,
        InferenceSession=InferenceSession,
        OrtValue=getattr(installed, "OrtValue", None) or SimpleNamespace(ortvalue_from_numpy=None),
        GraphOptimizationLevel=SimpleNamespace(ORT_DISABLE_ALL=0),
        get_available_providers=lambda: behaviour.get("available", ["CUDAExecutionProvider", "CPUExecutionProvider"]),
        log=log,
        errors=errors,
    )
