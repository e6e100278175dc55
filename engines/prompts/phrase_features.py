"""Text features of single phrases, by content: each phrase is encoded once, alone or with phrases of its length.

The features of a phrase do not depend on the other phrases: texts of one batch have equally many tokens, so none is
padded, and a batch has at least two texts, since products with a single row are computed in another order.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..bundle import Bundle
from ..manifest import COMPARED
from ..tokenizing import TOKENIZER_FILE, bundle_tokenizer
from .prompt_encoding import TextEncoder, texts_per_query

PHRASE_FEATURES: Final = "phrase-features.sqlite"
"""The file in a cache folder that keeps the features of phrases."""

Floats = NDArray[np.float32]
_CHUNK: Final = 32  # texts in one run of the text graph; bounds its memory
_PATIENCE: Final = 5.0  # seconds in which a database that is to be emptied may be written by others
_CHECKED: Final = hashlib.sha256().digest_size
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT)
_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)  # the latter: a message that quotes a damaged schema
_PAGE: Final = 4096  # bytes; the first page has the statement that made the table
_TABLE: Final = "CREATE TABLE IF NOT EXISTS features (phrase BLOB PRIMARY KEY, content BLOB) WITHOUT ROWID"


class PhraseFeatures:
    """The features of phrases for one bundle, kept in the database `file`, or without one in a temporary file.

    A phrase is found by a hash of the text graph, the tokenizer and its own text, so bundles with the same text tower
    share it, and no file holds a phrase. Features whose checksum does not match are encoded again. A damaged database
    is begun again, and one that cannot be used is replaced by a temporary one. Raises BundleError for a bundle without
    text graph or tokenizer, ConfigError, EngineError and MissingExtraError.
    """

    def __init__(self, bundle: Bundle, file: Path | None = None, *, threads: int | None = None) -> None:
        self._copies = texts_per_query(bundle.graph("image"), bundle.graph("text"))
        self._tokenizer = bundle_tokenizer(bundle)
        self._encoder = TextEncoder.of(bundle, threads=threads)
        self._shape = tuple(size for size in bundle.graph("text").outputs[0].shape[1:] if isinstance(size, int))
        self._key = _text_tower(bundle)
        self._file = file
        self._store = _opened(file)

    def __call__(self, phrases: Sequence[str]) -> Floats:
        """float32 [Q, D...], as the image graph takes the features of a query."""
        keys = [hashlib.sha256(self._key + phrase.encode(errors="surrogatepass")).digest() for phrase in phrases]
        features_of = {key: features for key in keys if (features := self._read(key)) is not None}
        lacking = {key: phrase for key, phrase in zip(keys, phrases, strict=True) if key not in features_of}
        for key, features in zip(lacking, self._encode(list(lacking.values())), strict=True):
            features_of[key] = features
            self._write(key, features)
        rows = np.stack([features_of[key] for key in keys])
        return rows if self._copies == 1 else np.repeat(rows[:, None], self._copies, axis=1)

    def close(self) -> None:
        """Closes the database."""
        self._store.close()

    def _encode(self, phrases: Sequence[str]) -> list[Floats]:
        """Features [D...] of each phrase."""
        tokens = [self._tokenizer([phrase]) for phrase in phrases]
        encoded: dict[int, Floats] = {}
        for width in sorted({batch.ids.shape[1] for batch in tokens}):
            rows = [row for row, batch in enumerate(tokens) if batch.ids.shape[1] == width]
            for start in range(0, len(rows), _CHUNK):
                chunk = rows[start : start + _CHUNK]
                texts = chunk if len(chunk) > 1 else chunk * 2
                masks = [tokens[row].mask_for(self._encoder.inputs) for row in texts]
                mask = None if masks[0] is None else np.concatenate([mask for mask in masks if mask is not None])
                features = self._encoder.run(np.concatenate([tokens[row].ids for row in texts]), mask)
                encoded.update(zip(chunk, np.asarray(features, np.float32), strict=False))
        return [encoded[row] for row in range(len(phrases))]

    def _read(self, key: bytes) -> Floats | None:
        try:
            row = self._store.execute("SELECT content FROM features WHERE phrase = ?", (key,)).fetchone()
        except _ERRORS as error:
            self._begin_again(error)
            return None
        size = 4 * int(np.prod(self._shape))
        content = row[0] if row is not None and isinstance(row[0], bytes) else b""
        if len(content) != size + _CHECKED or content[size:] != _checksum(key, content[:size]):
            return None
        return np.frombuffer(content[:size], np.float32).reshape(self._shape)

    def _write(self, key: bytes, features: Floats) -> None:
        content = features.tobytes()
        try:
            with self._store:
                row = key, content + _checksum(key, content)
                self._store.execute("INSERT OR REPLACE INTO features VALUES (?, ?)", row)
        except _ERRORS as error:  # a full disk or another process: the phrase is encoded again
            self._begin_again(error)

    def _begin_again(self, error: Exception) -> None:
        """Replaces a database that this error calls damaged: by an empty one, or if it must stay by a temporary one."""
        if _is_damage(error):
            with suppress(sqlite3.Error):
                self._store.close()
            if self._file is not None and not _remove(self._file):
                self._file = None
            self._store = _opened(self._file)


def stored_phrases(file: Path) -> int | None:
    """How many phrases a database keeps; 0 also for a file that is another database; None for a damaged one."""
    if not _is_database(file):
        return 0
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as store:
            return int(store.execute("SELECT count(*) FROM features").fetchone()[0])
    except _ERRORS as error:
        return None if _is_damage(error) else 0


def forget_phrases(file: Path) -> bool:
    """Empties a database of phrases, and deletes a damaged one; whether that was possible. Other processes may have it
    open: it stays a file."""
    try:
        with closing(sqlite3.connect(file, timeout=_PATIENCE)) as store:
            with store:
                store.execute("DELETE FROM features")
            store.execute("VACUUM")
        return True
    except _ERRORS as error:
        return _is_damage(error) and _remove(file)


def _checksum(key: bytes, content: bytes) -> bytes:
    """SHA-256 of the features of a phrase and of their key."""
    return hashlib.sha256(key + content).digest()


def _is_damage(error: Exception) -> bool:
    """Whether a database does not have the form that it was written in; False: it cannot be accessed now."""
    return not isinstance(error, sqlite3.Error) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def _is_database(file: Path) -> bool:
    """Whether a file begins as a database of phrases does, but for a flipped bit; others are never deleted."""
    try:
        with file.open("rb") as stream:
            head = stream.read(_PAGE)
    except OSError:
        return False
    return head.startswith(b"SQLite format 3\0") or b"features (phrase BLOB PRIMARY KEY" in head


def _remove(file: Path) -> bool:
    """Deletes a damaged database with its journal; whether it is gone. A link is kept, with what it points to."""
    if file.is_symlink() or not _is_database(file):
        return False
    try:
        for path in (file.with_name(f"{file.name}-journal"), file):
            path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _text_tower(bundle: Bundle) -> bytes:
    """A hash of everything that the features of a text depend on besides the text."""
    import onnxruntime

    files = bundle.manifest.files
    names = sorted(name for name in files if name == TOKENIZER_FILE or name.startswith(bundle.graph("text").file))
    facts = [
        {name: files[name].sha256 for name in names},
        {key: value for key, value in bundle.manifest.text.items() if key != COMPARED},
        bundle.manifest.precision,
        onnxruntime.__version__,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).digest()


def _opened(file: Path | None) -> sqlite3.Connection:
    for path in (file, file, None):  # a damaged one is removed, and made again
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            # An empty name is a temporary file, which SQLite deletes.
            store = sqlite3.connect(path or "", timeout=30)
        except (*_ERRORS, OSError):
            continue
        try:
            store.execute(_TABLE)
            return store
        except _ERRORS as error:
            store.close()
            if path is not None and _is_damage(error):
                _remove(path)
    return sqlite3.connect(":memory:")
