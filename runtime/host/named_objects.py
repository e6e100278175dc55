"""Objects by name: the project's own, and those that installed packages add by an entry point group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from ...engines.errors import ConfigError
from ...engines.registry import Registry, added_targets
from .source_code import code_digest

Thing = TypeVar("Thing")


class NamedObjects(Mapping[str, Thing]):
    """Objects of one `kind` by name: the project's own, then those that installed packages add, by name.

    title: the word for one of them; packages add more by the entry point group xbench_fast.TITLEs. own: those of the
    project, or their targets "module:Attribute". An object is imported when it is first asked for. A package cannot
    change what a name of the project means: its entry of that name has no effect.

    An unknown name raises KeyError. A name that two packages add, or whose object cannot be imported, is of another
    kind or calls itself otherwise, raises ConfigError, and no other name does.
    """

    def __init__(self, title: str, kind: type[Thing], own: Mapping[str, Thing | str]) -> None:
        self.own = tuple(own)
        self._title, self._kind, self._own = title, kind, own
        self._registry = Registry(title, {})

    def __getitem__(self, name: str) -> Thing:
        if name in self._own:
            found = self._own[name]
            return self._loaded(found) if isinstance(found, str) else found
        target = self._target(name)
        thing = self._loaded(target)
        if not isinstance(thing, self._kind):
            what = f"is no {self._kind.__name__}"
        elif getattr(thing, "name", name) != name:
            what = f"has the name '{getattr(thing, 'name', '')}'"
        else:
            return thing
        raise ConfigError(f"The {self._title} '{name}' of an installed package, {target}, {what}; correct the package.")

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from sorted({name for name, _ in self._added} - self._own.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._own or any(name == added for added, _ in self._added)

    def code(self, name: str) -> str:
        """The start of a hash of the code of a package's object and of what it imports (`code_digest`), so that no
        result of other code is reused; empty for the project's own, whose code has numbers."""
        return "" if name in self._own else code_digest([self._target(name).partition(":")[0]])[:12]

    def fact(self, name: str) -> str:
        """What it is, for a note: "protocol paper", of a package's "protocol mine: package.module:MINE, code 1a2b"."""
        added = "" if name in self._own else f": {self._target(name)}, code {self.code(name)}"
        return f"{self._title} {name}{added}"

    def added_facts(self, names: Iterable[str]) -> list[str]:
        """`fact` of those of the names that packages add, in order."""
        return [self.fact(name) for name in sorted({*names} - self._own.keys()) if name in self]

    @property
    def _added(self) -> tuple[tuple[str, str], ...]:
        return added_targets(f"xbench_fast.{self._title}s")

    def _target(self, name: str) -> str:
        targets = [target for added, target in self._added if added == name]
        if not targets:
            raise KeyError(name)
        if len(targets) > 1:
            raise ConfigError(
                f"The {self._title} '{name}' is defined twice, as {targets[0]} and as {targets[1]}; "
                "remove one of the two packages."
            )
        return targets[0]

    def _loaded(self, target: str) -> Thing:
        thing: Thing = self._registry.load(target)
        return thing
