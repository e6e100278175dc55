"""`python -m xbench_fast.export.cli`."""

from __future__ import annotations

import sys

from .export_command import main

if __name__ == "__main__":
    sys.exit(main())
