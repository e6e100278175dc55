"""The identity of an object: UIDs that follow from all that decides its pixels and numbers (docs/dicom.md §2)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

import numpy as np

from ....engines.base import EngineInfo
from ....engines.bundle import Bundle
from ....engines.prompts.prompt_set import PromptSet
from ...host.code_numbers import code_number
from ...host.machine_record import library_versions

MAP_RULE: Final = "bilinear to 224 x 224, min-max, value of the grid pixel at each film pixel"
"""How an object's pixels follow from the model's map (docs/dicom.md §3)."""

_LIBRARIES: Final = ("highdicom", "numpy", "pillow", "pydicom", "pyjpegls")
_UNPUBLISHED: Final = {"stand-in": "STAND-IN WEIGHTS", "demo": "DEMO WEIGHTS", "randomised": "RANDOM WEIGHTS"}


@dataclass(frozen=True)
class ModelIdentity:
    """What gave an answer: the model, and all that can change its numbers.

    name: of the model and its variant, as the bundle states them. digest: of the bundle. prompt_digest: of the prompt
    set with its texts and features. precision and engine: of what ran the graph. weights: of `Manifest.weights`.
    logit_scale: of `Manifest`: the score is the cosine logit / logit_scale where it is not 1.
    """

    name: str
    digest: str
    prompt_digest: str
    precision: str
    engine: str
    weights: str = "published"
    logit_scale: float = 1.0

    @staticmethod
    def of(bundle: Bundle, prompts: PromptSet, info: EngineInfo) -> ModelIdentity:
        """The identity of a bundle that an engine runs with a prompt set."""
        manifest = bundle.manifest
        return ModelIdentity(
            name=f"{manifest.model} {manifest.variant}",
            digest=bundle.digest,
            prompt_digest=prompt_digest(prompts),
            precision=info.precision,
            engine=info.backend,
            weights=manifest.weights,
            logit_scale=manifest.logit_scale,
        )

    @property
    def warning(self) -> str:
        """What every series says of weights that are not a trained model's, such as STAND-IN WEIGHTS; else empty."""
        return _UNPUBLISHED.get(self.weights, "")


@dataclass(frozen=True)
class ObjectIdentity:
    """The parts of a UID that the objects of one film share; tau: the threshold of masks and boxes."""

    model: ModelIdentity
    film_uid: str
    tau: float

    def uid(self, kind: str, finding: str = "", *parts: str) -> str:
        """The UID of an object of a kind, or of a part of it. It changes with each of its parts."""
        model = self.model
        return hashed_uid(
            kind, model.digest, self.film_uid, finding, str(np.float32(self.tau)), MAP_RULE, writer_version(),
            model.prompt_digest, model.precision, model.engine, *parts,
        )  # fmt: skip


def writer_version() -> str:
    """Names everything but the answer that the bytes of an object depend on: this code, and libraries that write."""
    return "+".join([code_number("dicom"), *(f"{name}-{text}" for name, text in library_versions(_LIBRARIES).items())])


def hashed_uid(*parts: str) -> str:
    """A UID of at most 44 characters that follows from texts: 2.25 and a UUID of version 8 (RFC 9562 §5.8)."""
    digest = bytearray(hashlib.sha256("\0".join(part.replace("\0", " ") for part in parts).encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return f"2.25.{int.from_bytes(digest)}"


def is_hashed_uid(uid: str) -> bool:
    """Whether a UID has the form of `hashed_uid`, as all series of this project's objects have."""
    number = uid.removeprefix("2.25.")
    if number == uid or not number.isdecimal() or int(number) >> 128:
        return False
    return int(number) >> 76 & 0xF == 8 and int(number) >> 62 & 0b11 == 0b10


def prompt_digest(prompts: PromptSet) -> str:
    """The SHA-256 of a prompt set: its name, findings, texts, their polarity, and their features."""
    texts = [prompts.name, prompts.findings, prompts.texts, prompts.finding_of.tolist(), prompts.polarity.tolist()]
    digest = hashlib.sha256(json.dumps(texts).encode())
    digest.update(np.ascontiguousarray(prompts.features, np.float32).tobytes())
    return digest.hexdigest()
