"""`xbench-fast prompts`: prompt sets of bundles."""

from __future__ import annotations

from pathlib import Path

import click

from ...engines.commands import LazyGroup, echo
from ..host.options import EvalConfig, EvaluationOptions
from .options.completing import BUNDLES
from .options.declared_options import options_of, repeated
from .options.shared_options import config_option, models_option, resolve_config


@click.group(cls=LazyGroup)
def prompts() -> None:
    """Add prompt sets to bundles."""


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
