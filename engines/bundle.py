"""The bundle: a directory that holds one exported model (format: engines/README.md)."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import posixpath
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import BundleError, disk_reason
from .external_data import external_locations
from .manifest import FileRecord, GraphSpec, Manifest
from .manifest_json import MAX_JSON_BYTES, parse_manifest, safe_relative
from .prompts.prompt_set import PromptSet
from .registry import did_you_mean
from .replacing import put, sibling, turn
from .user_files import entries

PLANS = "plans"
"""Folder in a bundle for TensorRT plans of its image graph; bundle.json does not list its files."""

_MANIFEST = "bundle.json"
_PLAN_SUFFIXES = (".plan", ".json", ".timing", ".kernels", ".lock", ".part")


@dataclasses.dataclass(eq=False, repr=False)
class Bundle:
    """A verified bundle on disk.

    `name` is the directory's name, `digest` the sha256 of bundle.json, which lists the hash of every file but the
    plans: equal digests mean equal bundles.
    """

    path: Path
    manifest: Manifest
    digest: str

    @property
    def name(self) -> str:
        return self.path.name

    @staticmethod
    def load(path: Path, *, check_hashes: bool = True) -> Bundle:
        """Opens the bundle at `path`.

        With `check_hashes` (the default) every listed file is read and its hash compared; without, only names and sizes
        are (for listings). Raises BundleError with the reason when the bundle must not be used.
        """
        path = path.resolve()
        source = path / _MANIFEST
        if not path.is_dir():
            raise BundleError(f"There is no bundle at {path}; make one with xbench-export.")
        try:
            if not _is_regular(source):
                raise BundleError(f"{path} holds no bundle.json; make a bundle with xbench-export.")
            with source.open("rb") as stream:
                data = stream.read(MAX_JSON_BYTES + 1)
        except OSError as error:
            raise BundleError(f"{source} cannot be read: {error.strerror}.") from error
        manifest = parse_manifest(data, str(path))
        for name, record in manifest.files.items():
            _verify(path, name, record, check_hashes)
        _refuse_unlisted(path, manifest)
        if check_hashes:
            _check_external_data(path, manifest)
        return Bundle(path, manifest, hashlib.sha256(data).hexdigest())

    def graph(self, name: str) -> GraphSpec:
        """The interface of graph `name` ("image" or "text"). Raises BundleError if the bundle has none."""
        try:
            return self.manifest.graphs[name]
        except KeyError:
            if findings := self.manifest.findings:
                raise BundleError(
                    f"The bundle {self.path} reads no text: its model is supervised and knows {len(findings)} findings "
                    f"({', '.join(findings)})."
                ) from None
            raise BundleError(
                f"The bundle {self.path} has no {name} graph; use one exported from a checkpoint, as wrap makes none."
            ) from None

    def file(self, name: str) -> Path:
        """The path of the graph `name` ("image" or "text")."""
        return self.path / self.graph(name).file

    def prompt_set(self, name: str) -> PromptSet:
        """The prompt set `name`. Raises BundleError, listing the sets there are."""
        record = self.manifest.prompt_sets.get(name)
        if record is None:
            hint = did_you_mean(name, sorted(self.manifest.prompt_sets))
            raise BundleError(f"The bundle {self.path} has no prompt set '{name}': {hint}; export it with one.")
        shape = tuple(int(n) for n in self.graph("image").inputs[1].shape[1:])
        return PromptSet.load(name, record, self.path / record.file, shape)


def write_bundle(path: Path, manifest: Manifest, files: Mapping[str, Path], *, replace: bool = False) -> Bundle:
    """Writes a bundle at `path`, whole or not at all, and returns it verified.

    `files` maps names inside the bundle to existing files; they are copied into a directory next to `path`, hashed
    (`manifest.files` is filled in here) and the directory is renamed. The plans of a replaced bundle are kept if both
    have the same image graph. Raises BundleError when `path` exists and `replace` is false, when `path` is not a
    bundle, or when writing fails.
    """
    path = path.resolve()
    check_place(path, replace)  # before anything slow
    with _disk_reasons(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with sibling(path) as draft:
            filled = _fill(draft, manifest, files)
            with turn(path):
                check_place(path, replace)
                return _put(filled, path)


def change_bundle(path: Path, change: Callable[[Bundle, Path], tuple[Manifest, Mapping[str, Path]]]) -> Bundle:
    """Replaces the bundle at `path` by the manifest and files that `change` makes of it, as `write_bundle` does.

    `change` gets the bundle, and a temporary folder for new files.
    No other writer can change the bundle in between. Raises BundleError, and the exceptions of `change`.
    """
    path = path.resolve()
    with _disk_reasons(path), turn(path), sibling(path) as folder, sibling(path) as draft:
        manifest, files = change(Bundle.load(path), folder)
        return _put(_fill(draft, manifest, files), path)


def find_bundles(folder: Path) -> list[Path]:
    """Directories with a bundle.json: `folder` itself or those directly below it, sorted by name."""
    if (folder / _MANIFEST).is_file():
        return [folder]
    if not folder.is_dir():
        return []
    return [path for path in entries(folder) if (path / _MANIFEST).is_file()]


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content, in lower-case hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_regular(path: Path) -> bool:
    return path.exists() and stat.S_ISREG(path.lstat().st_mode)


def _verify(root: Path, name: str, record: FileRecord, check_hash: bool) -> None:
    target = root
    for part in name.split("/"):
        target = target / part
        if target.is_symlink():
            raise BundleError(f"{root}: '{name}' goes through a symbolic link; a bundle holds plain files only.")
    if not _is_regular(target):
        raise BundleError(f"{root}: the file '{name}' is missing; export the bundle again.")
    size = target.stat().st_size
    if size != record.bytes:
        raise BundleError(f"{root}: '{name}' has {size} bytes instead of {record.bytes}; export the bundle again.")
    if check_hash and sha256_of(target) != record.sha256:
        raise BundleError(
            f"{root}: '{name}' does not match its sha256, it was changed or damaged; export the bundle again."
        )


def _refuse_unlisted(root: Path, manifest: Manifest) -> None:
    """Raises BundleError for a file that is not listed: a graph could read it as external data, without any check.

    In the folder of plans, the files of plans are not listed.
    """
    listed = {_MANIFEST, *manifest.files}
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for path in sorted(Path(folder, name) for name in (*files, *links)):
            inside = path.relative_to(root).as_posix()
            if inside not in listed and not (path.parent == root / PLANS and path.suffix in _PLAN_SUFFIXES):
                raise BundleError(
                    f"{root}: bundle.json does not list the file '{inside}', so it cannot be verified; move it out of "
                    "the bundle, or export the bundle again."
                )


def _check_external_data(root: Path, manifest: Manifest) -> None:
    """Raises BundleError for a graph that reads a file which is not listed, and whose content is not checked: one
    among the plans, or outside the bundle."""
    for spec in manifest.graphs.values():
        if not spec.file.endswith(".onnx"):  # engines read files of other endings by other rules
            raise BundleError(f"{root}: the graph '{spec.file}' is no .onnx file; export the bundle again.")
        for location in external_locations(root / spec.file):
            inside = posixpath.normpath(posixpath.join(posixpath.dirname(spec.file), location))
            if inside not in manifest.files or ".." in location.split("/"):
                raise BundleError(
                    f"{root}: the graph '{spec.file}' reads weights from {location!r}, which bundle.json does not "
                    "list, so they cannot be verified; export the bundle again."
                )


def check_place(path: Path, replace: bool) -> None:
    """Raises BundleError unless a bundle can be written at `path`: nothing is there, or a bundle to replace."""
    if not path.exists():
        return
    if not replace:
        raise BundleError(f"{path} already exists; choose another place or replace it with --force.")
    if not (path / _MANIFEST).is_file():
        raise BundleError(f"{path} exists and is no bundle; it is not replaced. Choose another place.")


def _fill(draft: Path, manifest: Manifest, files: Mapping[str, Path]) -> Bundle:
    records = {}
    for name, source in sorted(files.items()):
        target = draft / safe_relative(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        records[name] = FileRecord(sha256_of(target), target.stat().st_size)
        _sync(target)
    (draft / _MANIFEST).write_bytes(dataclasses.replace(manifest, files=records).dump())
    _sync(draft / _MANIFEST)
    return Bundle.load(draft)


def _put(draft: Bundle, path: Path) -> Bundle:
    """Moves the verified `draft` to `path`; the plans of a bundle there stay if both have one image graph."""
    same = False
    if path.exists():
        with suppress(BundleError):  # the bundle there may be damaged
            same = _image_hash(Bundle.load(path, check_hashes=False)) == _image_hash(draft)
    put(draft.path, path, keep=PLANS if same else None)
    return Bundle(path, draft.manifest, draft.digest)


def _image_hash(bundle: Bundle) -> str:
    """The sha256 of the image graph, from bundle.json."""
    return bundle.manifest.files[bundle.manifest.graphs["image"].file].sha256


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _disk_reasons(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BundleError(f"The bundle {path} cannot be written: {disk_reason(error)}.") from error
