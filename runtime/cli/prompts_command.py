"""`xbench-fast prompts`: prompt sets from templates, and prompt sets of bundles."""

from __future__ import annotations

from pathlib import Path

import click

from ...engines.commands import LazyGroup, echo
from ..host.options import EvalConfig, EvaluationOptions
from ..results.choices import Choices
from .options.completing import BUNDLES
from .options.declared_options import options_of, repeated
from .options.shared_options import config_option, models_option, resolve_config


@click.group(cls=LazyGroup)
def prompts() -> None:
    """Make prompt sets and add them to bundles."""


@prompts.command(short_help="Encode prompts and add them to bundles.")
@models_option("Bundle that gets the prompts: its name or path, or a model's name.", BUNDLES)
@click.option("--all", "everything", is_flag=True, help="Add the prompts to every bundle found.")
@click.option(
    "--prompts",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML or JSON file of prompts: sets by name, findings by name, texts.",
)
@repeated("--prompt-set", "set_names", metavar="NAME", help="Prompt set of the file to add.", default="all")
@click.option("--replace", is_flag=True, help="Replace a prompt set of the same name.")
@options_of(EvalConfig, "threads")
@options_of(EvaluationOptions, "bundles")
@config_option
def encode(
    models: tuple[str, ...],
    everything: bool,
    file: Path,
    set_names: tuple[str, ...],
    replace: bool,
    threads: int | None,
    bundles: tuple[Path, ...],
    config_file: Path | None,
) -> int:
    """Encode prompts with each bundle's own tokenizer and text.onnx, and add them to the bundle.

    \b
    The file maps set names to findings to texts, in the order to be asked:
      my_set:
        Pneumonia: [pneumonia]
        Effusion: {positive: [fluid], negative: [no fluid]}

    A set is asked as a whole: in models whose queries see one another a score depends on the other prompts of its set.
    A bundle is written again whole and gets a new digest, so results of the old one are not mixed with the new. No
    bundle is written before the sets are encoded for all of them.
    """
    from ...engines.bundle import Bundle
    from ...engines.errors import ConfigError
    from ...engines.prompts.prompt_encoding import add_prompts, check_names, prompt_encoder
    from ...engines.prompts.prompt_files import read_prompt_file
    from ...engines.registry import did_you_mean
    from ..evaluation.pairing import select_bundles

    if everything == bool(models):
        raise ConfigError("Say which bundles get the prompts: --model NAME, which can be repeated, or --all.")
    sets = read_prompt_file(file)
    if unknown := [name for name in set_names if name not in sets]:
        raise ConfigError(f"{file} has no set '{unknown[0]}': {did_you_mean(unknown[0], sets)}.")
    chosen = {name: entries for name, entries in sets.items() if not set_names or name in set_names}
    selected = [Bundle.load(path) for path in select_bundles(resolve_config(config_file, bundles), models)]
    for bundle in selected:
        check_names(bundle, chosen, replace=replace)
    encoded = []
    for bundle in selected:
        try:
            encoded.append(prompt_encoder(bundle, threads=threads)(chosen))
        except ConfigError as error:
            raise ConfigError(f"{bundle.name}: {error}") from error
    for name, entries in chosen.items():
        echo(f"{name}: {len(entries)} findings, {sum(len(entry.texts) for entry in entries)} prompts")
    for bundle, features in zip(selected, encoded, strict=True):
        written = add_prompts(bundle, features, replace=replace)
        echo(f"{written.path}: written, digest {written.digest[:12]}")
    return 0


@prompts.command(short_help="Make prompt sets from templates and synonyms.")
@click.argument("templates", metavar="TEMPLATES", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Prompt file to write, YAML or (.json) JSON, for prompts encode.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of sets: a random sample.  [default: all]")
@click.option("--seed", type=click.IntRange(min=0), default=Choices.seed, show_default=True, help="Seed of the sample.")
def expand(templates: Path, out: Path, limit: int | None, seed: int) -> int:
    """Make a prompt set of each template and each choice of one synonym per finding.

    \b
    TEMPLATES is a YAML or JSON file:
      templates:
        bare: "{finding}"
        cxr: "chest X-ray of {finding}"
        pair: {positive: "{finding}", negative: "no {finding}"}
      findings: chestxdet10        # a dataset or a list; default: those with synonyms
      synonyms:
        Effusion: [pleural effusion, fluid in the pleural space]

    A finding without synonyms is asked by its name in lower case. {Finding} begins with a capital letter. A set has the
    name of its template and of the findings whose synonym is not the first: cxr-Effusion2. The set of the first
    template and the first synonyms is always in a sample.
    """
    from ...engines.errors import ConfigError
    from ...engines.prompts.prompt_templates import prompt_file_text, read_templates
    from ..results.storage import write_bytes

    wordings = read_templates(templates, _findings)
    echo(
        f"{len(wordings.templates)} templates and {wordings.choices:,} choices of synonyms of "
        f"{len(wordings.synonyms)} findings: {wordings.total:,} sets"
    )
    if out.resolve() == templates.resolve():
        raise ConfigError(f"{out} is the file of templates; name another file with --out.")
    sets = wordings.expand(limit, seed)
    write_bytes(out, prompt_file_text(sets, json_form=out.suffix.lower() == ".json").encode())
    echo(f"{out}: {len(sets):,} sets" + (f", a sample with seed {seed}" if len(sets) < wordings.total else ""))
    return 0


def _findings(dataset: str) -> tuple[str, ...]:
    """The findings of a published dataset. Raises ConfigError for an unknown name, or one whose files name them."""
    from ...engines.errors import ConfigError
    from ..data.datasets.dataset_registry import DATASETS

    findings: tuple[str, ...] = getattr(DATASETS.load(dataset), "classes", ())
    if not findings:
        raise ConfigError(f"The findings of '{dataset}' are in its files; list them under findings.")
    return findings
