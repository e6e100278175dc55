"""Every error that the project raises for a user.

XBenchError
├── ConfigError         the configuration file or a flag
├── CheckpointError     a checkpoint that cannot be read, or is not this model's
├── ExportError         a graph that could not be exported
│   └── ParityError     an exported graph that differs from the model it came from
├── BundleError         a bundle that must not be used
├── EngineError         an engine that cannot run here, or failed while running
├── DataError           a dataset's folder or annotation files
│   └── ImageError      one image that cannot be read
│       └── ImageAccessError    the cause is not its content: a later run may read it
├── RunError            a run directory, its results, the disk under them
├── ServingError        a request to the server, or the server itself (runtime/serving/protocol/request_errors.py)
└── MissingExtraError   an optional package that is not installed

The message is one sentence: what is wrong, where (file, row, key) and what to do. Command lines print it without a
traceback and exit with status 1, or 2 for a ConfigError. Errors of other libraries are translated where they enter,
with the cause kept.
"""

from __future__ import annotations

import errno
import re


class XBenchError(Exception):
    """Base of all errors this project raises on purpose; `str(error)` is a sentence for the user."""


class ConfigError(XBenchError):
    """The configuration file or a flag names something that does not exist or does not fit."""


class CheckpointError(XBenchError):
    """A checkpoint is missing, truncated, of another model, or holds code."""


class ExportError(XBenchError):
    """A model could not be turned into a graph."""


class ParityError(ExportError):
    """The exported graph does not compute what the model computes."""


class BundleError(XBenchError):
    """A bundle is damaged, of an unknown schema, or unsafe."""


class EngineError(XBenchError):
    """An inference engine cannot run here, or failed while running."""


class DataError(XBenchError):
    """A dataset's folder or annotation file is missing or malformed."""


class ImageError(DataError):
    """One image cannot be read; the case is recorded as unreadable and the run continues."""


class ImageAccessError(ImageError):
    """One image could not be read this time: no permission, a failing disk, too many open files, no memory.

    Its content was not checked, so the failure must not be stored beyond the present run.
    """


class RunError(XBenchError):
    """A run directory cannot be read or written."""


class ServingError(XBenchError):
    """A request cannot be answered, or the server cannot run."""


class MissingExtraError(XBenchError):
    """The request needs an optional package that is not installed."""


def words_of(error: BaseException, most: int = 300) -> str:
    """What an error of a library says, on one line of at most `most` characters; its type where it says nothing.

    Addresses of objects are left out: they differ in every process, and identical files give identical sentences.
    """
    words = " ".join(re.sub(r"<\S+ object at 0x[0-9a-f]+>", "", str(error)).split())
    return words[:most] or type(error).__name__


def is_of_the_machine(error: Exception) -> bool:
    """Whether a file could not be read for lack of memory, open files or a package, whatever it holds.

    For a damaged file, libraries raise an OSError without a number.
    """
    return isinstance(error, MemoryError | ImportError) or (isinstance(error, OSError) and error.errno is not None)


def disk_reason(error: OSError) -> str:
    """Why a file operation failed, as the end of a message."""
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space and run the same command again"
    return error.strerror or str(error)
