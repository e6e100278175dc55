"""A small run with a trust directory, and ways to change what the directory says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.strict_json import CHECKSUM, checksum_of
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.trust.card.card import TrustCard
from xbench_fast.runtime.trust.card.making import make_cards

MODEL, DATASET = "blocks-32", "coco"
OPTIONS = ("--bundles", "models", "--data", "coco=data", "--engine", "synthetic:BlockEngine", "--threads", "1")
QUESTIONS = {
    "randomisation": (4, ("randomisation_spearman", "randomisation_ssim", "randomisation_roc_auc")),
    "deletion": (5, ("deletion_mean", "insertion_mean", "deletion_blur16", "insertion_blur16")),
    "region": (6, ("region_mean", "region_blur16")),
    "prompts": (3, ("prompts_average_precision",)),
}


def command(*words: object, status: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert ended.value.code == status


def make_card_world(folder: Path) -> Path:
    """A bundle and baseline:center on 40 images, 15 with a Mass and 10 with an Effusion, and what stability says of the
    bundle; the other probes are written by `say`, since the made-up model has no weights. The process must be in the
    folder."""
    make_bundle(folder / "models" / MODEL)
    make_dataset(folder / "data", 40)
    command("eval", "--model", MODEL, "--model", "baseline:center", *OPTIONS, "--out", "run")
    command("trust", "--model", MODEL, *OPTIONS, "--out", "trust", "--probe", "stability", "--probe", "repeat")
    return folder


def cards(folder: Path, *trust: Path, **choices: Any) -> dict[str, TrustCard]:
    """By model; without pictures."""
    report = make_report(folder / "run", Choices(**{"replicates": 40, **choices}))
    return {card.model: card for card in make_cards(report, trust, pictures=False)}


def card_of(folder: Path, *trust: Path) -> dict[str, Any]:
    """The card of the bundle as plain data."""
    return cards(folder, *trust)[MODEL].to_json


def change(trust: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Changes the content of trust.json, with a checksum that fits."""
    path = trust / "trust.json"
    data = json.loads(path.read_text())
    edit(data)
    body = {name: value for name, value in data.items() if name != CHECKSUM}
    path.write_text(json.dumps({**body, CHECKSUM: checksum_of(body)}))
    return trust


def changed(trust: Path, folder: Path, **values: Any) -> Path:
    """A copy of a trust directory, with these values in each of its entries; a dictionary is merged in."""
    shutil.copytree(trust, folder)

    def edit(data: dict[str, Any]) -> None:
        for entry in data["cells"].values():
            for name, value in values.items():
                entry[name] = {**entry[name], **value} if isinstance(value, dict) else value

    return change(folder, edit)


def say(trust: Path, probe: str, words: tuple[str, ...], **values: Any) -> None:
    """Adds what a probe says, one verdict for each of its questions; other values as given."""
    line, questions = QUESTIONS[probe]

    def edit(data: dict[str, Any]) -> None:
        entry = dict(data["cells"][f"{MODEL}--{DATASET}--stability"])
        record = entry["questions"][0] | {"p": 0.001, "p_holm": 0.004, "family": 11, "value": 0.25, "low": 0.2}
        record |= {"high": 0.3, "line": line, "criterion": "above 0 by more than 0.01", **values}
        facts = {"layers": 9, "layers_of_the_score_only": 2, "steps": [{}]}
        entry |= {"probe": probe, "notes": [f"a note on {probe}"], "facts": facts}
        entry["questions"] = [
            record | {"question": name, "text": f"text of {name}", "word": word, "verdict": word}
            for name, word in zip(questions, words, strict=True)
        ]
        data["cells"][f"{MODEL}--{DATASET}--{probe}"] = entry

    change(trust, edit)
