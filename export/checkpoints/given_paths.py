"""What is given as a checkpoint: the weights in a folder (a repository of Hugging Face, whole or in shards, or a file),
and what a path is that has none: a web page, a pointer, an archive, a folder of a training's parts."""

from __future__ import annotations

import codecs
import html
import json
import re
import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...engines.errors import CheckpointError
from ...engines.strict_json import parse_json
from ...engines.user_files import entries

WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")
_HEAD = 4096
_SHOWN = 80  # characters of a file's own text in a message
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_AGAIN = "download the checkpoint again"
_UNPACK = "unpack it and give the weight file in it"

# The first bytes of files that people take for checkpoints, what they are, and what to do.
_STARTS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "a gzip archive (as .tar.gz)", _UNPACK),
    (b"BZh", "a bzip2 archive", _UNPACK),
    (b"\xfd7zXZ\x00", "an xz archive", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (b"Rar!", "a RAR archive", _UNPACK),
    (b"\x89HDF", "an HDF5 file (TensorFlow or Keras)", "give the model's PyTorch weights"),
    (b"GGUF", "a GGUF file", "give the model's PyTorch weights"),
    (b"\x93NUMPY", "a NumPy array", "save the weights with torch.save or safetensors"),
    (b"%PDF", "a PDF document", _AGAIN),
    (b"\x89PNG", "a PNG image", _AGAIN),
    (b"\xff\xd8\xff", "a JPEG image", _AGAIN),
)

# In the order in which transformers and open_clip take them; in one folder they are the same weights in other formats.
_PUBLISHED = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
)
_STATES = re.compile(
    r"(optimizer|scheduler|scaler|rng_state|random_state|training_arg|trainer_state)s?(?![a-z])|meta\.pt$",
    re.IGNORECASE,
)
_OTHER = (".h5", ".msgpack", ".ot", ".onnx", ".gguf", ".index", ".pb", ".npz")  # weights of other frameworks
_ADAPTER = "adapter_model"
_LISTED = 5

# Parts of a training's processes are not read here: their tables are pickles of the training's own classes, and ZeRO
# flattens the weights of all layers into one tensor.
_TABLE, _PART = ".metadata", ".distcp"
_SCRIPT, _LATEST = "zero_to_fp32.py", "latest"
_ZERO: Final = re.compile(r"(\w+_)?zero_pp_rank_\d+_mp_rank_\d+_(model|optim)_states\.pt")
_ZERO_STATES: Final = re.compile(r"mp_rank_\d+_model_states\.pt")
_TRUST: Final = "it unpickles the folder, so run it only where you trust the folder's origin"


def what_it_is(path: Path) -> str | None:
    """One sentence about a file that cannot be a checkpoint, with what to do; None for one that may be.

    Raises OSError.
    """
    if sentence := joining_command(path):
        return sentence
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD)
    verdict = (
        ("empty (0 bytes)", "copy or download it again")
        if size == 0
        else _binary(path, head, size) or _text(head, size)
    )
    return None if verdict is None else f"{path} is {verdict[0]}, not a checkpoint; {verdict[1]}."


def is_safetensors(path: Path) -> bool:
    """Whether the file begins as safetensors do: the length of a JSON header, and the header. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(9)
    return (
        len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") < max(path.stat().st_size, 1 << 27)
    )


def _binary(path: Path, head: bytes, size: int) -> tuple[str, str] | None:
    for start, format_name, advice in _STARTS:
        if head.startswith(start):
            return format_name, advice
    if head[257:262] == b"ustar":
        return "a tar archive", _UNPACK
    if head.startswith(b"PK\x03\x04") and not zipfile.is_zipfile(path):
        return f"a truncated zip archive ({size:,} bytes, its end is missing)", _AGAIN
    if path.suffix == ".onnx":
        return "an ONNX graph", "make a bundle of it with xbench-export wrap"
    return _zip(path) if zipfile.is_zipfile(path) else None


def _zip(path: Path) -> tuple[str, str] | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):  # zipfile has the second for a version it cannot read
        return "a damaged zip archive", _AGAIN
    if any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        return None
    if names and all(name.endswith(".npy") for name in names):
        return "a NumPy archive (.npz)", "save the weights with torch.save or safetensors"
    weights = [name for name in names if name.endswith(_SUFFIXES)]
    shown = ", ".join(_short(name) for name in (weights or names)[:3])
    inside = f"{len(names)} other files" + (
        f" ({shown}{', ...' if len(weights or names) > 3 else ''})" if shown else ""
    )
    return f"a zip archive of {inside}", _UNPACK


def _text(head: bytes, size: int) -> tuple[str, str] | None:
    if head.startswith(b"version https://git-lfs"):
        stated = re.search(rb"^size ([0-9]+)", head, re.MULTILINE)
        of = f" of a file of {int(stated[1]):,} bytes" if stated else ""
        return f"a Git LFS pointer{of}", "run 'git lfs pull' in its repository, or download the file itself"
    page = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    start = page[:1024].lower()
    if "\0" not in start and (start.startswith(("<!doctype html", "<head", "<!--")) or "<html" in start):
        title = re.search(r"<title[^>]*>(.*?)</title", page, re.IGNORECASE | re.DOTALL)
        named = f" titled '{_short(html.unescape(title[1]))}'" if title and title[1].strip() else ""
        return f"a web page (HTML){named}", f"{_AGAIN}: the server answered with a page, often to confirm or to log in"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, size <= _HEAD).lstrip("\ufeff \t\r\n")
    except UnicodeDecodeError:
        return None
    if any(ord(c) < 32 and c not in "\t\r\n\f" for c in text):
        return None
    if text.startswith("<?xml"):
        return f"an XML text ('{_short(re.sub(r'<[^>]*>', ' ', text))}')", _AGAIN
    if text.startswith(("{", "[")):
        return f"a JSON text ({_message(text)})", _AGAIN
    return f"a text file that begins with '{_short(text)}'", "give the file with the weights"


def _message(text: str) -> str:
    """What a JSON answer says: its error, or how it begins."""
    try:
        answer = json.loads(text)
    except ValueError:
        return f"'{_short(text)}'"
    while isinstance(answer, dict) and (inner := next((answer[k] for k in ("error", "message") if k in answer), None)):
        answer = inner
    return f"'{_short(answer if isinstance(answer, str) else text)}'"


def _short(text: str) -> str:
    """On one line, printable, with at most `_SHOWN` characters."""
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


@dataclass(frozen=True)
class Weights:
    """The file with the weights, or the index of its shards; `note` says what else the folder has to choose from."""

    path: Path
    note: str = ""


def find_weights(folder: Path) -> Weights:
    """The weights in `folder`. Raises CheckpointError, naming the candidates, when there are none or several."""
    names = [path.name for path in entries(folder) if path.is_file()]
    published = [name for name in _PUBLISHED if name in names]
    if published:
        others = ", ".join(published[1:])
        note = f"{folder} also holds {others}; {published[0]} is read, as transformers does" if others else ""
        return Weights(folder / published[0], note)
    files = [path.name for path in weight_files(folder)]
    if adapters := [name for name in files if name.startswith(_ADAPTER)]:
        raise CheckpointError(
            f"The folder {folder} holds only a LoRA adapter ({adapters[0]}); merge it into its model "
            "(merge_and_unload), save that, and give the saved folder."
        )
    if len(files) == 1:
        return Weights(folder / files[0])
    if sentence := joining_command(folder):
        raise CheckpointError(sentence)
    if files:
        raise CheckpointError(
            f"The folder {folder} holds {len(files)} files with weights ({_list(files)}); give one of them."
        )
    other = [name for name in names if name.endswith(_OTHER)]
    inside = [path.name for path in entries(folder) if any(part.suffix == ".safetensors" for part in entries(path))]
    hint = "; it has weights of other frameworks alone" if other else ""
    if inside:
        hint = f"; look in its folder {inside[0]}"
    seen = f" (it holds {_list(other or names)})" if names else " (it is empty)"
    raise CheckpointError(
        f"The folder {folder} has no weights that can be read{seen}{hint}: give a file of torch.save or safetensors, "
        "or a folder with model.safetensors, pytorch_model.bin or the index of their shards."
    )


def weight_files(folder: Path) -> list[Path]:
    """The files in `folder` that are called as weights are, by name; states of a training are none."""
    files = [path for path in entries(folder) if path.is_file()]
    return sorted(path for path in files if path.name.endswith(WEIGHT_SUFFIXES) and not _STATES.match(path.name))


def read_index(path: Path) -> dict[str, list[str]]:
    """File -> the tensors it holds, from the index of shards at `path`. Raises CheckpointError."""
    try:
        table = parse_json(path.read_text(encoding="utf-8"))["weight_map"]
        shards: dict[str, list[str]] = {}
        for tensor, name in table.items():
            if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
                raise ValueError(f"{name!r} is not the name of a file")
            shards.setdefault(name, []).append(tensor)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not an index of shards ({error!r}); download it again.") from error
    missing = [name for name in shards if not (path.parent / name).is_file()]
    if missing or not shards:
        raise CheckpointError(
            f"{path} names {len(shards)} files, of which {len(missing)} are missing ({_list(missing) or 'none'}); "
            "download the folder again."
        )
    return shards


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")


def joining_command(path: Path) -> str | None:
    """One sentence on a folder of torch.distributed.checkpoint or DeepSpeed, or on a file in one, with the command that
    joins its parts; None for anything else.

    Raises OSError for a folder that may not be listed.
    """
    if path.is_dir():
        folders = [*(inner for inner in entries(path) if inner.is_dir()), path]
        return next(
            filter(None, (sentence for one in folders for sentence in (_distributed(one), _deepspeed(one)))), None
        )
    if path.name == _TABLE or path.suffix == _PART:
        return _distributed(path.parent)
    return _deepspeed(path.parent) if _ZERO.fullmatch(path.name) else None


def _distributed(folder: Path) -> str | None:
    """About `.metadata` and `__0_0.distcp`, which FSDP, Lightning and accelerate write too."""
    table = (folder / _TABLE).is_file()
    if not table and not any(one.suffix == _PART for one in entries(folder)):
        return None
    if not table:
        return (
            f"{folder} holds the parts of a torch.distributed.checkpoint, and not its table, the hidden file {_TABLE}; "
            "copy the folder again with its hidden files."
        )
    command = f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {shlex.quote(str(folder))} OUT.pt"
    return f"{folder} is a folder of torch.distributed.checkpoint; join its parts by {command} ({_TRUST})."


def _deepspeed(folder: Path) -> str | None:
    """About the folder of one step (`global_step100`), or the one above, which has `latest` and the script."""
    names = [one.name for one in entries(folder)]
    if any(map(_ZERO.fullmatch, names)):
        root = folder.parent if (folder.parent / _SCRIPT).is_file() or (folder.parent / _LATEST).is_file() else folder
    elif _SCRIPT in names:
        root = folder
    else:
        if _LATEST in names and (states := [one for one in folder.glob("*/*") if _ZERO_STATES.fullmatch(one.name)]):
            return f"{folder} is a folder of DeepSpeed without ZeRO; give its file {min(states)}."
        return None
    script = shlex.quote(str(root / _SCRIPT)) if (root / _SCRIPT).is_file() else "-m deepspeed.utils.zero_to_fp32"
    command = f"python {script} {shlex.quote(str(root))} OUT"
    return f"{folder} is a folder of DeepSpeed ZeRO; join its parts by {command} ({_TRUST}), and give OUT."
