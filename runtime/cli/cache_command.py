"""`xbench-fast cache`: what the folder of prepared images holds, and making it smaller."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import LazyGroup, echo
from ..host.options import EvaluationOptions
from ..host.paths import has_folder
from .options.declared_options import options_of
from .options.shared_options import Output, config_option, json_option, resolve_config

if TYPE_CHECKING:
    from ..data.cache.eviction import StoreInfo


@dataclass(frozen=True)
class _Flags:
    """The flags that may stand before or after the word `clear` or `prune`."""

    cache: Path | None
    config_file: Path | None
    output: Output

    def with_later(self, cache: Path | None, config_file: Path | None, output: Output) -> _Flags:
        """These, but what was given after the word wins."""
        return _Flags(cache or self.cache, config_file or self.config_file, output.or_else(self.output))

    def folder(self) -> tuple[Path, int | None]:
        """The folder of prepared images and the configured limit. Raises ConfigError."""
        config = resolve_config(self.config_file)
        return self.cache or config.cache or config.eval.out / "prepared", config.cache_limit


@click.group("cache", cls=LazyGroup, invoke_without_command=True)
@options_of(EvaluationOptions, "cache")
@config_option
@json_option
@click.pass_context
def cache(ctx: click.Context, cache: Path | None, config_file: Path | None, output: Output) -> int:
    """List the stores of prepared images and text features; `clear` and `prune` delete some. Results stay."""
    ctx.obj = _Flags(cache, config_file, output)
    if ctx.invoked_subcommand is not None:
        return 0
    from ..data.cache.eviction import list_stores

    folder, _ = ctx.obj.folder()
    stores = list_stores(folder)
    output.write({"cache": str(folder), "bytes": sum(store.bytes for store in stores), "stores": _rows(stores)})
    if not output.piped:
        _print(folder, stores)
    return 0


@cache.command()
@options_of(EvaluationOptions, "cache")
@config_option
@json_option
@click.pass_obj
def clear(above: _Flags, cache: Path | None, config_file: Path | None, output: Output) -> int:
    """Delete all prepared images and text features but those in use; they are computed again when they are needed."""
    from ..data.cache.eviction import clear as clear_stores

    flags = above.with_later(cache, config_file, output)
    folder, _ = flags.folder()
    _tell(folder, *clear_stores(folder), flags.output)
    return 0


@cache.command()
@options_of(EvaluationOptions, "cache_limit")
@options_of(EvaluationOptions, "cache")
@config_option
@json_option
@click.pass_obj
def prune(above: _Flags, cache_limit: str | None, cache: Path | None, config_file: Path | None, output: Output) -> int:
    """Delete what other reader versions made; with a limit, then least recently used stores."""
    from ..data.cache.eviction import clear as clear_stores
    from ..data.cache.eviction import make_room
    from ..host.sizes import parse_bytes

    flags = above.with_later(cache, config_file, output)
    folder, configured = flags.folder()
    most = configured if cache_limit is None else parse_bytes(cache_limit, "--cache-limit")
    removed, stayed = clear_stores(folder, outdated_only=True)
    fits = True
    if most is not None:
        more, fits = make_room(folder, most)
        removed += more
    _tell(folder, removed, stayed, flags.output)
    if not fits:
        echo("Error: the remaining images are in use and larger than the limit.", err=True)
    return 0 if fits else 1


def _rows(stores: list[StoreInfo]) -> list[dict[str, object]]:
    return [{**asdict(store), "path": str(store.path)} for store in stores]


def _tell(folder: Path, removed: list[StoreInfo], stayed: list[StoreInfo], output: Output) -> None:
    from ..host.sizes import format_bytes

    output.write({"cache": str(folder), "deleted": _rows(removed), "kept": _rows(stayed)})
    if output.piped:
        return
    for store in removed:
        what = "a link; what it points to stays" if store.link else format_bytes(store.bytes)
        echo(f"deleted: {store.path.name} ({what})")
    for store in stayed:
        echo(f"in use, kept: {store.path.name} ({format_bytes(store.bytes)})")
    if not removed:
        echo(f"nothing was deleted in {folder}")


def _print(folder: Path, stores: list[StoreInfo]) -> None:
    from datetime import datetime

    from rich.table import Table

    from ..host.sizes import format_bytes
    from ..reporting.tables.console import make_console, shown

    console = make_console()
    total = format_bytes(sum(store.bytes for store in stores))
    absent = "" if has_folder(folder) else " (the folder does not exist)"
    console.print(shown(f"{folder}: {len(stores)} stores, {total}{absent}"), soft_wrap=True)
    if not stores:
        return
    table = Table()
    for title in ("dataset", "geometry", "prepared", "size", "last opened", "state", "folder"):
        table.add_column(title, overflow="fold")
    for store in stores:
        opened = datetime.fromtimestamp(store.used).isoformat(" ", "minutes")
        words = (("in use", store.in_use), ("outdated", store.outdated and not store.in_use), ("link", store.link))
        state = ", ".join(word for word, holds in words if holds)
        cells = (store.dataset, store.geometry, f"{store.images} of {store.cases}", format_bytes(store.bytes))
        table.add_row(*map(shown, (*cells, opened, state, store.path.name)))
    console.print(table)
