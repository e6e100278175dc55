"""The words of a trust card: questions, what each verdict says, references, and what may not be claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

USE: Final = "research use; not a medical device"

QUESTIONS: Final[Mapping[int, str]] = {
    1: "Finds the region",
    2: "Answers the image",
    3: "Answers the prompt",
    4: "Depends on what was learnt",
    5: "Shows what the model uses",
    6: "The model uses what the radiologist marked",
    7: "Holds still",
    8: "The same for all",
    9: "Where it fails",
}

SECTIONS: Final[Mapping[int, str]] = {
    1: "docs/trust.md §1.3",
    2: "docs/trust.md §1.3",
    3: "docs/trust.md §1.3, §1.4",
    4: "docs/trust-probes.md §2.3",
    5: "docs/trust-probes.md §3.1",
    6: "docs/trust-probes.md §3.2",
    7: "docs/trust-probes.md §4.2",
    8: "docs/subgroups.md §5.4",
    9: "docs/metrics.md §10",
}

_ARUN: Final = "N. Arun et al., Radiology: Artificial Intelligence 2021, 10.1148/ryai.2021200267"
REFERENCES: Final[Mapping[int, tuple[str, ...]]] = {
    1: (_ARUN,),
    4: ("J. Adebayo et al., NeurIPS 2018, arXiv 1810.03292", _ARUN),
    5: ("V. Petsiuk, A. Das, K. Saenko (RISE), BMVC 2018",),
    7: ("Zhang et al., Radiology: Artificial Intelligence 2024;6:e220221",),
}
"""The literature of a line, where docs/trust.md names some."""

FINDINGS: Final[Mapping[int, Mapping[str, str]]] = {
    1: {
        "pass": "the map finds the region better than chance",
        "fail": "the map does not find the region better than chance",
        "cannot tell": "it cannot be told whether the map finds the region better than chance",
        "void": "too many maps are degenerate to tell whether they find the region",
    },
    2: {
        "pass": "the map finds the region better than the mean map of the finding in other patients",
        "fail": "the map finds the region no better than the mean map of the finding in other patients",
        "cannot tell": "it cannot be told whether the map finds the region better than the mean map of the finding "
        "in other patients",
        "void": "too many maps are degenerate to compare them with those of other patients",
    },
    3: {
        "pass": "the map finds the region better than the maps of other findings in the same image",
        "fail": "the map finds the region no better than the maps of other findings in the same image",
        "cannot tell": "it cannot be told whether the map finds the region better than the maps of other findings in "
        "the same image",
        "void": "too many maps are degenerate to compare them with those of other findings",
    },
    4: {
        "pass": "the map changes, and no longer finds the region, when learnt weights are replaced by random ones",
        "fail": "the map does not depend on what was learnt",
        "cannot tell": "it cannot be told whether the map depends on what was learnt",
        "void": "too many maps are degenerate to tell whether they depend on what was learnt",
    },
    5: {
        "pass": "the map shows what the score rests on better than a random order does",
        "fail": "the map does not show what the score rests on",
        "cannot tell": "it cannot be told whether the map shows what the score rests on",
        "void": "too many maps are degenerate to tell whether they show what the score rests on",
    },
    6: {
        "pass": "the score rests on what the radiologist marked more than on as large a part elsewhere",
        "fail": "the score does not rest on what the radiologist marked",
        "cannot tell": "it cannot be told whether the score rests on what the radiologist marked",
        "void": "too many maps are degenerate to tell",
    },
    7: {
        "pass": "the map holds still under small changes of the image",
        "fail": "the map does not hold still under small changes of the image",
        "cannot tell": "it cannot be told whether the map holds still under small changes of the image",
        "void": "too many maps are degenerate to tell whether they hold still",
    },
    8: {
        "pass": "no gap of pointing was found between the groups that were tested, with narrow intervals",
        "fail": "pointing differs between groups at equal findings and sizes of the region",
        "cannot tell": "it cannot be told whether pointing is the same in all groups",
        "void": "too many maps are degenerate to compare groups",
    },
}
"""Line -> verdict -> the words after "On these n pairs of m patients"."""

CLAIMS: Final = (
    "that a pass makes the map an explanation, causal, or safe for diagnosis",
    "that a map which shows what the model uses is in the right place, or that one in the right place shows it",
    "that there is no bias because no gap between groups is significant",
    "anything beyond the dataset, prompt set, precision and preprocessing of this card",
    "anything from stand-in, randomised or demo weights",
    "that public images were new to the model: many are in the training sets of published models",
)
"""What may not be claimed from a card."""

CHECKLISTS: Final = (
    "Checklists that ask for these lines: Metrics Reloaded (Nature Methods 2024, 10.1038/s41592-023-02151-z), CLAIM "
    "2024 Update (Radiology: Artificial Intelligence), TRIPOD+AI (BMJ 2024;385:e078378)."
)
