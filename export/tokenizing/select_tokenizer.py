"""Selects the tokenizer of a model and finds its vocabulary on this machine.

Nothing is downloaded. The vocabulary comes from `--tokenizer DIR` (vocab.txt or
tokenizer.json) or from the local Hugging Face cache (HF_HOME and HF_HUB_CACHE are honoured). Every tokenizer pads on
the right to the longest text of a call, which does not change the features: padding is
masked (docs/parity.md §3.4), or the causal mask hides what follows the end token (§3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.errors import ConfigError
from ...engines.strict_json import parse_json
from ...engines.tokenizing import BackendTokenizer, CleanedTokenizer, HashTokenizer, Tokenizer, WordPieceTokenizer
from ..checkpoints.hugging_face import cached_file
from .compared_texts import compare_texts

if TYPE_CHECKING:
    from ..adapter import Adapter
    from .folder_tokenizer import FolderTokenizer

VOCABULARY_FILES: tuple[str, ...] = ("vocab.txt", "tokenizer.json")  # of WordPiece


def select_tokenizer(
    adapter: Adapter, folder: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> Tokenizer | None:
    """The model's tokenizer: bundled (CLIP), in the checkpoint (demo), from `folder`, or from the local cache.

    It has the model's rules and cleaning step; a supervised model has none. Stand-in weights fall back to a stand-in
    tokenizer, which is reported and recorded. Raises ConfigError when there is none, when `folder` does not exist, when
    its vocabulary is not the model's, or when it gives other ids than the tokenizer of the model's library.
    """
    if adapter.findings:
        if folder is not None:
            raise ConfigError(f"{adapter.name} is supervised and reads no text; leave out --tokenizer.")
        return None
    spec = adapter.tokenizer
    tokenizer = _find(adapter, folder, progress)
    if not isinstance(tokenizer, HashTokenizer):
        _check(tokenizer, adapter)
        _check_sample(tokenizer, adapter)
    words: Tokenizer = tokenizer
    if spec.cleaning:
        marked = () if isinstance(tokenizer, HashTokenizer) or not spec.marks_continuations else tokenizer.continuations
        words = CleanedTokenizer(tokenizer, spec.cleaning, marked)
    compare_texts(adapter, words)
    return words


def tokenizer_beside(adapter: Adapter, checkpoint: Path | None) -> Path | None:
    """The folder of the weights, if the model asks for a tokenizer that is in it."""
    spec_kind, names = adapter.tokenizer.kind, VOCABULARY_FILES
    if (
        checkpoint is None
        or adapter.tokenizer.vocabulary is not None
        or spec_kind not in ("wordpiece", "tokenizer.json")
    ):
        return None
    if spec_kind == "tokenizer.json":
        from .folder_tokenizer import FILES as names

        checkpoint = checkpoint.parent if checkpoint.is_file() else checkpoint
    return checkpoint if any((checkpoint / name).is_file() for name in names) else None


def _find(adapter: Adapter, folder: Path | None, progress: Callable[[str], None]) -> BackendTokenizer | HashTokenizer:
    spec = adapter.tokenizer
    if spec.ready is not None:
        return spec.ready
    if spec.kind == "clip-bpe":
        if folder is not None:
            raise ConfigError(f"{adapter.name} uses the tokenizer bundled with open_clip; leave out --tokenizer.")
        from .clip_tokenizer import ClipTokenizer

        return ClipTokenizer(adapter.context, refuses_long=spec.refuses_long)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}; give --tokenizer the folder with vocab.txt or tokenizer.json.")
    rules = {"lower_case": spec.lower_case, "separator": spec.separator, "special_words": spec.special_words}
    if spec.vocabulary is not None:
        pieces = {piece: number for number, piece in enumerate(spec.vocabulary)}
        return WordPieceTokenizer(pieces, adapter.context, "the checkpoint", **rules)
    tokenizer: FolderTokenizer | WordPieceTokenizer | None
    if spec.kind == "tokenizer.json":
        tokenizer = _find_folder(folder, adapter)
    else:
        tokenizer = find_wordpiece(folder, spec.sources, adapter.context, **rules)
    if tokenizer is not None and (adapter.weights in ("published", "own") or folder is not None):
        return tokenizer
    if adapter.weights in ("published", "own"):
        fetch = " ".join(["huggingface-cli download", *spec.sources[:1], *(["vocab.txt"] * (spec.kind == "wordpiece"))])
        raise ConfigError(
            f"No vocabulary for {adapter.name}: give --tokenizer DIR with its vocab.txt or tokenizer.json"
            + (f", or fetch it into the Hugging Face cache first ({fetch})." if spec.sources else ".")
        )
    if tokenizer is not None and tokenizer.vocabulary_size <= adapter.vocabulary_size:
        return tokenizer
    progress("no vocabulary found: stand-in weights get a stand-in tokenizer (give --tokenizer DIR for the real one)")
    return HashTokenizer(adapter.vocabulary_size, adapter.context)


def _check(tokenizer: BackendTokenizer, adapter: Adapter) -> None:
    """Checks that every id has a row in the embedding table, and that the special tokens are the model's."""
    size = tokenizer.record["vocabulary_size"]
    if size > adapter.vocabulary_size:
        raise ConfigError(
            f"The tokenizer ({tokenizer.record['source']}) has {size} pieces, the table of "
            f"{adapter.name} has {adapter.vocabulary_size}: it belongs to another model; give --tokenizer its own."
        )
    ends = adapter.tokenizer.ends
    if isinstance(tokenizer, WordPieceTokenizer) and ends not in (None, tokenizer.ends):
        raise ConfigError(
            f"The tokenizer ({tokenizer.record['source']}) has [CLS] and [SEP] at {tokenizer.ends}, {adapter.name} was "
            f"trained with {ends}: it belongs to another model; give --tokenizer its own."
        )


def _check_sample(tokenizer: BackendTokenizer, adapter: Adapter) -> None:
    """Checks that the tokenizer gives the ids that the model states for its sample; without a sample, that it has as
    many pieces as the model's table has rows."""
    spec, source = adapter.tokenizer, tokenizer.record["source"]
    if spec.vocabulary is not None or spec.ready is not None:
        return  # of the checkpoint itself
    if spec.sample is None:
        size = tokenizer.record["vocabulary_size"]
        if size != adapter.vocabulary_size:
            raise ConfigError(
                f"The tokenizer ({source}) has {size} pieces, the table of {adapter.name} has "
                f"{adapter.vocabulary_size} rows: it may belong to another model; if it is the right one, state a text "
                "and its ids as TokenizerSpec.sample."
            )
        return
    text, ids = spec.sample
    given = tuple(tokenizer([text]).ids[0].tolist())
    if len(ids) <= adapter.context and given != ids:
        raise ConfigError(
            f"The tokenizer ({source}) turns '{text}' into {list(given)}, {adapter.name} was trained with {list(ids)}: "
            "it belongs to another model; give --tokenizer its own."
        )


def _find_folder(folder: Path | None, adapter: Adapter) -> FolderTokenizer | None:
    """The tokenizer in `folder`, or of the first of the model's repositories in the local Hugging Face cache."""
    from .folder_tokenizer import FILES, FolderTokenizer

    refuses_long = adapter.tokenizer.refuses_long
    if folder is not None:
        return FolderTokenizer(folder, adapter.context, refuses_long=refuses_long)
    for repository in adapter.tokenizer.sources:
        path = cached_file(repository, *FILES)
        if path is not None:
            return FolderTokenizer(path.parent, adapter.context, source=repository, refuses_long=refuses_long)
    return None


def find_wordpiece(
    folder: Path | None, repositories: Sequence[str], context: int, **rules: bool
) -> WordPieceTokenizer | None:
    """The vocabulary in `folder`, or of the first of `repositories` that is in the local Hugging Face cache.

    `rules`: see `WordPieceTokenizer`. Returns None when `folder` is None and no repository is cached. Raises
    ConfigError when `folder` was given and holds no WordPiece vocabulary.
    """
    if folder is not None:
        return WordPieceTokenizer(read_vocabulary(folder), context, folder.resolve().name, **rules)
    for repository in repositories:
        path = cached_file(repository, *VOCABULARY_FILES)
        if path is not None:
            return WordPieceTokenizer(_read(path), context, repository, **rules)
    return None


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Piece -> id, from vocab.txt or tokenizer.json in `folder`. Raises ConfigError."""
    paths = [folder / name for name in VOCABULARY_FILES if (folder / name).is_file()]
    for path in reversed(paths):
        vocabulary = _read(path)  # also of the second file, which may be of another kind
    if paths:
        return vocabulary
    raise ConfigError(
        f"The folder {folder} holds neither vocab.txt nor tokenizer.json; give --tokenizer another folder."
    )


def _read(path: Path) -> dict[str, int]:
    try:
        text = path.read_bytes().decode("utf-8")
        if path.suffix == ".txt":
            return _from_lines(text, path)
        model = parse_json(text)["model"]
        tokenizer_type = model.get("type", "BPE" if "merges" in model else "WordPiece")
        if tokenizer_type != "WordPiece":
            raise ConfigError(
                f"{path} is a {tokenizer_type} tokenizer, not WordPiece; give --tokenizer another folder."
            )
        return {str(piece): int(number) for piece, number in model["vocab"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"The vocabulary {path} cannot be read: {error!r}; give --tokenizer another folder."
        ) from error


def _from_lines(text: str, path: Path) -> dict[str, int]:
    pieces = text.split("\n")
    if pieces and not pieces[-1]:
        pieces.pop()
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise ConfigError(f"The vocabulary {path} repeats a piece; take the model's own file again.")
    return vocabulary
