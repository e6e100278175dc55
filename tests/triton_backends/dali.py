"""Stands in for Triton's DALI backend: runs the pipeline of 1/dali.py on the CPU inside Triton's Python backend."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        return config

    def initialize(self, arguments: dict[str, str]) -> None:
        source = Path(arguments["model_repository"]) / arguments["model_version"] / "dali.py"
        spec = importlib.util.spec_from_file_location("pipeline", source)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.pipeline = module.pipe(prefetch_queue_depth=1)
        self.pipeline.build()
        self.output = json.loads(arguments["model_config"])["output"][0]["name"]

    def execute(self, requests: list[Any]) -> list[Any]:
        files = [triton.get_input_tensor_by_name(request, "image").as_numpy() for request in requests]
        self.pipeline.feed_input("image", [np.ascontiguousarray(one) for many in files for one in many])
        (pixels,) = self.pipeline.run()
        ends = np.cumsum([len(many) for many in files])[:-1]
        parts = np.split(np.array(pixels.as_tensor()), ends)
        return [triton.InferenceResponse([triton.Tensor(self.output, np.ascontiguousarray(p))]) for p in parts]
