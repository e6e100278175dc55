"""How a field of a dataclass declares an option of the command line (`cli.options.declared_options` makes the option).

Nothing here needs a package: the kernels are measured where only NumPy and CuPy are installed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a number in `Annotated[int, Limits(1)]`, both inclusive."""

    ge: float | None
    le: float | None = None


def described(help: str, *, shown: str = "", metavar: str | None = None) -> dict[str, str | None]:
    """The metadata of a dataclass field that is an option. `shown`: the default in words, where the value does not say
    it. `metavar`: the kind of value in capitals, where the type does not say it."""
    return {"help": help, "shown": shown, "metavar": metavar}
