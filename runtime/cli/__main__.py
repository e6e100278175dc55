"""`python -m xbench_fast.runtime.cli`."""

from __future__ import annotations

from .app import main

if __name__ == "__main__":
    main()
