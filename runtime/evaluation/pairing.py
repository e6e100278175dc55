"""Selects the cells of a run: bundles x datasets, and the findings that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...engines.bundle import Bundle, find_bundles
from ...engines.errors import BundleError, ConfigError
from ...engines.geometry import Geometry
from ...engines.manifest import MODEL_ORDER
from ...engines.prompts.prompt_set import FINDINGS_SET, PromptSet
from ...engines.registry import did_you_mean
from ...metrics_gpu.grounding.protocols import Protocol
from ..data.datasets.dataset import Dataset
from ..data.datasets.dataset_registry import DATASETS
from ..data.images.tiles import Tiling
from ..data.images.views import View
from ..host.config import Config, DatasetConfig
from ..host.paths import has_file
from ..host.protocols import PROTOCOLS, SCORERS, find_protocol
from ..results.loaded_dataset import LoadedDataset, check_reader
from .progress import some_names
from .reference.baselines import PREFIX as BASELINE
from .reference.box_models import MIRRORED, MOVED, READER, WORDS
from .reference.box_models import PREFIX as BOXES
from .reference.map_files import PREFIX as MAPS

KINDS = (BASELINE, MAPS, BOXES, MOVED, MIRRORED, WORDS, READER)
"""The prefixes of models that are no bundles."""


def select_datasets(config: Config, names: Sequence[str]) -> list[DatasetConfig]:
    """The configured datasets named `names`, or all of them. Raises ConfigError for a name that is not configured."""
    if not names:
        return list(config.datasets.values())
    for name in names:
        if name not in config.datasets:
            valid = [*config.datasets, *(DATASETS.names() if name not in DATASETS.names() else ())]
            raise ConfigError(
                f"The dataset '{name}' is not configured: {did_you_mean(name, valid)}; give its folder with --data "
                f"{name}=PATH."
            )
    return [config.datasets[name] for name in dict.fromkeys(names)]


def select_bundles(config: Config, names: Sequence[str]) -> list[Path]:
    """Folders of the bundles named `names` (a bundle's name, a path to one, or a model's name), or of all bundles, the
    known models in the order of `MODEL_ORDER` before others.

    Raises ConfigError when there is no bundle, a name matches none, or two bundles have the same name.
    """
    paths = [path for folder in config.bundles for path in find_bundles(folder)]
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    if names:
        paths = list(dict.fromkeys(path for name in names for path in _named(name, paths)))
    elif not paths:
        where = ", ".join(str(folder) for folder in config.bundles) or "no folder is configured"
        raise ConfigError(
            f"No bundle was found ({where}); make one with xbench-export and name its folder with --bundles."
        )
    else:
        paths.sort(key=_model_rank)
    seen: dict[str, Path] = {}
    for path in paths:
        if path.name in seen:
            raise ConfigError(
                f"Two bundles are called '{path.name}': {seen[path.name]} and {path}; rename one of them."
            )
        seen[path.name] = path
    return paths


def prompt_set_name(bundle: Bundle, config: DatasetConfig, dataset: Dataset) -> str | None:
    """The prompt set of `bundle` for a dataset: the configured one, else the dataset's name, else its reader's name,
    else the set of all findings of a supervised model.

    None when the bundle has none of them. Raises BundleError when a configured one is missing, and ConfigError for
    several (`DatasetConfig.each_set`).
    """
    have = bundle.manifest.prompt_sets
    if isinstance(config.prompts, tuple):
        raise ConfigError(
            f"The dataset '{config.name}' names several prompt sets ({some_names(config.prompts)}), and one is needed "
            f"here; name it with --data-option {config.name}.prompts=SET."
        )
    if config.prompts is not None and config.prompts not in have:
        hint = did_you_mean(config.prompts, sorted(have))
        raise BundleError(
            f"The bundle {bundle.name} has no prompt set '{config.prompts}', which dataset '{config.name}' asks for: "
            f"{hint}."
        )
    last = FINDINGS_SET if bundle.manifest.findings else None
    return next((name for name in (config.prompts, config.name, dataset.name, last) if name in have), None)


@dataclass(frozen=True)
class AskedSet:
    """A prompt set that a bundle is asked on a dataset. model: the name of the cell's model, as `cell_models` makes it;
    findings: class of the dataset -> finding of the set. view: of the images; None: plain images."""

    model: str
    loaded: LoadedDataset
    prompts: PromptSet
    findings: dict[str, str]
    view: View | None = None


def variant_name(model: str, prompts: str) -> str:
    """The model of the cell of one of several prompt sets: a row of its own in every table, MODEL@SET."""
    return f"{model}@{prompts}"


def is_one_of_several(model: str, bundle: str) -> bool:
    """Whether the model of a cell is that of one of several prompt sets of a bundle."""
    return model.startswith(variant_name(bundle, ""))


def cell_models(model: str, config: DatasetConfig) -> list[tuple[str, DatasetConfig]]:
    """The names of the models of a bundle's cells on a dataset, and the dataset with the prompt set and view of each: a
    view is a row of its own in every table too, MODEL+VIEW."""
    several, cells = isinstance(config.prompts, tuple), []
    for one in (one for view in config.each_view for one in view.each_set):
        name = variant_name(model, str(one.prompts)) if several else model
        cells.append((f"{name}+{View(one.view).name}" if one.view else name, one))
    return cells


def asked_prompts(bundle: Bundle, config: DatasetConfig, dataset: Dataset) -> tuple[PromptSet, dict[str, str]] | str:
    """The prompt set that `bundle` is asked on a dataset, and class -> finding of it; or why it cannot be asked, in
    words. Raises BundleError as `prompt_set_name`."""
    name = prompt_set_name(bundle, config, dataset)
    if name is None:
        have = some_names(sorted(bundle.manifest.prompt_sets))
        return (
            f"the bundle has no prompt set '{config.name}' (it has: {have}); name one with --data-option "
            f"{config.name}.prompts=SET, or add one with xbench-fast prompts encode --model {bundle.name}"
        )
    prompts = bundle.prompt_set(name)
    findings = shared_findings(prompts.findings, dataset.classes)
    if not findings:
        return (
            f"its prompt set '{name}' ({some_names(prompts.findings)}) has none of the dataset's classes "
            f"({some_names(dataset.classes)})"
        )
    return prompts, findings


def check_datasets(datasets: Sequence[DatasetConfig], bundles: Sequence[Path]) -> None:
    """Raises ConfigError for a view that does not exist, and for a dataset whose reader does not exist. Its message
    also names the prompts that no bundle has: whoever writes a table of a dataset then learns of both at once."""
    for config in datasets:
        try:
            for text in config.augment:
                View(text)  # raises
        except ConfigError as error:
            raise ConfigError(f"Dataset '{config.name}': {error}") from error
        try:
            check_reader(config)
        except ConfigError as error:
            raise ConfigError(" ".join([str(error), *missing_prompts(config, bundles)])) from error


def missing_prompts(config: DatasetConfig, bundles: Sequence[Path]) -> list[str]:
    """A sentence, if no bundle has the configured prompt set, or else one for the dataset; none without bundles. The
    reader is not loaded, because it may be the fault: its name in the configuration replaces its own name."""
    sets: dict[str, None] = {}
    for path in bundles:
        with suppress(BundleError):
            manifest = Bundle.load(path, check_hashes=False).manifest
            if manifest.findings and config.prompts is None:
                return []
            sets |= dict.fromkeys(sorted(manifest.prompt_sets))
    names = [config.name, config.reader] if config.prompts is None else [one.prompts for one in config.each_set]
    if not sets or not sets.keys().isdisjoint(names):
        return []
    subject = "No bundle has a" if len(bundles) > 1 else f"The bundle {bundles[0].name} has no"
    return [
        f"{subject} prompt set '{names[0]}' for dataset '{config.name}' (there are: {some_names(list(sets))}); name "
        f'one with --data-option {config.name}.prompts=SET, or prompts = "SET" in [datasets.{config.name}] of '
        "xbench.toml."
    ]


def configured_protocol(name: str) -> Protocol:
    """The protocol of that name. Raises ConfigError for an unknown one."""
    if name not in PROTOCOLS and name in SCORERS:
        raise ConfigError(f"'{name}' is a published scorer of boxes, which report computes: leave it out here.")
    return find_protocol(name)


def input_geometry(geometry: Geometry, dataset: DatasetConfig, rules: Protocol) -> Geometry:
    """A model's geometry for the images of a dataset, with the intensity that the protocol asks for."""
    return replace(geometry, intensity="equalised") if dataset.reader in rules.equalises else geometry


def needed_geometries(
    bundles: Sequence[Path], rules: Protocol, loaded: LoadedDataset, tiles: Tiling | None = None
) -> list[Geometry]:
    """The distinct geometries that these bundles need for a dataset under a protocol, also for tiles; a damaged bundle,
    or one without prompts for the dataset, needs none."""
    geometries: dict[str, Geometry] = {}
    for path in bundles:
        with suppress(BundleError):
            bundle = Bundle.load(path, check_hashes=False)
            if loaded.dataset.asks_phrases or _has_prompts(bundle, loaded):
                geometry = input_geometry(bundle.manifest.geometry, loaded.config, rules)
                for each in (geometry, *([tiles.geometry(geometry)] if tiles else ())):
                    geometries.setdefault(each.key, each)
    return list(geometries.values())


def _has_prompts(bundle: Bundle, loaded: LoadedDataset) -> bool:
    """Whether a bundle has a prompt set that is asked on a dataset."""
    for config in loaded.config.each_set:
        with suppress(BundleError):
            if prompt_set_name(bundle, config, loaded.dataset) is not None:
                return True
    return False


def shared_findings(findings: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
    """Class of the dataset -> finding of the prompt set, in the dataset's order.

    Names match when they are equal, or when they differ only in case and no other class or finding does.
    """
    folded = Counter(name.casefold() for name in findings) | Counter(name.casefold() for name in classes)
    loose = {name.casefold(): name for name in findings if folded[name.casefold()] == 1}
    pairs = {name: name if name in findings else loose.get(name.casefold()) for name in classes}
    return {name: finding for name, finding in pairs.items() if finding is not None}


def _named(name: str, bundles: Sequence[Path]) -> list[Path]:
    if has_file(Path(name) / "bundle.json"):
        return [Path(name).resolve()]
    exact = [path for path in bundles if path.name == name]
    if exact:
        return exact
    family = [path for path in bundles if _model_of(path) == name]
    if family:
        return family
    prefix = name.partition("=")[0].partition(":")[0] + ":"
    if ":" in name or prefix in KINDS:
        hint = did_you_mean(prefix, KINDS)
        raise ConfigError(f"There is no model called '{name}': {hint}; or write the name of a bundle.")
    hint = did_you_mean(name, [path.name for path in bundles])
    raise ConfigError(f"There is no bundle called '{name}': {hint}; make it with xbench-export or check --bundles.")


def _model_rank(path: Path) -> int:
    model = _model_of(path)
    return MODEL_ORDER.index(model) if model in MODEL_ORDER else len(MODEL_ORDER)


def _model_of(path: Path) -> str | None:
    try:
        return Bundle.load(path, check_hashes=False).manifest.model
    except BundleError:
        return None
