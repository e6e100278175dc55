"""The lock of a run directory: one process at a time writes into it, and its readers can tell."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Final

LOCK_FILE: Final = ".lock"


def lock_folder(folder: Path) -> IO[str] | None:
    """The open lock file, whose closing gives the folder free; None where another process has it.

    Raises OSError when the file cannot be made.
    """
    import fcntl

    lock = (folder / LOCK_FILE).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def has_writer(folder: Path) -> bool:
    """Whether a process is writing into the folder now; false where this cannot be known, as without a lock file."""
    import fcntl

    try:
        with (folder / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
