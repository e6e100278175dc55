"""Metadata of the server and of its models, as the Open Inference Protocol defines them."""

from __future__ import annotations

from typing import Any, Final

from ...host.machine_record import code_version
from ...reporting.tables.stamps import stamp
from ..protocol.interface import BOX_COLUMNS, EXTENSIONS, INPUTS, OUTPUTS, SERVER_NAME
from .served_models import ServedModel
from .service import Service

NOTICE: Final = "For research only; not a medical device. Do not use it for diagnosis."


def server_metadata() -> dict[str, Any]:
    """Name, version and extensions of the server."""
    return {"name": SERVER_NAME, "version": code_version(), "extensions": list(EXTENSIONS)}


def repository_index(service: Service) -> list[dict[str, str]]:
    """Every model with its state."""
    state = "READY" if service.ready else "UNAVAILABLE"
    return [
        {"name": name, "version": model.version, "state": state, "reason": "" if service.ready else "shutting down"}
        for name, model in service.catalogue.models.items()
    ]


def model_list(service: Service) -> dict[str, Any]:
    """Every model with its state, the findings it answers for by default, and its prompt sets."""
    models = service.catalogue.models.values()
    return {
        "models": [
            {
                **entry,
                "platform": model.info.backend,
                "weights": model.bundle.manifest.weights,
                "prompt_set": model.default_set,
                "findings": list(model.prompt_sets[model.default_set].findings),
            }
            for entry, model in zip(repository_index(service), models, strict=True)
        ]
    }


def model_metadata(model: ServedModel) -> dict[str, Any]:
    """Inputs and outputs of a model; `parameters`, which the protocol does not define, describe the model."""
    size = model.geometry.size
    shapes = {"image": [-1], "pixels": [-1, 1, size, size], "findings": [-1]}
    rows, columns = model.grid
    sizes = {"h": rows, "w": columns}
    manifest = model.bundle.manifest
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": model.info.backend,
        "inputs": [
            {"name": name, "datatype": datatypes[0], "shape": shapes.get(name, [1])}
            for name, datatypes in INPUTS.items()
        ],
        "outputs": [
            {
                "name": name,
                "datatype": spec.datatype,
                "shape": [n if isinstance(n, int) else sizes.get(n, -1) for n in spec.shape],
            }
            for name, spec in OUTPUTS.items()
        ],
        "parameters": {
            "model": manifest.model,
            "variant": manifest.variant,
            "weights": manifest.weights,
            "weights_notice": weights_notice(model),
            "notice": NOTICE,
            "digest": model.bundle.digest,
            "engine": model.info.detail,
            "precision": model.info.precision,
            "geometry": manifest.geometry.to_json(),
            **({"resized": manifest.resized} if manifest.resized else {}),
            "grid": list(model.grid),
            "saliency": dict(manifest.saliency),
            "logit_scale": manifest.logit_scale,
            "default_set": model.default_set,
            "prompt_sets": {name: list(item.findings) for name, item in model.prompt_sets.items()},
            "own_prompts": "text" in manifest.graphs,
            **({"fixed_findings": list(manifest.findings)} if manifest.findings else {}),
            "descriptions": {name: spec.description for name, spec in OUTPUTS.items()},
            "box_columns": list(BOX_COLUMNS),
        },
    }


def weights_notice(model: ServedModel) -> str:
    """A warning about the answers of a model, by the kind of its weights."""
    return stamp(model.bundle.manifest.weights) or "published weights"
