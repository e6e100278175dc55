"""The datasets of an evaluation, each loaded once, and what each asks of a bundle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ...engines.bundle import Bundle
from ...engines.errors import ConfigError, XBenchError
from ..data.images.views import View
from ..host.config import DatasetConfig
from ..host.paths import has_folder
from ..results.loaded_dataset import LoadedDataset, load_dataset
from .cell_options import Options
from .live_model import one_query_each
from .pairing import AskedSet, asked_prompts, cell_models, missing_prompts
from .progress import some_names


class CellInputs:
    """The inputs of cells. learn: is called with each dataset that is loaded."""

    def __init__(self, options: Options, learn: Callable[[LoadedDataset], None]) -> None:
        self._options, self._learn = options, learn
        self._loaded: dict[str, LoadedDataset | XBenchError] = {}

    def load(self, config: DatasetConfig) -> LoadedDataset:
        """The cases of a dataset. Raises XBenchError, each time the same."""
        loaded = self._loaded.get(config.name)
        if loaded is None:
            try:
                options = self._options
                loaded = load_dataset(config, options.limit, options.shard, options.chunk, verify=options.verify)
                self._learn(loaded)
            except XBenchError as error:
                loaded = error
            self._loaded[config.name] = loaded
        if isinstance(loaded, XBenchError):
            raise loaded
        return loaded

    def models(self, model: str, config: DatasetConfig) -> list[tuple[str, DatasetConfig]]:
        """As `cell_models`; a dataset of phrases has one cell for each view, as the sets of all datasets do not ask
        it. In tiles there are no views."""
        try:
            phrases = isinstance(config.prompts, tuple) and self.load(config).dataset.asks_phrases
        except XBenchError:  # of every cell, which says so
            phrases = False
        config = replace(config, prompts=None) if phrases else config
        if (tiles := self._options.tiles) is not None:
            return [(f"{name}+{tiles.name}", one) for name, one in cell_models(model, replace(config, augment=()))]
        return cell_models(model, config)

    def pair(self, bundle: Bundle, model: str, config: DatasetConfig) -> AskedSet | str:
        """The inputs of a cell of `model`, or the reason why it is skipped. Raises XBenchError."""
        if self._options.skip_absent and not has_folder(config.root):
            return f"its folder {config.root} does not exist"
        try:
            loaded = self.load(config)
        except ConfigError as error:
            further = missing_prompts(config, [bundle.path])
            raise ConfigError(" ".join([str(error), *further])) from error
        if loaded.dataset.asks_phrases:
            if supervised := bundle.manifest.findings:
                names = some_names(supervised)
                return f"it reads no phrases: it is supervised and knows {len(supervised)} findings ({names})"
            if config.prompts is not None:
                raise ConfigError(
                    f"The dataset '{config.name}' asks each image its own phrases, so it takes no prompt set; leave "
                    f"prompts={config.prompts} out."
                )
            bundle.graph("text")  # raises
            classes, view = loaded.dataset.classes, self.view(config)
            return AskedSet(model, loaded, one_query_each(classes, "report"), {name: name for name in classes}, view)
        asked = asked_prompts(bundle, config, loaded.dataset)
        if isinstance(asked, str):
            return asked
        prompts, findings = asked
        if self._options.tiles is not None and self._options.tiles.largest and (prompts.polarity < 0).any():
            raise ConfigError(
                f"The prompt set '{prompts.name}' of {bundle.name} has negative prompts, whose largest score means "
                "nothing; leave --tile-score largest out."
            )
        return AskedSet(model, loaded, prompts, findings, self.view(config))

    def view(self, config: DatasetConfig) -> View | None:
        """The view of a cell's images; None: plain images. Raises ConfigError where phrases could name the other
        side."""
        if not config.view:
            return None
        view = View(config.view)
        if view.mirrored and self.load(config).dataset.asks_phrases:
            raise ConfigError(
                f"The phrases of the dataset '{config.name}' can name a side, so its images are not flipped; leave "
                f"'{config.view}' out of augment."
            )
        return view

    def is_asked(self, bundle: Bundle, config: DatasetConfig) -> bool:
        """Whether a dataset asks the bundle anything."""
        for model, one in self.models(bundle.name, config):
            with suppress(XBenchError):
                if not isinstance(self.pair(bundle, model, one), str):
                    return True
        return False
