"""Writes a Triton model repository from bundles: one model per bundle and prompt set, each whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...engines.bundle import Bundle
from ...engines.errors import ConfigError, ExportError, disk_reason
from ...engines.file_names import joined
from ...engines.prompts.prompt_set import PromptSet
from ...engines.quantised import OTHER_NUMBERS
from ...engines.registry import did_you_mean
from ...engines.replacing import put, sibling
from .baked_prompts import bake_set, load_graph
from .dali_step import dali_source, refusal
from .model_config import Served, TritonLimits, dali_config, ensemble_config, set_config, text_input_config

Say = Callable[[str], None]


@dataclass(frozen=True)
class RepositoryChoices:
    """What the repository contains.

    sets: names of prompt sets, none for all of a bundle. tensorrt: plans instead of graphs; plans: folder with
    <model>--<set>.plan files, None to build them here. cpu: for Triton without a GPU. jpeg: ensembles that take JPEG
    files. text_input: also the bundle's own graph. force: replace existing models.
    """

    sets: tuple[str, ...] = ()
    tensorrt: bool = False
    plans: Path | None = None
    cpu: bool = False
    jpeg: bool = False
    text_input: bool = False
    force: bool = False
    limits: TritonLimits = field(default_factory=TritonLimits)


def write_repository(bundles: Sequence[Bundle], out: Path, choices: RepositoryChoices, say: Say) -> list[str]:
    """Writes the models of `bundles` into the folder `out` and returns their names.

    Raises BundleError, ConfigError, EngineError, ExportError or MissingExtraError. Finished models are kept.
    """
    writer = _Repository(out, choices, say)
    for bundle in bundles:
        writer.check(bundle)
    for bundle in bundles:
        writer.add(bundle)
    return writer.names


class _Repository:
    def __init__(self, out: Path, choices: RepositoryChoices, say: Say) -> None:
        self.names: list[str] = []
        self._out = out
        self._choices = choices
        self._say = say
        self._prepared: set[str] = set()

    def check(self, bundle: Bundle) -> None:
        """Raises errors that can be detected before anything is written."""
        have = bundle.manifest.prompt_sets
        for name in self._choices.sets:
            if name not in have:
                raise ConfigError(
                    f"The bundle {bundle.name} has no prompt set '{name}': {did_you_mean(name, sorted(have))}."
                )
        if self._choices.cpu and bundle.manifest.precision == "bf16":
            raise ConfigError(
                f"{bundle.name} holds bf16, which ONNX Runtime has not on a CPU; export it in fp32 for --device cpu."
            )
        if bundle.manifest.precision == "int8":
            self._check_int8(bundle)
        for name in self._set_names(bundle):
            self._check_plan(joined(bundle.name, name), bundle)

    def _check_int8(self, bundle: Bundle) -> None:
        """The engines of a repository are named in `engines.quantised`; a server's processor is not known here."""
        how = bundle.manifest.quantisation
        form = None if how is None else how.form
        if self._choices.tensorrt and form in ("vnni", "any-cpu"):
            raise ConfigError(f"{bundle.name} holds int8 for CPUs; export it with --int8-for tensorrt for a plan.")
        if not self._choices.tensorrt and not self._choices.cpu:
            raise ConfigError(
                f"{bundle.name} holds int8, for which ONNX Runtime has no products on a GPU; use --device cpu, or "
                "--backend tensorrt with a bundle exported with --int8-for tensorrt."
            )
        if self._choices.cpu and form != "any-cpu":
            self._say(
                f"{bundle.name}: this int8 graph gives other numbers on an x86 processor without VNNI, and Triton does "
                "not check that; for any processor export it with --int8-for any-cpu"
            )
        if self._choices.cpu:
            self._say(
                f"{bundle.name}: this int8 graph is for Triton's backend onnxruntime without an accelerator; "
                f"{' and '.join(OTHER_NUMBERS)}, as a backend or an accelerator of config.pbtxt, gives other maps"
            )

    def add(self, bundle: Bundle) -> None:
        """Writes every model of a bundle."""
        asked, most = self._choices.limits.batch, self._limits(bundle).batch
        if most < asked:
            self._say(f"{bundle.name}: max_batch_size {most} instead of {asked}, as its bundle.json states")
        for name in self._set_names(bundle):
            prompts = bundle.prompt_set(name)
            model = _served(joined(bundle.name, name), bundle, prompts)
            self._set(bundle, prompts, model)
            if self._choices.jpeg:
                self._jpeg(bundle, model)
        if self._choices.text_input:
            self._text_input(bundle)

    def _limits(self, bundle: Bundle) -> TritonLimits:
        """The limits of a bundle's models, which get no larger batches than it states."""
        limits = self._choices.limits
        return replace(limits, batch=bundle.manifest.batch_within(limits.batch))

    def _set_names(self, bundle: Bundle) -> list[str]:
        return list(self._choices.sets) or sorted(bundle.manifest.prompt_sets)

    def _set(self, bundle: Bundle, prompts: PromptSet, model: Served) -> None:
        choices = self._choices
        with self._model(model.name) as folder:
            (folder / "config.pbtxt").write_text(set_config(model, self._limits(bundle), plan=choices.tensorrt))
            (folder / "labels.txt").write_text("\n".join(prompts.findings) + "\n", encoding="utf-8")
            if choices.tensorrt and choices.plans is not None:
                shutil.copyfile(choices.plans / f"{model.name}.plan", folder / "1" / "model.plan")
                return
            graph = load_graph(bundle.file("image"))
            bake_set(graph, prompts, exact=choices.cpu)
            target = folder / "1" / "model.onnx"
            target.write_bytes(graph.SerializeToString())
            if choices.tensorrt:
                self._build(bundle, target, model)

    def _build(self, bundle: Bundle, graph: Path, model: Served) -> None:
        from ...engines.plans.build import build_plan
        from ...engines.plans.family import load_family
        from ...engines.plans.key import Profile

        self._say(f"{model.name}: building its plan; this takes minutes")
        batch = self._limits(bundle).batch
        profile = Profile((1, batch, batch), (1, 1, 1))
        built = build_plan(load_family("tensorrt"), graph, profile, bundle.manifest.precision)
        graph.with_name("model.plan").write_bytes(built.plan)
        graph.unlink()

    def _jpeg(self, bundle: Bundle, model: Served) -> None:
        choices, geometry = self._choices, bundle.manifest.geometry
        reason = refusal(geometry)
        if reason is not None:
            self._say(f"{model.name}--jpeg is left out: {reason}; send pixels instead")
            return
        prepare = f"jpeg-{geometry.key}"
        if prepare not in self._prepared:
            self._prepared.add(prepare)
            with self._model(prepare) as folder:
                (folder / "config.pbtxt").write_text(dali_config(prepare, geometry, choices.limits))
                (folder / "1" / "dali.py").write_text(dali_source(geometry, choices.limits.batch, gpu=not choices.cpu))
        name = f"{model.name}--jpeg"
        with self._model(name) as folder:
            (folder / "config.pbtxt").write_text(ensemble_config(name, prepare, model, self._limits(bundle)))

    def _text_input(self, bundle: Bundle) -> None:
        about = _served(bundle.name, bundle, None)
        shape = [int(n) for n in bundle.graph("image").inputs[1].shape[1:]]
        if (most := bundle.manifest.largest_batch) is not None:
            self._say(f"{about.name}: Triton passes a request on as it is; send at most {most} images in one")
        with self._model(bundle.name) as folder:
            (folder / "config.pbtxt").write_text(text_input_config(about, shape, self._choices.limits))
            shutil.copyfile(bundle.file("image"), folder / "1" / "model.onnx")

    def _check_plan(self, name: str, bundle: Bundle) -> None:
        choices = self._choices
        if not choices.tensorrt or choices.plans is None:
            return
        source = choices.plans / f"{name}.plan"
        if not source.is_file():
            low, high = (
                f"pixels:{n}x1x{size}x{size}"
                for size in [bundle.manifest.geometry.size]
                for n in (1, self._limits(bundle).batch)
            )
            raise ConfigError(
                f"There is no plan {source}; write the repository with --backend onnxruntime first and make the plan "
                f"where Triton runs: trtexec --onnx={name}/1/model.onnx --stronglyTyped --noTF32 --minShapes={low} "
                f"--optShapes={high} --maxShapes={high} --saveEngine={name}.plan"
            )

    @contextmanager
    def _model(self, name: str) -> Iterator[Path]:
        """A temporary folder for a model, with a folder "1"; it is moved to its final path at the end."""
        target = self._out / name
        if name in self.names:
            raise ConfigError(f"Two models of the repository are called '{name}'; rename a bundle.")
        if target.exists() and not (self._choices.force and (target / "config.pbtxt").is_file()):
            raise ConfigError(f"{target} already exists; choose another --out, or replace the models with --force.")
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            with sibling(target) as draft:
                (draft / "1").mkdir()
                yield draft
                put(draft, target)
        except OSError as error:
            raise ExportError(f"{target} cannot be written: {disk_reason(error)}.") from error
        self.names.append(name)


def _served(name: str, bundle: Bundle, prompts: PromptSet | None) -> Served:
    manifest = bundle.manifest
    about = {
        "xbench.bundle": bundle.name,
        "xbench.digest": bundle.digest,
        "xbench.weights": manifest.weights,
        "xbench.geometry": manifest.geometry.key,
        **({} if manifest.largest_batch is None else {"xbench.largest_batch": str(manifest.largest_batch)}),
        **({"xbench.not_on": ", ".join(OTHER_NUMBERS)} if manifest.precision == "int8" else {}),
        "xbench.notice": "For research only; not a medical device. Do not use it for diagnosis.",
    }
    if prompts is None:
        return Served(name, manifest.geometry.size, 0, manifest.grid, False, about)
    about["xbench.prompt_set"] = prompts.name
    negative = bool((prompts.polarity < 0).any())
    return Served(name, manifest.geometry.size, len(prompts.findings), manifest.grid, negative, about)
