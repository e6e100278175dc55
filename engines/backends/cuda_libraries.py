"""Finds CUDA's shared libraries in this environment and loads them into the process."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..extras import CUDA_EXTRAS, install_advice

_CUFFT: Final = {12: 11, 13: 12}

_PARTS: Final = {"libnvrtc": "libnvrtc-builtins.so.{major}.*"}
"""What a library opens by its bare name while it works. NVRTC 13.0 has no run path and does not look in its folder."""

_LINK_MAP: Final = 2  # RTLD_DI_LINKMAP of dlfcn.h


class _LinkMap(ctypes.Structure):
    """The first two fields of dlfcn.h's link_map."""

    _fields_ = (("address", ctypes.c_void_p), ("path", ctypes.c_char_p))


def lacking_libraries(cuda: int) -> str | None:
    """Loads the libraries of a CUDA (12, 13) that ONNX Runtime and CuPy look for by name; None, or which are not found.

    Libraries of packages that were installed with pip's --target are found too, which neither of the two does. Nothing
    is printed.
    """
    by_cuda = (f"lib{name}.so.{cuda}" for name in ("cudart", "nvrtc", "cublasLt", "cublas"))  # each after its needs
    others = (f"libcufft.so.{_CUFFT.get(cuda, cuda - 1)}", "libcurand.so.10", "libcudnn.so.9")
    absent = [name for name in (*by_cuda, *others) if not load_library(name)]
    if not absent:
        return None
    listed = " and ".join(filter(None, (", ".join(absent[:-1]), absent[-1])))
    advice = install_advice(CUDA_EXTRAS[cuda]) if cuda in CUDA_EXTRAS else f"install the packages of CUDA {cuda}"
    return f"{listed} {'is' if len(absent) == 1 else 'are'} not found; {advice}"


def load_library(name: str) -> bool:
    """Loads a library ("libnvrtc.so.13") with the parts that it opens by name later; whether it was found.

    A library that is loaded already is taken as it is, and its parts are loaded from its folder.
    """
    for path, mode in _places(name):
        try:
            library = ctypes.CDLL(path, mode)
        except OSError:
            continue
        _load_parts(library, name)
        return True
    return False


def _load_parts(library: ctypes.CDLL, name: str) -> None:
    stem, _, major = name.partition(".so.")
    pattern = _PARTS.get(stem)
    path = None if pattern is None else _path(library)
    if pattern is None or path is None:
        return
    for folder in {path.parent, path.resolve().parent}:
        for part in sorted(folder.glob(pattern.format(major=major))):
            with suppress(OSError):  # the library may find another by itself; otherwise a compilation says so
                ctypes.CDLL(str(part))


def _path(library: ctypes.CDLL) -> Path | None:
    """The file that the dynamic linker loaded; None where it is not known."""
    ask = getattr(ctypes.CDLL(None), "dlinfo", None)
    entry = ctypes.POINTER(_LinkMap)()
    if ask is None or ask(ctypes.c_void_p(library._handle), _LINK_MAP, ctypes.byref(entry)):
        return None
    return Path(os.fsdecode(entry.contents.path or b""))


def _places(name: str) -> Iterator[tuple[str, int]]:
    """Where a library may be, and how to open it there."""
    yield name, os.RTLD_NOLOAD
    for folder in sys.path:
        for path in sorted(Path(folder).glob(f"nvidia/*/lib/{name}")):
            yield str(path), ctypes.DEFAULT_MODE
    yield name, ctypes.DEFAULT_MODE
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = str(load_nvidia_dynamic_lib(name.removeprefix("lib").partition(".")[0]).abs_path)
    except (ImportError, RuntimeError, OSError):  # it is not installed, or does not find it
        return
    if Path(library).name.startswith(name):
        yield library, ctypes.DEFAULT_MODE
