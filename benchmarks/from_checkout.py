"""Makes `xbench_fast` the folders of this checkout, installed or not: for machines that are lent for minutes.

    python benchmarks/from_checkout.py fast ARGUMENTS      xbench-fast
    python benchmarks/from_checkout.py export ARGUMENTS    xbench-export
    python benchmarks/from_checkout.py test ARGUMENTS      pytest

Needs what the command itself needs, and no installation.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__all__ = ["COMMAND", "ROOT", "use_checkout"]

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, str(Path(__file__).resolve()))
"""Runs this file, before `fast`, `export` or `test`."""


def use_checkout() -> None:
    """`xbench_fast` as it is installed: `api/` itself, with the other rooms in it."""
    folders = [str(ROOT / "api"), str(ROOT)]
    if list(getattr(sys.modules.get("xbench_fast"), "__path__", ())) == folders:
        return
    spec = importlib.util.spec_from_file_location(
        "xbench_fast", ROOT / "api/__init__.py", submodule_search_locations=folders
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["xbench_fast"] = module
    spec.loader.exec_module(module)


def main() -> str | int | None:
    names = ("fast", "export", "test")
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        return f"one of {', '.join(names)} is missing, then its arguments"
    use_checkout()
    name = sys.argv.pop(1)
    if name == "test":
        import pytest

        return pytest.main(sys.argv[1:])
    if name == "export":
        from xbench_fast.export.cli import main as export

        sys.argv[0] = "xbench-export"
        return export()
    from xbench_fast.runtime.cli import main as fast

    sys.argv[0] = "xbench-fast"
    fast()
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ModuleNotFoundError as error:
        sys.exit(f"not installed: {error.name}")
