"""A hash of a user's Python code and of what it imports, so that a result names the code of the reader that it used.

The project's own code has numbers instead (`code_numbers`); its tests use the same hash to notice a change of it.
The hash covers what the code does, not how it is written: comments, docstrings, formatting, `__all__` and imports for
type checking are left out. It is the same under every supported version of Python.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from ...engines.errors import DataError

PROJECT = __name__.partition(".runtime.")[0]

_SKIPPED = frozenset({"kind", "type_comment", "type_ignores", "ctx"})
_Module = tuple[str, tuple[str, ...]]
"""A module's hash, and the absolute names that it may import."""

_NAMED = re.compile(r"value '(\w[\w.-]*\.\w+)'")


def code_digest(roots: Collection[str]) -> str:
    """A hash of the modules in the `closure` of `roots`. Raises DataError for a file that cannot be read."""
    lines = []
    for name, path in closure(roots).items():
        # A file that is not installed can be moved, and then has another name, such as `__main__`.
        label = name if _is_own(name) else "another"
        lines.append(f"{label} {_module(name, path)[0]}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def closure(roots: Collection[str], aside: Collection[str] = ()) -> dict[str, Path]:
    """The modules named `roots` and all that they import, directly or not, also inside of functions: name -> file.

    Followed are modules of the packages of the roots and files that are not installed; not this project unless a root
    is of it, the standard library, other installed packages, and the modules named in `aside`. A module is not found
    if its name is made at run time. Raises DataError for a file that cannot be read.
    """
    packages = {name.partition(".")[0] for name in roots}
    files: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in files or name in aside or not (top in packages or (top != PROJECT and _is_loose(top))):
            continue
        path = _file(name)
        if path is not None:
            files[name] = path
            waiting += _module(name, path)[1]
    return files


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == PROJECT


@cache
def _is_loose(top: str) -> bool:
    """Whether a module that is in no package is a file which is not installed."""
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return False
    path = _file(top)
    if path is None or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(sysconfig.get_path(scheme)) for scheme in ("stdlib", "platstdlib"))


def _file(name: str) -> Path | None:
    """The source file of a module; None for a module without one, and for a name that is no module."""
    return _project_file(name) if _is_own(name) else _find(name)


@cache
def _project_file(name: str) -> Path | None:
    return _find(name)


def _find(name: str) -> Path | None:
    module = sys.modules.get(name)
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        above = name.rpartition(".")[0]
        package = _file(above) if above else None
        if above and (package is None or package.name != "__init__.py"):
            return None  # `find_spec` would import what is above the name
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):  # what should be its package is none
            return None
        origin = spec.origin if spec is not None and spec.has_location else None
    return Path(origin) if origin else None


def _module(name: str, path: Path) -> _Module:
    """A module of this project is read once, because an imported module does not change with its file."""
    try:
        if _is_own(name):
            return _read(name, path, 0, 0)
        status = path.stat()
        return _read(name, path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise DataError(f"The code in {path} cannot be read: {error.strerror}; restore the file.") from error


@cache
def _read(name: str, path: Path, _size: int, _changed: int) -> _Module:
    content = path.read_bytes()
    if path.suffix != ".py":
        return hashlib.sha256(content).hexdigest(), ()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tokens: list[str] = []
    imports: list[str] = []
    _write(ast.parse(content), tokens, imports, package)
    sha = hashlib.sha256("\0".join(tokens).encode(errors="surrogatepass"))
    for file in _data_files(tokens, path.parent):
        sha.update(file.read_bytes())
    return sha.hexdigest(), tuple(dict.fromkeys(imports))


def _write(node: ast.AST, tokens: list[str], imports: list[str], package: str) -> None:
    """Appends what a node does to `tokens`, and the modules it may import to `imports`.

    Empty fields are left out, because later versions of Python add some.
    """
    if isinstance(node, ast.Import | ast.ImportFrom):
        imports += _imported(node, package)
    tokens.append(type(node).__name__)
    if isinstance(node, ast.JoinedStr):
        node.values = _merged(node.values)
    for name in node._fields:
        value = getattr(node, name, None)
        if (value is None and not isinstance(node, ast.Constant)) or name in _SKIPPED:
            continue
        if isinstance(value, ast.AST):
            tokens.append(name)
            _write(value, tokens, imports, package)
        elif isinstance(value, list):
            items = _effective(node, value) if name == "body" else value
            if items:
                tokens.append(f"{name} {len(items)}")
            for item in items:
                if isinstance(item, ast.AST):
                    _write(item, tokens, imports, package)
                else:
                    tokens.append(repr(item))
        else:
            tokens.append(f"{name} {value!r}")


def _merged(parts: list[ast.expr]) -> list[ast.expr]:
    """The parts of a formatted string, without empty texts and with one text where versions of Python have several."""
    merged: list[ast.expr] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
            last.value = str(last.value) + str(part.value)
        elif not (isinstance(part, ast.Constant) and part.value == ""):
            merged.append(part)
    return merged


def _effective(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    """A body without its docstring, `__all__` and what only a type checker reads."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = body[0] if body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            body = body[1:]
    return [statement for statement in body if not _is_inert(statement)]


def _is_inert(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        test = statement.test
        named = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
        return named == "TYPE_CHECKING" and not statement.orelse
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """The absolute names of the modules that a statement may import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    module = node.module or ""
    if node.level:
        above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
        module = f"{above}.{module}" if module else above
    yield module
    yield from (f"{module}.{alias.name}" for alias in node.names if alias.name != "*")


def _data_files(tokens: Iterable[str], folder: Path) -> list[Path]:
    """Files beside a module that it names, such as the source of a kernel."""
    names = {match[1] for match in map(_NAMED.fullmatch, tokens) if match}
    paths = (folder / name for name in sorted(names))
    return [path for path in paths if path.suffix not in (".py", ".pyc") and path.is_file()]
