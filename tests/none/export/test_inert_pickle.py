"""Pickles are read without running them: plain values come back, all else is a record, and bombs are refused."""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import decimal
import enum
import functools
import io
import os
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.export.checkpoints.inert_pickle import Record, read_pickle


class Colour(enum.Enum):
    RED = 1


class Settings(dict[str, int]):
    """A mapping of a program's own, as those of ml_collections and omegaconf."""


class Slots:
    __slots__ = ("a", "b")


class Trap:
    """What careless unpickling would call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def read(value: Any, protocol: int = 4) -> Any:
    return read_pickle(io.BytesIO(pickle.dumps(value, protocol)))


PLAIN: list[Any] = [None, True, -1, 2**70, 0.5, "ä", b"\x00\xff", bytearray(b"ab"), (), (1,), (1, 2, 3, 4), [1, [2]]]
PLAIN += [{"a": {"b": [1, (2, 3)]}}, {1, 2}, frozenset("ab"), {("a", 1): frozenset([2])}, "x" * 300, b"y" * 300]
PLAIN += [collections.OrderedDict(a=1, b=2), collections.Counter("aab")]


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_come_back(protocol: int) -> None:
    for value in PLAIN:
        if isinstance(value, bytearray) and protocol < 5:
            continue
        found = read(value, protocol)
        assert found == value and type(found) in (type(value), dict), value
    shared: list[Any] = []
    first, second = read([shared, shared], protocol)
    assert first is second
    cycle: list[Any] = []
    cycle.append(cycle)
    found = read(cycle, protocol)
    assert found[0] is found


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.text() | st.integers(-1 << 63, 1 << 63), inner)
            | st.tuples(inner, inner)
        ),
    ),
    st.integers(0, 5),
)
def test_any_plain_value_comes_back(value: Any, protocol: int) -> None:
    assert read(value, protocol) == value


@pytest.mark.parametrize("protocol", [2, 4])
def test_objects_of_training_scripts_keep_their_names(protocol: int) -> None:
    slots = Slots()
    slots.a, slots.b = 1, [2]
    objects: dict[str, tuple[Any, str]] = {
        "namespace": (argparse.Namespace(rate=0.1, out=pathlib.PurePosixPath("a")), "argparse.Namespace"),
        "posix": (pathlib.PurePosixPath("a/b"), "pathlib.PurePosixPath"),
        "windows": (pathlib.PureWindowsPath("C:/a"), "pathlib.PureWindowsPath"),
        "date": (datetime.datetime(2020, 1, 1), "datetime.datetime"),
        "delta": (datetime.timedelta(1), "datetime.timedelta"),
        "decimal": (decimal.Decimal("1.5"), "decimal.Decimal"),
        "colour": (Colour.RED, f"{__name__}.Colour"),
        "partial": (functools.partial(print, 1), "functools.partial"),
        "array": (np.arange(3), "numpy.ndarray"),
        "scalar": (np.float64(1), f"{np.float64(1).__reduce__()[0].__module__}.scalar"),
        "dtype": (np.dtype("f4"), "numpy.dtype"),
        "class": (argparse.Namespace, "argparse.Namespace"),
        "function": (os.path.join, "posixpath.join"),
        "slots": (slots, f"{__name__}.Slots"),
        "settings": (Settings(a=1), f"{__name__}.Settings"),
        "complex": (1j, "builtins.complex" if protocol > 2 else "__builtin__.complex"),
    }
    found = read({name: value for name, (value, _) in objects.items()}, protocol)
    for name, (_, kind) in objects.items():
        assert isinstance(found[name], Record) and found[name].name == kind, name
    assert found["namespace"].attributes["rate"] == 0.1
    assert isinstance(found["namespace"].attributes["out"], Record)
    assert found["slots"].attributes == {"a": 1, "b": [2]} and found["settings"].attributes == {"a": 1}


def test_a_default_dictionary_is_a_dictionary() -> None:
    value = collections.defaultdict(list, a=[1])
    assert read(value) == {"a": [1]} and type(read(value)) is dict
    python_2 = b"\x80\x02ccollections\nOrderedDict\n](](U\x01aK\x01e](U\x01bK\x02ee\x85R."
    assert read_pickle(io.BytesIO(python_2)) == {"a": 1, "b": 2}


def test_pickles_one_after_the_other() -> None:
    stream = io.BytesIO(pickle.dumps([1], 2) + pickle.dumps("b", 4) + b"rest")
    assert read_pickle(stream) == [1] and read_pickle(stream) == "b" and stream.read() == b"rest"


# getattr chains, an instance by name, methods of a dictionary covered by attributes, a chain of calls, deep nesting.
HARMLESS = {
    "eval": b"\x80\x02}U\x01xcbuiltins\neval\nU\x14__import__('os').abc\x85Rs.",
    "getattr": b"\x80\x02}U\x01xcbuiltins\ngetattr\ncos\npath\nU\x06system\x86RU\x04true\x85Rs.",
    "instance": b"\x80\x02}U\x01x(U\x04trueios\nsystem\ns.",
    "object": b"\x80\x02}U\x01x(cos\nsystem\nU\x04trueos.",
    "new": b"\x80\x04}\x8c\x01x\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85\x81s.",
    "new with names": b"\x80\x04}\x8c\x01x\x8c\x02os\x8c\x06system\x93)}\x92s.",
    "covered": b"\x80\x02ccollections\nOrderedDict\n)R}U\x05itemscos\nsystem\nsb.",
    "state of a function": b"\x80\x02}U\x01xcos\nsystem\n}U\x0c__defaults__(K\x01tsbs.",
    "chain": b"\x80\x02}U\x01xcbuiltins\n__import__\nU\x02os\x85RU\x04true\x85Rs.",
    "deep": b"\x80\x02" + b"}U\x01x" * 20000 + b"N" + b"s" * 20000 + b".",
    "deep tuples": b"\x80\x02}U\x01x)" + b"\x85" * 60000 + b"s.",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_nothing_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(os, "system", ran.append)
    monkeypatch.setattr("builtins.eval", ran.append)
    found = read_pickle(io.BytesIO(HARMLESS[name]))
    assert ran == [] and isinstance(found, dict)
    assert name.startswith(("covered", "deep")) or isinstance(found["x"], Record)


@pytest.mark.parametrize("protocol", range(6))
def test_a_reduce_chain_is_not_called(protocol: int, tmp_path: pathlib.Path) -> None:
    """A call whose argument, function and state are calls themselves."""
    made = tmp_path / "made"
    inner = Trap(os.mkdir, str(made))
    outer = Trap(functools.partial, inner)
    found = read({"a": inner, "b": outer, "c": Trap(map, os.mkdir, [str(made)])}, protocol)
    assert not made.exists() and all(isinstance(value, Record) for value in found.values())
    pickle.loads(pickle.dumps(inner))
    assert made.exists(), "the trap itself works"


def copies(count: int) -> bytes:
    """A list of 1000 numbers, and `count` sets of it."""
    numbers = b"](" + b"".join(b"M" + number.to_bytes(2, "little") for number in range(1000)) + b"eq\x00"
    return b"\x80\x02" + numbers + b"0](" + b"c__builtin__\nset\nh\x00\x85R" * count + b"e."


def wide(count: int) -> bytes:
    """A key of `count` times the same tuple, of `count` times the same tuple of numbers."""
    inner = b"(" + b"K\x01" * count + b"t\x94"
    return b"\x80\x04}" + inner + b"0(" + b"h\x00" * count + b"t\x94" + b"0(" + b"h\x01" * count + b"tNs."


REFUSED = {
    "a deep tuple as a key": (b"\x80\x02})" + b"\x85" * 60000 + b"Ns.", "as a key"),
    "a deep tuple in a set": (b"\x80\x04\x8f()" + b"\x85" * 60000 + b"\x90.", "as a key"),
    "a list as a key": (b"\x80\x02}]Ns.", "as a key"),
    "a set as a key": (b"\x80\x04}(\x91Ns.", "a frozenset as a key, and keys of weights are text"),
    "a set in a set": (b"\x80\x04((\x91\x91.", "a frozenset as a key"),
    "a set in a tuple": (b"\x80\x04}(\x91\x85Ns.", "a frozenset as a key"),
    "wide tuples that share their parts": (wide(300), "copies more values"),
    "numbers whose hashes can be equal": (b"\x80\x02}\x8a\x09" + b"\x01" * 9 + b"Ns.", "a number of 65 bits as a key"),
    "a class whose name is a list": (b"\x80\x04]]\x93.", "not text"),
    "an extension": (b"\x80\x02}U\x01x\x82\x01s.", "the instruction EXT1"),
    "a buffer": (b"\x80\x05\x97.", "the instruction NEXT_BUFFER"),
    "copies without end": (copies(20000), "copies more values"),
    "a length that is not there": (b"\x80\x04\x8d" + (2**60).to_bytes(8, "little") + b"x.", ""),
    "no end": (b"\x80\x02}", ""),
    "an empty stack": (b"\x80\x02.", ""),
    "no mark": (b"\x80\x02]e.", ""),
    "an unknown reference": (b"\x80\x02h\x07.", ""),
    "an odd number of items": (b"\x80\x02}(K\x01u.", ""),
    "arguments that are none": (b"\x80\x02cos\nsystem\nK\x01R.", "without a tuple"),
    "no pickle": (b"\xff\xfe", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_checkpoint_needs_is_refused(name: str) -> None:
    data, words = REFUSED[name]
    with pytest.raises((ValueError, IndexError, KeyError, TypeError), match=words or None):
        read_pickle(io.BytesIO(data))


def test_copies_of_an_honest_pickle_are_few() -> None:
    assert len(read_pickle(io.BytesIO(copies(2)))) == 2


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data: bytes) -> None:
    with contextlib.suppress(ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError):
        read_pickle(io.BytesIO(b"\x80\x04" + data + b"."))
