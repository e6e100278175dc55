"""What reading answers in words costs: 12,601 reports of 60 words, ten classes of each, and a text of twice the length.

    python benchmarks/words_run.py [--reports 12601] [--json FILE]

The reports are made of 40 sentences, drawn at random; each has at least 60 words. Their language, sections, statements
and places are read, then the answers of ten classes are taken from them, as `eval` does with a line without a finding.
Seconds are processor time of this process. The long text is as many of the sentences as are 160 kB, and then twice as
many; the ratio of both is 2 where the time is linear.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import clocked
from xbench_fast.runtime.data.answers.words.class_answers import class_answer
from xbench_fast.runtime.data.answers.words.grammar import read_words

WORDS, LONG, ROUNDS = 60, 160_000, 5
CLASSES = (
    "Atelectasis", "Calcification", "Consolidation", "Effusion", "Emphysema", "Fibrosis", "Fracture", "Mass", "Nodule",
    "Pneumothorax",
)  # fmt: skip
STARTS = (
    "There is",
    "No evidence of",
    "Possible",
    "No change in the",
    "Small",
    "Findings suggestive of",
    "Left",
    "Bilateral",
)
ENDS = (
    "consolidation in the right lower zone, without pleural effusion or pneumothorax.",
    "pleural effusion, larger on the right, and the heart size is normal.",
    "nodule in the left upper lobe (8 mm), otherwise the lungs are clear.",
    "opacities in both bases, most likely atelectasis; rib fractures are not seen.",
    "fibrosis from the right apex to the mid zone but no mass and no calcification.",
)


def reports(count: int, rng: random.Random) -> Iterator[str]:
    """Texts of at least 60 words."""
    sentences = [f"{start} {end}" for start in STARTS for end in ENDS]
    for _ in range(count):
        text = "FINDINGS:"
        while len(text.split()) < WORDS:
            text += f" {rng.choice(sentences)}"
        yield text


def answered(texts: Sequence[str]) -> None:
    for text in texts:
        reading = read_words(text)
        for name in CLASSES:
            class_answer(reading, name, asked=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reports", type=int, default=12_601)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    load, rng = round(os.getloadavg()[0], 2), random.Random(0)
    texts = list(reports(options.reports, rng))
    answered(texts[:10])
    cpu = clocked(partial(answered, texts)).cpu
    long = " ".join(reports(LONG // 400, rng))[:LONG]
    once, twice = (median(clocked(partial(read_words, text)).cpu for _ in range(ROUNDS)) for text in (long, 2 * long))
    figures = {
        "load_average_before": load,
        "reports": len(texts),
        "classes": len(CLASSES),
        "words_per_report": round(sum(len(text.split()) for text in texts) / len(texts), 1),
        "cpu_s": round(cpu, 2),
        "ms_per_report": round(1000 * cpu / len(texts), 2),
        "long_text_bytes": len(long),
        "long_text_cpu_s": round(once, 2),
        "twice_the_text": round(twice / once, 2),
    }
    for name, value in figures.items():
        print(f"{name:<20} {value}")
    if options.json:
        write_record(options.json, figures)


if __name__ == "__main__":
    main()
