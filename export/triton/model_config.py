"""Writes config.pbtxt, Triton's description of a model, in protobuf's text form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...engines.geometry import Geometry
from ...engines.plans.family import SERVED_BATCH


class Word(str):
    """The name of an enumeration value, which is written without quotes."""


@dataclass(frozen=True)
class TritonLimits:
    """batch: largest number of images in an engine call; delay: microseconds the first request of a batch waits for
    others; queue: requests that may wait; timeout: microseconds a request may wait; instances: copies of the engine;
    instance_kind: KIND_GPU or KIND_CPU."""

    batch: int = SERVED_BATCH
    delay: int = 2000
    queue: int = 64
    timeout: int = 30_000_000
    instances: int = 1
    instance_kind: str = "KIND_GPU"

    def scheduling(self) -> dict[str, Any]:
        """The settings for batches and for the queue before them."""
        preferred = sorted({size for size in (self.batch // 4, self.batch // 2, self.batch) if size > 1})
        return {
            "dynamic_batching": {
                **({"preferred_batch_size": preferred} if preferred else {}),
                "max_queue_delay_microseconds": self.delay,
                "default_queue_policy": {
                    "timeout_action": Word("REJECT"),
                    "default_timeout_microseconds": self.timeout,
                    "allow_timeout_override": True,
                    "max_queue_size": self.queue,
                },
            }
        }

    def instance_group(self, profile: str | None = None) -> dict[str, Any]:
        """The number of copies and their device; `profile`: the plan's optimisation profile."""
        group: dict[str, Any] = {"count": self.instances, "kind": Word(self.instance_kind)}
        return {"instance_group": [{**group, **({"profile": [profile]} if profile is not None else {})}]}


@dataclass(frozen=True)
class Served:
    """A model as clients of Triton see it; `about`: parameters that they can read in its configuration."""

    name: str
    size: int
    findings: int
    grid: tuple[int, int]
    negative: bool
    about: Mapping[str, str]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        count = self.findings
        outputs = [
            {"name": "logits", "dims": [count], "label_filename": "labels.txt"},
            {"name": "saliency", "dims": [count, *self.grid]},
        ]
        if self.negative:
            outputs.append({"name": "logits_negative", "dims": [count]})
        return [{"name": item["name"], "data_type": Word("TYPE_FP32"), **item} for item in outputs]


def set_config(model: Served, limits: TritonLimits, *, plan: bool) -> str:
    """The configuration of a model of one prompt set: pixels uint8 [batch, 1, S, S] in, a row of outputs per image."""
    zeros = {"data_type": Word("TYPE_UINT8"), "dims": [1, model.size, model.size], "zero_data": True}
    return render(
        {
            "name": model.name,
            "platform": "tensorrt_plan" if plan else "onnxruntime_onnx",
            "max_batch_size": limits.batch,
            "input": [_pixels(model.size)],
            "output": model.outputs,
            **limits.scheduling(),
            **limits.instance_group("0" if plan else None),
            "version_policy": {"latest": {"num_versions": 1}},
            "model_warmup": [{"name": "zeros", "batch_size": 1, "inputs": {"key": "pixels", "value": zeros}}],
            "parameters": _parameters(model.about),
        }
    )


def text_input_config(model: Served, text: Sequence[int], limits: TritonLimits) -> str:
    """The configuration of the bundle's own graph: requests contain text features, so Triton cannot batch them."""
    outputs = [
        {"name": "logits", "data_type": Word("TYPE_FP32"), "dims": [-1, -1]},
        {"name": "saliency", "data_type": Word("TYPE_FP32"), "dims": [-1, -1, *model.grid]},
    ]
    pixels = {**_pixels(model.size), "dims": [-1, 1, model.size, model.size]}
    return render(
        {
            "name": model.name,
            "platform": "onnxruntime_onnx",
            "max_batch_size": 0,
            "input": [pixels, {"name": "text", "data_type": Word("TYPE_FP32"), "dims": [-1, *text]}],
            "output": outputs,
            **limits.instance_group(),
            "version_policy": {"latest": {"num_versions": 1}},
            "parameters": _parameters(model.about),
        }
    )


def dali_config(name: str, geometry: Geometry, limits: TritonLimits) -> str:
    """The configuration of the step that decodes and resizes: the bytes of JPEG files in, pixels out."""
    return render(
        {
            "name": name,
            "backend": "dali",
            "max_batch_size": limits.batch,
            "input": [_image()],
            "output": [_pixels(geometry.size)],
            **limits.scheduling(),
            **limits.instance_group(),
            "version_policy": {"latest": {"num_versions": 1}},
        }
    )


def ensemble_config(name: str, prepare: str, model: Served, limits: TritonLimits) -> str:
    """The configuration of an ensemble: `prepare`, then the model."""
    outputs = [{key: value for key, value in item.items() if key != "label_filename"} for item in model.outputs]
    steps = [
        {"model_name": prepare, "model_version": -1, **_maps({"image": "image"}, {"pixels": "pixels"})},
        {
            "model_name": model.name,
            "model_version": -1,
            **_maps({"pixels": "pixels"}, {item["name"]: item["name"] for item in outputs}),
        },
    ]
    return render(
        {
            "name": name,
            "platform": "ensemble",
            "max_batch_size": limits.batch,
            "input": [_image()],
            "output": outputs,
            "ensemble_scheduling": {"step": steps},
            "parameters": _parameters(model.about),
        }
    )


def render(fields: Mapping[str, Any], indent: int = 0) -> str:
    """A message in protobuf's text form: lists are repeated fields, mappings are messages."""
    lines: list[str] = []
    space = "  " * indent
    for name, value in fields.items():
        if isinstance(value, list) and not any(isinstance(item, Mapping) for item in value):
            lines.append(f"{space}{name}: [{', '.join(map(_scalar, value))}]\n")
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                lines.append(f"{space}{name} {{\n{render(item, indent + 1)}{space}}}\n")
            else:
                lines.append(f"{space}{name}: {_scalar(item)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, Word):
        return str(value)
    return json.dumps(value)  # quotes, escapes, true and false are the same in both


def _image() -> dict[str, Any]:
    return {"name": "image", "data_type": Word("TYPE_UINT8"), "dims": [-1]}


def _pixels(size: int) -> dict[str, Any]:
    return {"name": "pixels", "data_type": Word("TYPE_UINT8"), "dims": [1, size, size]}


def _maps(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "input_map": [{"key": key, "value": value} for key, value in inputs.items()],
        "output_map": [{"key": key, "value": value} for key, value in outputs.items()],
    }


def _parameters(about: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"string_value": value}} for key, value in about.items()]
