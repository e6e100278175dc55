"""Options of commands, made from the dataclasses that declare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from ....engines.commands import Choice
from .completing import ENGINES, PROTOCOLS, Completion

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETIONS: Final[Mapping[str, Completion]] = {"engine": ENGINES, "protocol": PROTOCOLS}


def repeated(*names: str, help: str, default: str = "", **rest: Any) -> Callable[[F], F]:
    """An option that can be given several times; `default` says what happens without it."""
    shown = f"  [default: {default}]" if default else ""
    return click.option(*names, multiple=True, help=f"{help} Can be repeated.{shown}", **rest)


def options_of(
    declared: type, *names: str, configured: bool = False, shown: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """The options that the dataclass `declared` declares (`host.declaring.described`), by default all of them.

    configured: the options are None where the user gave none, so that they do not hide what xbench.toml says.
    shown: the default in words, by option, of a command that has another one.
    """
    types = get_type_hints(declared, include_extras=True)
    declarations = {item.name: item for item in fields(declared) if "help" in item.metadata}

    def decorate(function: F) -> F:
        for name in reversed(names or tuple(declarations)):
            default = (shown or {}).get(name, declarations[name].metadata["shown"])
            function = _option(declarations[name], types[name], configured, default)(function)
        return function

    return decorate


def _option(declaration: Field[Any], annotation: Any, configured: bool, stated: str) -> Callable[[F], F]:
    name, default, metadata = declaration.name, declaration.default, declaration.metadata
    flag = name.replace("_", "-")
    (value_type,) = [part for part in _alternatives(annotation) if part is not type(None)]
    rest = {"metavar": metadata["metavar"], "shell_complete": _COMPLETIONS.get(name)}
    if get_origin(value_type) is tuple:
        part = _type(get_args(value_type)[0])
        return repeated(f"--{flag}", name, type=part, help=metadata["help"], default=stated, **rest)
    names, shown = f"--{flag}", stated or (f"{default:g}" if isinstance(default, float) else default)
    if value_type is bool:
        names, shown = f"--{flag}/--no-{flag}", flag if default else f"no-{flag}"
    return click.option(
        names,
        name,
        type=_type(value_type),
        default=None if configured else default,
        help=metadata["help"] if shown is None else f"{metadata['help']}  [default: {shown}]",
        **rest,
    )


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) not in (None, Annotated, Literal, tuple)
    return get_args(annotation) if is_union else (annotation,)


def _type(value_type: Any) -> click.ParamType[Any] | None:
    """The type of an option; None for a text or a flag."""
    base, *limits = get_args(value_type) if get_origin(value_type) is Annotated else (value_type,)
    if get_origin(base) is Literal:
        return Choice(get_args(base))
    if base is Path:
        return click.Path(path_type=Path)
    if base is int:
        return click.IntRange(limits[0].ge, limits[0].le)
    if base is float:
        return click.FloatRange(limits[0].ge, limits[0].le) if limits else click.FLOAT
    return None
