"""What the rows of a cell depend on: the ingredients of its key, and the facts about it in run.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...engines.base import Engine
from ...engines.bundle import Bundle
from ...engines.errors import DataError
from ...engines.geometry import Geometry
from ...engines.manifest import parity_summary
from ..data.datasets.dataset import Dataset
from ..data.images.decoders import Decoder
from ..host.code_numbers import code_number
from ..host.paths import has_file
from ..host.protocols import PROTOCOLS
from ..results.cell_key import cell_ingredients, reader_code, reference_ingredients
from ..results.loaded_dataset import LoadedDataset
from .cell_options import Options
from .finishing import PlannedCell
from .live_model import LiveModel
from .measure import Measure
from .pairing import AskedSet, input_geometry
from .phrase_queries import PhraseQueries

RowsOf = Literal["cpu", "gpu", "live", "baseline", "maps", "boxes"]
"""Rows of an engine on the CPU, of one on a GPU, of a live model, of a baseline, of a folder of maps, and of boxes."""


@dataclass(frozen=True)
class Planning:
    """Plans cells with these options, this protocol and this decoder."""

    options: Options
    measure: Measure
    decoder: Decoder

    def geometry(self, geometry: Geometry, loaded: LoadedDataset) -> Geometry:
        """A model's geometry for the images of a dataset."""
        return input_geometry(geometry, loaded.config, self.measure.protocol)

    def of_bundle(
        self, bundle: Bundle, engine: Engine, asked_set: AskedSet, phrases: PhraseQueries | None = None
    ) -> PlannedCell:
        """The cell of a bundle. Raises DataError when the dataset has no images at all."""
        loaded, prompts, findings = asked_set.loaded, asked_set.prompts, asked_set.findings
        geometry = self.geometry(bundle.manifest.geometry, loaded)
        how = self._how(loaded, geometry, "cpu" if engine.info.device == "cpu" else "gpu") | _how_asked(phrases)
        ingredients = cell_ingredients(bundle, prompts, findings, (loaded.name, loaded.digest), engine.info, how)
        ingredients["model"] = asked_set.model
        ingredients |= _seen_by_code(self._how_seen(asked_set))
        asked = {phrase for case in loaded.asked for phrase in case.phrases.values()}
        alone = "_alone" if phrases is not None and phrases.alone else ""
        facts = {
            "weights": bundle.manifest.weights,
            "weights_source": bundle.manifest.weights_source,
            "saliency_map": bundle.manifest.saliency_map,
            "smoothing": bundle.manifest.smoothing,
            "parity": parity_summary(bundle.manifest.parity),
            "model_family": bundle.manifest.model,
            "logit_scale": bundle.manifest.logit_scale,
            "engine": asdict(engine.info),
            "grid": self._grid(bundle),
            "prompts": {
                "set": prompts.name,
                "queries": len(prompts.texts) if phrases is None else len(asked),
                "status": {name: prompts.status_of(finding) + alone for name, finding in findings.items()},
            },
            **(
                {"activation": activation}
                if (activation := (bundle.manifest.checkpoint or {}).get("activation"))
                else {}
            ),
            **({"variant_of": bundle.name} if asked_set.model != bundle.name else {}),
            **self._how_seen(asked_set),
            **({"supervised": True} if bundle.manifest.findings else {}),
            **({"uncompared_texts": True} if bundle.manifest.uncompared_texts else {}),
            **({"resized": bundle.manifest.resized} if bundle.manifest.resized else {}),
            **extent(loaded),
        }
        threads = self.options.threads if engine.info.device == "cpu" else None
        return PlannedCell(asked_set.model, loaded, list(findings), ingredients, facts, threads)

    def of_live(
        self, model: LiveModel, engine: Engine, asked_set: AskedSet, phrases: PhraseQueries | None = None
    ) -> PlannedCell:
        """The cell of a live model. Raises DataError when the dataset has no images at all."""
        loaded, seen = asked_set.loaded, self._how_seen(asked_set)
        geometry = self.geometry(model.geometry, loaded)
        how = self._how(loaded, geometry, "live")
        ingredients = reference_ingredients(asked_set.model, model.description, (loaded.name, loaded.digest), how)
        ingredients |= {"engine": "live", "geometry": geometry.key, **_how_asked(phrases), **_seen_by_code(seen)}
        grid = self._grid(engine.bundle)
        facts = {"weights": "live", "version": model.version, "grid": grid, **seen, **extent(loaded)}
        return PlannedCell(asked_set.model, loaded, list(loaded.dataset.classes), ingredients, facts)

    def _grid(self, bundle: Bundle) -> list[int]:
        """Height and width of the maps in rows."""
        grid, tiles = bundle.manifest.grid, self.options.tiles
        return list(grid if tiles is None else tiles.grid(grid, bundle.manifest.geometry.size))

    def _how_seen(self, asked_set: AskedSet) -> dict[str, str]:
        """The facts in run.json of cells whose images are changed ("view") or divided ("tiles")."""
        view, tiles = asked_set.view, self.options.tiles
        seen = {} if view is None else {"view": view.description}
        return seen if tiles is None else {**seen, "tiles": tiles.description}

    def _how(self, loaded: LoadedDataset, geometry: Geometry, rows_of: RowsOf) -> dict[str, Any]:
        """What rows depend on besides model, prompts and dataset. Raises DataError when the dataset has no images."""
        if not any(has_file(case.image) for case in loaded.all_cases):
            raise DataError(
                f"None of the {len(loaded.all_cases)} images of dataset '{loaded.name}' exists (the first would be "
                f"{loaded.all_cases[0].image}); correct its root or its options."
            )
        how = self.options.ingredients(batch=True) | made_by(self.measure, loaded.dataset, rows_of)
        if loaded.config.reader in self.measure.protocol.equalises:
            how["intensity"] = "equalised"
        return {**how, "decoder": self.decoder.describe(geometry)}


def _seen_by_code(seen: Mapping[str, str]) -> dict[str, str]:
    """The ingredients of such cells: other cells do not depend on this code."""
    return {part: f"{description}, {code_number(part)}" for part, description in seen.items()}


def extent(loaded: LoadedDataset) -> dict[str, int]:
    """The number of cases of the dataset; it shows a report whether a limit excluded any."""
    return {"dataset_cases": len(loaded.asked)}


def made_by(measure: Measure, dataset: Dataset, rows_of: RowsOf) -> dict[str, str]:
    """The sweep and the code that make rows of a dataset, by ingredient; of a package's protocol its code too. Raises
    DataError."""
    code = PROTOCOLS.code(measure.protocol.name)
    made = {"sweep": measure.description, "code": code_number(rows_of), "reader": reader_code(dataset)}
    return made | ({"protocol": code} if code else {})


def _how_asked(phrases: PhraseQueries | None) -> dict[str, str]:
    """The ingredient of cells whose cases are asked their own phrases."""
    return {} if phrases is None else {"phrases": "alone" if phrases.alone else "together"}
