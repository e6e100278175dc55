"""`xbench-fast prompts`: prompt sets of a bundle."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["prompts"]


@click.group()
def prompts() -> None:
    """Add prompt sets to a bundle."""


@prompts.command(short_help="Encode prompts and add them to a bundle.")
@click.option(
    "--bundle",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The bundle, a folder with bundle.json.",
)
@click.option(
    "--prompts",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML or JSON: sets by name, findings by name, texts.",
)
@click.option("--set", "names", multiple=True, metavar="NAME", help="Take only this set of the file. Can be repeated.")
@click.option("--replace", is_flag=True, help="Replace a set of the same name.")
@click.option("--threads", type=click.IntRange(1), help="Threads of ONNX Runtime.  [default: all processors]")
def encode(folder: Path, file: Path, names: tuple[str, ...], replace: bool, threads: int | None) -> int:
    """Encode prompts with the bundle's own tokenizer and text.onnx, and add them to the bundle.

    \b
    The file maps set names to findings to texts, in the order to be asked:
      my_set:
        Pneumonia: [pneumonia]
        Effusion: {positive: [fluid], negative: [no fluid]}

    A set is asked as a whole: in models whose queries see one another a score depends on the other prompts of its set.
    The bundle is written again whole and gets a new digest, so results of the old one are not mixed with the new.
    """
    from ...engines.bundle import Bundle
    from ...engines.errors import ConfigError
    from ...engines.prompts.add_prompts import add_prompts, encode_for
    from ...engines.prompts.prompt_files import read_prompt_file
    from ...engines.registry import did_you_mean

    sets = read_prompt_file(file)
    if unknown := [name for name in names if name not in sets]:
        raise ConfigError(f"{file} has no set '{unknown[0]}': {did_you_mean(unknown[0], sets)}.")
    chosen = {name: entries for name, entries in sets.items() if not names or name in names}
    bundle = Bundle.load(folder)
    made = add_prompts(bundle, encode_for(bundle, chosen, threads=threads), replace=replace)
    for name, entries in chosen.items():
        click.echo(f"{name}: {len(entries)} findings, {len(made.manifest.prompt_sets[name].texts)} prompts")
    click.echo(f"{made.path}: written, digest {made.digest[:12]}")
    return 0
