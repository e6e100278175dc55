"""Reads a pickle without running it: no name in it is imported, and nothing in it is called.

`pickletools` of the standard library cuts a pickle into its instructions; the few that build plain values are carried
out here. Every class and function that the pickle names becomes a `Record`, and so does every call, unless `builders`
has a function of this program under that name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any

Builder = Callable[..., Any]
KEY_DEPTH = 3  # of tuples as keys; the hash of a deep tuple would overflow the stack
KEY_BITS = 64  # of whole numbers as keys; larger ones can be chosen so that their hashes are equal

_DICTS = {("collections", name) for name in ("OrderedDict", "Counter", "defaultdict")}
_MAKERS = ("_reconstructor", "__newobj__", "_reconstruct")  # of copyreg and NumPy: their argument is the class
_PYTHON = ("builtins", "__builtin__")
_PUSHED = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Builder] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict, "EMPTY_SET": set}
_VALUES: tuple[str, ...] = (
    "INT",
    "BININT",
    "LONG",
    "FLOAT",
    "BINFLOAT",
    "STRING",
    "BINSTRING",
    "SHORT_BINSTRING",
    "BINBYTES",
)
_VALUES += ("SHORT_BINBYTES", "BYTEARRAY", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE")
_PUSHES = {code.name for code in pickletools.opcodes if code.name.rstrip("0123456789") in _VALUES}  # BININT1, ...


class Record:
    """Stands for an object, a class or a function of another program: keeps its name and its state, does nothing.

    `name` is the class with its module; `attributes` holds the state and the items of a mapping.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.attributes: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.name}, not run>"


def read_pickle(
    stream: IO[bytes],
    builders: Mapping[tuple[str, str], Builder] | None = None,
    storage: Callable[[Any], Any] = lambda pid: Record("storage"),
) -> Any:
    """The value of the pickle that begins at the stream's position, which is then behind it.

    `builders` maps (module, name) to the function that makes what a call of that name makes; `storage` turns a
    persistent id into a value. Raises ValueError, IndexError, KeyError or TypeError for a damaged pickle, and for one
    with instructions that no checkpoint needs.
    """
    return _Machine(builders or {}, storage).run(stream)


class _Machine:
    """The stack and the memo of one pickle. Only values on the stack are changed, and only plain containers."""

    def __init__(self, builders: Mapping[tuple[str, str], Builder], storage: Callable[[Any], Any]) -> None:
        self.builders, self.storage = builders, storage
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.copied = self.read = 0

    def run(self, stream: IO[bytes]) -> Any:
        start = stream.tell()
        for opcode, argument, position in pickletools.genops(stream):
            self.read = (position or start) - start + 1
            name = opcode.name
            if name in _PUSHES:
                self.stack.append(argument)
            elif name in _PUSHED:
                self.stack.append(_PUSHED[name])
            elif name in _EMPTY:
                self.stack.append(_EMPTY[name]())
            elif name == "STOP":
                return self.stack.pop()
            elif name not in ("PROTO", "FRAME"):
                self.step(name, argument)
        raise ValueError("its pickle has no end")

    def step(self, name: str, argument: Any) -> None:
        """One of the instructions that use the stack or the memo.

        They can neither import nor call: a name becomes a `Record`, a call a builder or a refusal (`name_or_call`).
        """
        stack = self.stack
        match name:
            case "MARK":
                self.marks.append(stack)
                self.stack = []
            case "POP" if stack:
                stack.pop()
            case "POP" | "POP_MARK":  # with nothing above the last mark, POP takes the mark away, as in pickle
                self.marked()
            case "DUP":
                stack.append(stack[-1])
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "LIST" | "TUPLE" | "DICT" | "FROZENSET":
                self.collect(name, self.marked())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                values = tuple(stack.pop() for _ in range(int(name[-1])))
                stack.append(values[::-1])
            case "APPEND":
                self.extend([stack.pop()])
            case "APPENDS" | "ADDITEMS":
                self.extend(self.marked())
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self.set_items([key, value])
            case "SETITEMS":
                self.set_items(self.marked())
            case "PERSID" | "BINPERSID":
                stack.append(self.storage(argument if name == "PERSID" else stack.pop()))
            case _:
                self.name_or_call(name, argument)

    def name_or_call(self, name: str, argument: Any) -> None:
        """One of the instructions that name a class or function, or would call one."""
        stack = self.stack
        match name:
            case "GLOBAL":
                stack.append(Record(argument.replace(" ", ".", 1)))
            case "STACK_GLOBAL":
                attribute, module = stack.pop(), stack.pop()
                if not (isinstance(attribute, str) and isinstance(module, str)):  # a container is never written out
                    raise TypeError("the name of a class that is not text")
                stack.append(Record(f"{module}.{attribute}"))
            case "INST":
                arguments = tuple(self.marked())
                self.stack.append(self.make(Record(argument.replace(" ", ".", 1)), arguments))
            case "OBJ":
                callee, *rest = self.marked()
                self.stack.append(self.make(callee, tuple(rest)))
            case "REDUCE" | "NEWOBJ":
                arguments, callee = stack.pop(), stack.pop()
                stack.append(self.make(callee, arguments))
            case "NEWOBJ_EX":
                _, arguments, callee = stack.pop(), stack.pop(), stack.pop()
                stack.append(self.make(callee, arguments))
            case "BUILD":
                state, target = stack.pop(), stack[-1]
                for part in state if isinstance(state, tuple) else (state,):
                    if isinstance(target, Record) and isinstance(part, dict):
                        self.pay(len(part))
                        target.attributes.update(part)
            case _:
                raise ValueError(f"its pickle has the instruction {name}")

    def marked(self) -> list[Any]:
        """What was pushed since the last mark."""
        values, self.stack = self.stack, self.marks.pop()
        return values

    def collect(self, name: str, values: list[Any]) -> None:
        if name == "DICT":
            self.stack.append({})
            self.set_items(values)
        elif name == "FROZENSET":
            self.stack.append(frozenset(map(self.key, values)))
        else:
            self.stack.append(values if name == "LIST" else tuple(values))

    def extend(self, values: list[Any]) -> None:
        """Adds to the list or set on the stack; what another program's object would be given is dropped."""
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, set):
            target.update(map(self.key, values))

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        items = target.attributes if isinstance(target, Record) else target
        if isinstance(items, dict):
            for key, value in zip(values[::2], values[1::2], strict=True):
                items[self.key(key)] = value

    def make(self, callee: Any, arguments: Any) -> Any:
        """The value of a call: plain containers and what `builders` make, else a record with the name alone."""
        module, _, name = callee.name.rpartition(".") if isinstance(callee, Record) else ("", "", "an object")
        if not isinstance(arguments, tuple):
            raise TypeError("a call without a tuple of arguments")
        if (builder := self.builders.get((module, name))) is not None:
            return builder(*arguments)
        given = arguments[-1] if arguments else ()
        if (module, name) in _DICTS or (module in _PYTHON and name == "dict"):
            return self.dictionary(given)
        if module in _PYTHON and name in ("set", "frozenset", "list", "tuple") and isinstance(given, list | tuple):
            self.pay(len(given))
            callee = {"set": set, "frozenset": frozenset, "list": list, "tuple": tuple}[name]
            return callee(map(self.key, given) if "set" in name else given)
        if module in _PYTHON and name == "bytes" and not arguments:
            return b""
        if (module, name) == ("_codecs", "encode") and isinstance(arguments[0], str):  # bytes in protocols 0 to 2
            self.pay(len(arguments[0]))
            return arguments[0].encode("latin-1")
        if (module, name) == ("torch", "Size") and isinstance(given, tuple | list):
            return given
        if name in _MAKERS and arguments and isinstance(arguments[0], Record):
            return Record(arguments[0].name)
        return Record(callee.name if isinstance(callee, Record) else name)

    def dictionary(self, given: Any) -> dict[Any, Any]:
        """Of a dictionary, or of the list of pairs that Python 2 wrote; empty for a factory of default values."""
        if not isinstance(given, dict | list | tuple):
            return {}
        self.pay(len(given))
        return {self.key(key): value for key, value in (given.items() if isinstance(given, dict) else given)}

    def key(self, value: Any, depth: int = KEY_DEPTH) -> Any:
        """A value that is hashed, compared and written out in few steps, as a key of a dictionary or an item of a set.

        Containers that share parts take exponentially many steps, so tuples are paid for and no set is a key.
        """
        if isinstance(value, tuple) and depth:
            self.pay(len(value))
            return tuple(self.key(item, depth - 1) for item in value)
        if isinstance(value, int) and value.bit_length() > KEY_BITS:
            raise ValueError(f"its pickle has a number of {value.bit_length():,} bits as a key")
        if value is None or isinstance(value, str | bytes | int | float | Record):
            return value
        raise ValueError(f"its pickle has a {type(value).__name__} as a key, and keys of weights are text")

    def pay(self, count: int) -> None:
        """Limits copies to what the pickle itself holds: a small one must not grow without end."""
        self.copied += count
        if self.copied > self.read:
            raise ValueError("its pickle copies more values than it holds")
