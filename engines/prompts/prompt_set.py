"""A prompt set: the texts a model is asked about one dataset, with their features."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import BundleError
from ..manifest import PromptRecord

FINDINGS_SET: Final = "findings"
"""The set of a supervised model that has all its findings, by their own names."""


@dataclass(frozen=True)
class PromptSet:
    """Q texts for F findings, encoded and run as one set (in some models queries attend to one another).

    finding_of: int32 [Q], index into `findings`; polarity: int8 [Q], +1 asks for the finding, -1 for its absence;
    features: float32 [Q, D...]; status: one word per finding that says where its wording comes from.
    """

    name: str
    findings: tuple[str, ...]
    texts: tuple[str, ...]
    finding_of: NDArray[np.int32]
    polarity: NDArray[np.int8]
    features: NDArray[np.float32]
    status: tuple[str, ...]

    @property
    def file(self) -> str:
        """Path of the features inside the bundle."""
        return f"prompts/{self.name}.npz"

    def status_of(self, finding: str) -> str:
        """The status of a finding of the set."""
        return self.status[self.findings.index(finding)]

    def only(self, finding: str) -> PromptSet:
        """The queries of one finding of the set, as a set."""
        at = self.findings.index(finding)
        queries = np.flatnonzero(self.finding_of == at)
        return PromptSet(
            name=self.name,
            findings=(finding,),
            texts=tuple(self.texts[query] for query in queries.tolist()),
            finding_of=np.zeros(len(queries), np.int32),
            polarity=self.polarity[queries],
            features=self.features[queries],
            status=self.status[at : at + 1],
        )

    def record(self) -> PromptRecord:
        """The entry of bundle.json."""
        return PromptRecord(
            file=self.file,
            findings=self.findings,
            texts=self.texts,
            finding_of=tuple(self.finding_of.tolist()),
            polarity=tuple(self.polarity.tolist()),
            status=self.status,
        )

    def save(self, path: Path) -> None:
        """Writes the features as .npz with the one array `features`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, features=np.ascontiguousarray(self.features, dtype=np.float32))

    @staticmethod
    def load(name: str, record: PromptRecord, path: Path, feature_shape: tuple[int, ...]) -> PromptSet:
        """Reads `path`; `feature_shape` is [D...] as the image graph takes it.

        Raises BundleError unless the file holds exactly one float32 array of the stated shape.
        """
        wanted = (len(record.texts), *feature_shape)
        size = int(np.prod(wanted)) * 4
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                # The size is checked before decompression: a small archive can claim to hold terabytes.
                if [m.filename for m in members] != ["features.npy"] or not size <= members[0].file_size <= size + 4096:
                    raise BundleError(
                        f"{path.name} does not hold {len(record.texts)} text features of {feature_shape}."
                    )
            with np.load(path, allow_pickle=False) as stored:
                features: NDArray[Any] = stored["features"]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
            raise BundleError(f"The text features {path} cannot be read ({error}); export the bundle again.") from error
        if features.dtype != np.float32 or features.shape != wanted or not np.isfinite(features).all():
            raise BundleError(
                f"The text features {path} are {features.dtype} {list(features.shape)}, not finite float32 "
                f"{list(wanted)}; export the bundle again."
            )
        return PromptSet(
            name=name,
            findings=record.findings,
            texts=record.texts,
            finding_of=np.asarray(record.finding_of, np.int32),
            polarity=np.asarray(record.polarity, np.int8),
            features=features,
            status=record.status,
        )
