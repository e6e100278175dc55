"""Sentences that are built from what they mean, so that their reading is known without a grammar (docs/words.md §2)."""

from __future__ import annotations

import random

from xbench_fast.runtime.data.answers.words.grammar import read_words

Said = tuple[str, str, tuple[str, ...]]
"""Finding, presence, places."""

FINDINGS = {
    "effusion": "pleural_effusion",
    "pleural effusion": "pleural_effusion",
    "hazy opacity": "lung_opacity",
    "rib fracture": "rib_fracture",
    "infiltrates": "infiltration",
    "cavity": "lung_cavity",
    **{name: name for name in ("nodule", "consolidation", "pneumothorax", "atelectasis", "fibrosis")},
}
RIGHT, LEFT = ("RU", "RM", "RL"), ("LU", "LM", "LL")
PLACES = {  # before the finding, after it, what is drawn
    "left": ("on the left", LEFT),
    "right-sided": ("on the right side", RIGHT),
    "bilateral": ("in both lungs", RIGHT + LEFT),
    "right upper zone": ("in the right upper lung zone", ("RU",)),
    "LLZ": ("in the lower zone of the left lung", ("LL",)),
    "left mid-zone": ("within the mid zone on the left", ("LM",)),
    "right mid and lower zone": ("in the right mid and lower zones", ("RM", "RL")),
    "bilateral upper zone": ("in the upper zones", ("RU", "LU")),
    "RLL": ("in the right lower lobe", ("R.lower_lobe",)),
    "left upper lobe": ("in the LUL", ("L.upper_lobe",)),
    "lingular": ("in the lingula", ("L.lingula",)),
    "left apical": ("at the left apex", ("L.apex",)),
    "bibasal": ("at both bases", ("R.base", "L.base")),
    "right basal": ("at the right lung base", ("R.base",)),
    "right hilar": ("near the right hilum", ("R.hilum",)),
    "left perihilar": ("in the left perihilar region", ("L.hilum",)),
    "retrocardiac": ("behind the heart", ("L.retrocardiac",)),
}
PRESENT, ABSENT, UNCERTAIN = "present", "absent", "uncertain"
Built = tuple[str, list[Said]]


def one_sentence(rng: random.Random) -> Built:
    """A sentence without its end."""
    (f, a), (g, b), (h, c) = rng.sample(sorted(FINDINGS.items()), 3)
    (front, (behind, at)), (_, (there, other)) = rng.sample(sorted(PLACES.items()), 2)
    nowhere: tuple[str, ...] = ()
    doubt = rng.choice(["possible", "probable", "suspected", "cannot exclude", "suspicious for"])
    no = rng.choice(["no", "there is no", "no evidence of", "without", "negative for", "no new"])
    gone = rng.choice(["is not seen", "is absent", "unlikely", "has resolved", "isn't seen", "- none", "none"])
    open_ = rng.choice(["cannot be excluded", "is suspected", "is not excluded"])
    return rng.choice(
        [
            (f"{f} {behind}", [(a, PRESENT, at)]),
            (f"{front} {f}", [(a, PRESENT, at)]),
            (f"there is {front} {f}, {no} {g} or {h}", [(a, PRESENT, at), (b, ABSENT, nowhere), (c, ABSENT, nowhere)]),
            (f"no {f}, {g} or {h}", [(a, ABSENT, nowhere), (b, ABSENT, nowhere), (c, ABSENT, nowhere)]),
            (f"{no} {f} {behind}", [(a, ABSENT, at)]),
            (f"{no} {front} {f}", [(a, ABSENT, at)]),
            (f"{no} {f}, {g} {behind}", [(a, ABSENT, nowhere), (b, PRESENT, at)]),
            (f"{no} {f} but {front} {g}", [(a, ABSENT, nowhere), (b, PRESENT, at)]),
            (f"{no} {f} or {front} {g}", [(a, ABSENT, nowhere), (b, ABSENT, at)]),
            (f"{doubt} {f} {behind}", [(a, UNCERTAIN, at)]),
            (f"{front} {f}, {doubt} {g}", [(a, PRESENT, at), (b, UNCERTAIN, at)]),
            (f"{f} and {g} {behind}", [(a, PRESENT, at), (b, PRESENT, at)]),
            (f"{front} {f} and {g}", [(a, PRESENT, at), (b, PRESENT, at)]),
            (f"{f} {behind} and {g} {there}", [(a, PRESENT, at), (b, PRESENT, other)]),
            (f"{f} {behind}; {no} {g} {there}", [(a, PRESENT, at), (b, ABSENT, other)]),
            (f"{front} {f} rather than {g}", [(a, PRESENT, at), (b, ABSENT, nowhere)]),
            (f"{f} {gone}", [(a, ABSENT, nowhere)]),
            (f"{f} {open_}", [(a, UNCERTAIN, nowhere)]),
            (f"{f} {behind}, {g} {gone}", [(a, PRESENT, at), (b, ABSENT, nowhere)]),
            (f"no change in {front} {f}", [(a, PRESENT, at)]),
            (f"{f}: {behind}", [(a, PRESENT, at)]),
            (f"{f}: {rng.choice(['none', 'no', 'absent', 'not seen'])}", [(a, ABSENT, nowhere)]),
            (f"{f} is seen. it is {behind}", [(a, PRESENT, at)]),
            (f"{f} is {behind}, not {there}", [(a, PRESENT, at), (a, ABSENT, other)]),
        ]
    )


def test_built_texts_are_read_as_they_were_meant() -> None:
    rng = random.Random(7)
    marks = str.maketrans({" ": "\u00a0", "-": "\u2011"})
    for _ in range(1500):
        built = [one_sentence(rng) for _ in range(rng.randrange(1, 4))]
        mark = rng.choice(["", "- ", "* ", "\u2022 ", "**Findings:** "])
        parts = [text[0].upper() + text[1:] for text, _ in built]
        text = rng.choice([". ", "\n", ".\n", f".\n{mark}", "; "]).join(parts)
        text = rng.choice([f"{text}.", text, mark + text, text.upper(), f"FINDINGS: {text}.", text.translate(marks)])
        found = [(item.finding, item.presence, item.places.names) for item in read_words(text).statements]
        assert found == [said for _, statements in built for said in statements], text
