"""Reads the files given with `--prompts`: the user's own sets, and the published files of MedKLIP and MAVL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...engines.errors import ConfigError
from ...engines.prompts.prompt_files import PromptSets, parse_prompt_file, prompt_sets
from .builtin import BOOKS, dataset_findings

DESCRIPTIONS, ASPECTS, RARE = "observation explanation.json", "gpt4_mimic.json", "_padchest_rare.json"
PLACES = {
    "medklip": (
        (f"Sample_Zero-Shot_Grounding_RSNA/{DESCRIPTIONS}", f"Sample_zero-shot_Classification_CXR14/{DESCRIPTIONS}"),
    ),
    "mavl": (
        (f"Zero-shot_grounding/{DESCRIPTIONS}",),
        (f"Pretrain/concept_gen/{ASPECTS}",),
        ("Pretrain/concept_gen/gpt4_mimic_covidr.json",),
        (f"Zero-shot_classification/observation explanation{RARE}",),
        (f"Pretrain/concept_gen/gpt4_mimic{RARE}",),
    ),
}
"""Model -> for each file its possible paths in a checkout of the repository, best first."""


def read_prompts(model: str, paths: Sequence[Path]) -> PromptSets:
    """The sets that replace or add to the built-in ones of `model`.

    A path is a file of sets (YAML or JSON), a published file of MedKLIP's or MAVL's, or a folder with those: a checkout
    of the repository, or the files side by side, their names as published or with the model's name in front. Own sets
    win over a book. Raises ConfigError.
    """
    files = [file for path in paths for file in (_published(model, path) if path.is_dir() else [path])]
    contents = {file: parse_prompt_file(file) for file in files}
    sets: PromptSets = {}
    if model in BOOKS:
        from .books import Book, book_sets, is_book

        book = Book()
        for file, content in contents.items():
            if is_book(content):
                book.add(content, file)
        sets = book_sets(model, book, dataset_findings()) if book else {}
        contents = {file: content for file, content in contents.items() if not is_book(content)}
    for file, content in contents.items():
        sets.update(prompt_sets(content, file))
    return sets


def _published(model: str, folder: Path) -> list[Path]:
    if model not in PLACES:
        raise ConfigError(f"--prompts {folder} is a folder; {model} takes a YAML or JSON file with prompt sets.")
    files = []
    for places in PLACES[model]:
        name = Path(places[0]).name
        plain = (name, f"{model}_{name}", f"{model}_{name.replace(' ', '_')}")
        candidates = [folder / address for address in (*places, *plain)]
        files += [path for path in candidates if path.is_file()][:1]
    if not files:
        raise ConfigError(
            f"The folder {folder} holds none of {model}'s prompt files ({PLACES[model][0][0]}, ...); give a checkout "
            "of its repository, or the files themselves."
        )
    return files
