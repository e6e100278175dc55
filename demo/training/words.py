"""The vocabulary of the demo model: names of the drawn findings, and names it must answer with "no".

`python -m xbench_fast.demo.training.words` writes demo/tokenizer/vocab.txt.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["NAMES", "OTHERS", "TEMPLATES", "vocabulary"]

NAMES: dict[str, tuple[str, ...]] = {
    "Atelectasis": ("atelectasis", "plate atelectasis", "collapsed lung tissue", "linear atelectasis", "lung collapse"),
    "Calcification": ("calcification", "calcified densities", "calcified granuloma", "calcified plaque", "calcium"),
    "Cardiomegaly": ("cardiomegaly", "enlarged heart", "enlarged cardiac silhouette", "large heart"),
    "Consolidation": ("consolidation", "lung consolidation", "airspace consolidation", "lobar consolidation"),
    "Effusion": ("effusion", "pleural effusion", "fluid in the pleural space", "pleural fluid"),
    "Mass": ("mass", "lung mass", "pulmonary mass", "large mass"),
    "Nodule": ("nodule", "lung nodule", "pulmonary nodule", "small nodule"),
    "Pneumothorax": ("pneumothorax", "air in the pleural space", "pleural air"),
}
"""The phantoms' findings and the wordings used in training; the first is the prompt of the demo."""

OTHERS = (
    "aortic enlargement", "clavicle fracture", "emphysema", "enlarged pa", "enlarged cardiomediastinum", "edema",
    "fibrosis", "fracture", "hernia", "ild", "interstitial lung disease", "lung cavity", "lung cyst", "pleural other",
    "mediastinal shift", "other lesion", "pleural thickening", "pulmonary fibrosis", "rib fracture", "support devices",
    "covid-19", "pneumonia", "infiltration", "infiltrate", "lung opacity", "airspace opacity", "lung lesion",
    "nodule/mass",
)  # fmt: skip
"""Findings of the benchmark that no phantom shows."""

AMBIGUOUS = ("infiltrat", "opacity", "lesion", "pneumonia", "nodule/mass", "airspace", "devices")
"""Wordings that a drawn finding could be called; never used as a name that must be answered with "no"."""

TEMPLATES = ("{}", "there is {}", "a chest x-ray showing {}", "{} is present")

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def absent_names() -> tuple[str, ...]:
    """The names of OTHERS that are surely absent from every phantom."""
    return tuple(name for name in OTHERS if not any(part in name for part in AMBIGUOUS))


def vocabulary() -> tuple[str, ...]:
    """Word pieces in the order of their ids: special, marks, letters (so that any word can be spelt), whole words."""
    texts = [text for names in NAMES.values() for text in names]
    texts += [*OTHERS, *(template.format("") for template in TEMPLATES), "no normal chest right left upper lower lobe"]
    words = sorted({word for text in texts for word in re.findall(r"[a-z0-9]{2,}", text)})
    return (*SPECIAL, *"-/,.()", *LETTERS, *(f"##{letter}" for letter in LETTERS), *words)


if __name__ == "__main__":
    target = Path(__file__).parents[1] / "tokenizer" / "vocab.txt"
    target.write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
    print(f"{len(vocabulary())} word pieces in {target}")
