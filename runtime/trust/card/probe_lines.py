"""Lines 3 to 7 of a card, from trust directories."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ....metrics_gpu.trust.faithfulness import FILLS
from ...host.protocols import find_protocol
from ...reporting.studies.material import Material
from ...reporting.studies.readers.ceiling import is_reader
from ...reporting.studies.study_cell import StudyCell
from ..probes.probe import PROBES
from .card import CardLine, CardNumber, Unit, judged_line, unjudged_line
from .trust_results import CellTrust

LINE_OF: Final[Mapping[str, int]] = {"randomisation": 4, "deletion": 5, "region": 6, "stability": 7}
"""The probe that answers a line."""
PROMPTS: Final = "prompts"
"""The probe that asks for all other findings, absent ones too; line 3 takes it where there is one."""

_UNITS: Final[Mapping[int, Unit]] = {
    3: "average precision",
    4: "similarity",
    5: "probability",
    6: "probability",
    7: "share",
}
_LABELS: Final[Mapping[str, str]] = {
    "prompts_average_precision": "AP - all other findings",
    "randomisation_spearman": "Spearman, random weights",
    "randomisation_ssim": "SSIM, random weights",
    "randomisation_roc_auc": "ROC AUC, random weights",
    **{f"{mode}_{fill}": f"{mode}, {fill}" for mode in ("deletion", "insertion") for fill in FILLS},
    **{f"region_{fill}": f"region filled, {fill}" for fill in FILLS},
}
"""The question of a probe -> the label of its number; of others the question itself."""
_NO_MODEL: Final = {
    "baseline": "a baseline is no model, which could be asked about other images",
    "maps": "the maps are from a folder, and no model is there to be asked",
    "boxes": "the boxes are from a file, and no model is there to be asked",
    "live": "a model called from Python has no bundle; export one and evaluate that",
}


def why_no_passes(cell: StudyCell, number: int) -> str:
    """Why a line that needs forward passes does not apply to a result; empty if it does."""
    if is_reader(cell):
        return "a reader is no model, which could be asked about other images"
    if cell.weights in _NO_MODEL:
        return _NO_MODEL[cell.weights]
    entry = cell.rows.entry["ingredients"]
    if "phrases" in entry:
        return "xbench-fast trust asks for findings, and this dataset asks phrases"
    if find_protocol(cell.rows.protocol).sweeping.upsample != "bilinear" or cell.rows.equalised:
        return (
            f"xbench-fast trust prepares images and reads maps as the default protocol does, and this result is by "
            f"{cell.rows.protocol}; evaluate by the default protocol"
        )
    if number == 4 and str(entry["engine"]).endswith(" int8"):
        return "the weights are in INT8, so that none can be replaced by random ones; test the bundle in FP32"
    return ""


def command_for(cell: StudyCell, block: Material, trust: CellTrust, out: Path) -> str:
    """The command that runs every probe of the card that is missing, so that they are one family of tests."""
    missing = [
        name
        for name in PROBES.names()
        if name in (*LINE_OF, PROMPTS) and name not in trust.entries and not why_no_passes(cell, LINE_OF.get(name, 3))
    ]
    made, config = cell.rows.entry["ingredients"], block.run.data["config"]
    words = ["xbench-fast", "trust", "--model", str(made.get("model", cell.model)), "--dataset", cell.dataset]
    source = config.get("datasets", {}).get(cell.dataset, {})
    if config.get("file"):
        words += ["--config", str(config["file"])]
    elif source.get("root"):
        words += ["--data", f"{cell.dataset}={source['root']}"]
        options = dict(source.get("options") or {})
        if source.get("reader") not in (None, cell.dataset):
            options = {"reader": source["reader"], **options}
        for key, value in options.items():
            words += ["--data-option", f"{cell.dataset}.{key}={value}"]
    if made.get("limit") is not None:
        words += ["--limit", str(made["limit"])]
    for name in missing:
        words += ["--probe", name]
    return shlex.join([*words, "--out", str(out)])


def probe_line(probe: str, cell: StudyCell, trust: CellTrust, command: str) -> CardLine:
    """The line that a probe answers."""
    number = LINE_OF[probe]
    if why := why_no_passes(cell, number):
        return unjudged_line(number, "not applicable", why)
    if why := trust.faults.get(probe, ""):
        return unjudged_line(number, "not run", why, command=command)
    entry = trust.entries.get(probe)
    if entry is None:
        return unjudged_line(number, "not run", f"no trust directory has the probe {probe}", command=command)
    records = trust.on_line(number, probe)
    if not records:
        why = "no image could be asked about"
        if probe == "randomisation" and any(entry.data["facts"].get("steps", ())):
            why = "the cascade was not among its modes; run it with --mode cascade"
        return unjudged_line(number, "not run", why, command=command, table=entry.table)
    notes = [*entry.data["notes"], *_engine(entry.data, cell)]
    if probe == "stability" and "repeat" in trust.entries:
        notes += trust.entries["repeat"].data["notes"]
    told = _joined(_told(number, entry.data["facts"]), _fewer(entry.data, cell))
    return judged_line(number, _numbers(records), table=entry.table, notes=notes, told=told)


def prompts_line(stored: CardLine, cell: StudyCell, trust: CellTrust, command: str) -> CardLine:
    """Line 3: by the probe of all other findings where there is one, else `stored`, by maps of present findings."""
    records, why = trust.on_line(3, PROMPTS), why_no_passes(cell, 3)
    if records and not why:
        entry = trust.entries[PROMPTS]
        beside = [_without_verdict(item) for item in stored.numbers if item.word is not None]
        notes = [*entry.data["notes"], *stored.notes, *_engine(entry.data, cell)]
        return judged_line(
            3,
            [*_numbers(records), *beside],
            table="; ".join(filter(None, (entry.table, stored.table))),
            notes=notes,
            told=_joined("the other findings are all of the prompt set, absent ones too", _fewer(entry.data, cell)),
        )
    if stored.word in ("not run", "not applicable"):
        return stored
    notes = ["the other findings are those with a region in the same image; maps of absent findings ask harder"]
    if PROMPTS in trust.entries:
        notes += [f"the probe {PROMPTS} is not used: {why}"] if why else trust.entries[PROMPTS].data["notes"]
    elif PROMPTS in trust.faults:
        notes.append(f"the probe {PROMPTS} is not used: {trust.faults[PROMPTS]}")
    elif PROMPTS in PROBES.names() and not why:
        return replace(stored, notes=(*notes, *stored.notes), command=command)
    return replace(stored, notes=(*notes, *stored.notes))


def _without_verdict(item: CardNumber) -> CardNumber:
    return replace(item, what=f"{item.what}, by stored maps: {item.word}", word=None)


def _numbers(records: Sequence[Mapping[str, Any]]) -> list[CardNumber]:
    return [
        CardNumber.of(
            record,
            "value",
            what=record["text"],
            label=_LABELS.get(record["question"], record["question"].replace("_", " ")),
            unit="ROC AUC" if "roc_auc" in record["question"] else _UNITS[record["line"]],
            word=record["word"],
            left_out={why: count for why, count in record["left_out"].items() if count},
            degenerate=record["degenerate"],
        )
        for record in records
    ]


def _told(number: int, facts: Mapping[str, Any]) -> str:
    """The end of a line's finding."""
    if number == 4:
        return f"{facts['layers_of_the_score_only']} of {facts['layers']} layers decide the score but not the map"
    if number == 7:
        flips = {
            change: told["flip"]["value"]
            for change, told in facts.items()
            if change != "flip" and isinstance(told, Mapping) and isinstance(told.get("flip"), Mapping)
        }
        flips = {change: value for change, value in flips.items() if value is not None}
        if flips:
            worst = max(flips, key=lambda change: flips[change])
            return f"the worst is {worst}, which changes {flips[worst]:.1%} of the hits"
    return ""


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _fewer(data: Mapping[str, Any], cell: StudyCell) -> str:
    """Which findings were asked, and from which cases images were drawn, where those of the run are more."""
    restrictions, (probe, run) = [], (each["ingredients"] for each in (data, cell.rows.entry))
    asked, all_of_them = list(probe["findings"]), list(run["findings"])
    if len(asked) != len(all_of_them):
        restrictions.append(f"asked of {len(asked)} of {len(all_of_them)} findings: {', '.join(asked)}")
    if probe.get("limit") != run.get("limit"):
        restrictions.append(f"drawn from the first {probe['limit']} cases")
    return _joined(*restrictions)


def _engine(data: Mapping[str, Any], cell: StudyCell) -> list[str]:
    engine, engine_of_run = data["engine"], cell.rows.entry["ingredients"]["engine"]
    return [] if engine == engine_of_run else [f"computed by {engine}, and the run by {engine_of_run}"]
