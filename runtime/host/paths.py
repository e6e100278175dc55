"""Checks whether a file or folder exists and can be reached, without exceptions.

The methods of `Path` fail if a parent folder cannot be entered.
"""

from __future__ import annotations

import os.path

has_file = os.path.isfile
has_folder = os.path.isdir
