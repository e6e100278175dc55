"""Stands in for Triton's ONNX Runtime backend, which pip does not bring: runs 1/model.onnx inside Triton's Python one.

Triton takes a backend written in Python from backends/<name>/model.py. Everything around the session is Triton's own:
the configuration, its checks, batching, ensembles, both protocols. Inputs are joined along the first axis, run once and
taken apart again, as the real backend does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton  # type: ignore[import-not-found]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        return config

    def initialize(self, arguments: dict[str, str]) -> None:
        graph = Path(arguments["model_repository"]) / arguments["model_version"] / "model.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self.config = json.loads(arguments["model_config"])
        required = [item.name for item in self.session.get_inputs()]
        if sorted(required) != sorted(item["name"] for item in self.config["input"]):
            raise triton.TritonModelException(f"the graph needs {required}")
        self.batches = Path(arguments["model_repository"]) / "batches.txt"

    def execute(self, requests: list[Any]) -> list[Any]:
        names = [item["name"] for item in self.config["input"]]
        outputs = [item["name"] for item in self.config["output"]]
        given = [[triton.get_input_tensor_by_name(request, name).as_numpy() for name in names] for request in requests]
        if self.config["max_batch_size"] == 0:
            groups = [self.session.run(outputs, dict(zip(names, arrays, strict=True))) for arrays in given]
        else:
            joined = [np.concatenate(arrays) for arrays in zip(*given, strict=True)]
            with self.batches.open("a") as log:
                log.write(f"{len(joined[0])}\n")
            ends = np.cumsum([len(arrays[0]) for arrays in given])[:-1]
            found = self.session.run(outputs, dict(zip(names, joined, strict=True)))
            groups = list(zip(*(np.split(array, ends) for array in found), strict=True))
        return [
            triton.InferenceResponse(
                [triton.Tensor(name, np.ascontiguousarray(a)) for name, a in zip(outputs, group, strict=True)]
            )
            for group in groups
        ]
