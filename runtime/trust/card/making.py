"""A report and trust directories -> a card for each model on each dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....engines.errors import ConfigError
from ....metrics_gpu.statistics.intervals import least_replicates
from ...reporting.studies.material import Material, blocks_of, material_of
from ...reporting.tables.stamps import cell_stamps
from ...results.choices import Choices
from ...results.selected_pairs import Resampling, unnamed_lines
from .card import CardLine, Picture, TrustCard
from .failure_lines import failure_line, failures_of
from .group_lines import GroupStudies
from .probe_lines import LINE_OF, command_for, probe_line, prompts_line
from .report_cards import card_appendix
from .stored_lines import asked_of_maps, beside_readers, stored_line
from .trust_results import CellTrust, TrustResults
from .words import USE

if TYPE_CHECKING:
    from ...host.config import DatasetConfig
    from ...reporting.report import Report
    from ...reporting.studies.study_cell import StudyCell
    from ...reporting.studies.study_outcome import StudyOutcome

_OUT: Final = Path("trust")  # as of the command trust


def with_cards(
    report: Report,
    trust: Sequence[Path],
    *,
    folders: Mapping[str, DatasetConfig] | None = None,
    page: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """The report with a trust card for each of its models on each dataset; arguments and errors as of `make_cards`.

    page: also pages and figures of the cards.
    """
    cards = make_cards(report, trust, folders=folders, pictures=page, say=say)
    appendix = card_appendix(cards, page=page, say=say)
    return replace(report, tables=[*report.tables, *appendix.tables], appendix=appendix)


def make_cards(
    report: Report,
    trust: Sequence[Path],
    *,
    folders: Mapping[str, DatasetConfig] | None = None,
    pictures: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> list[TrustCard]:
    """The cards of the models and datasets of a report.

    trust: trust directories; lines of which none has results say so, with the command that makes them. folders: current
    folders of datasets. pictures: whether the cases of line 9 are drawn. say: called with a sentence on each result of
    a trust directory that is not used. Raises ConfigError for a report without intervals, a directory of which nothing
    belongs to a card, and two directories that answer one probe; RunError for a folder that is no trust directory.
    """
    choices = report.results.choices
    if choices.replicates < (least := least_replicates()):
        raise ConfigError(
            f"A trust card needs intervals, and --replicates is {choices.replicates}; give {least} or more."
        )
    results = TrustResults(trust)
    chosen = _pair_choices(report)
    material = material_of(report.run, Resampling(choices.replicates, choices.seed), choices=chosen)
    groups = GroupStudies(folders, stored=not chosen.told)
    cards = []
    for block in blocks_of(material):
        if not block.paired:
            continue
        failures = failures_of(block, folders, pictures=pictures)
        made = _Studies(report, block, results, groups, failures, asked_of_maps(block))
        cards += [made.card(cell, say) for cell in block.paired]
    results.check_used([(cell.model, cell.dataset) for cell in material.paired])
    for cell in material.cells:
        if not cell.n:
            why = f"{chosen.told[0]}, none of its pairs is left" if chosen.told else "none of its pairs has a region"
            say(f"There is no trust card of {cell.model} on {cell.title}: {why}.")
    order = {name: place for place, name in enumerate((*material.models, *material.datasets))}
    return sorted(cards, key=lambda card: (order[card.model], order[card.dataset]))


def _pair_choices(report: Report) -> Choices:
    """Which pairs count in a report; its other choices are not of a card."""
    choices = report.results.choices
    return Choices(pairs=choices.pairs, constant=choices.constant)


@dataclass(frozen=True, eq=False)
class _Studies:
    """What all cards of a block share: its studies, and the results of trust directories. maps: the study of trust."""

    report: Report
    block: Material
    trust: TrustResults
    groups: GroupStudies
    failures: StudyOutcome
    maps: StudyOutcome | None

    def card(self, cell: StudyCell, say: Callable[[str], None]) -> TrustCard:
        block = self.block
        entry = cell.rows.entry
        trust = self.trust.of_cell(cell, block.path / str(entry["file"]))
        for why in dict.fromkeys(trust.faults.values()):
            probes = ", ".join(probe for probe, each in trust.faults.items() if each == why)
            say(f"{cell.model} on {cell.title}, {probes}: not on the card: {why}.")
        command = command_for(cell, block, trust, self.trust.out_for(cell, _OUT))
        first, second, third = (stored_line(number, cell, block, self.maps) for number in (1, 2, 3))
        beside, remarks = beside_readers(cell, block)
        last, pictures = failure_line(cell, block, self.failures)
        lines: list[CardLine] = [
            replace(first, numbers=(*first.numbers, *beside)),
            second,
            prompts_line(third, cell, trust, command),
            *(probe_line(probe, cell, trust, command) for probe in LINE_OF),
            self.groups.line(cell, block),
            last,
        ]
        facts = [*self._told(), block.sampling.fact, *remarks, *_of_cell(self.failures.remarks, cell, pictures)]
        return TrustCard(
            cell.model,
            cell.dataset,
            cell.title,
            self._head(cell, trust),
            self._stamps(cell),
            tuple(lines),
            pictures,
            tuple(dict.fromkeys(facts)),
        )

    def _told(self) -> Iterator[str]:
        """The choices of the report about pairs, and what they do not reach."""
        for line in _pair_choices(self.report).told:
            yield f"{line}; what trust directories hold, and the commands named on the lines, rest on all pairs"

    def _stamps(self, cell: StudyCell) -> tuple[str, ...]:
        values = self.report.results.cells[cell.model, cell.dataset]
        return (*cell_stamps([values]), *unnamed_lines([(cell.title, cell.rows.unnamed)]))

    def _head(self, cell: StudyCell, trust: CellTrust) -> dict[str, str]:
        """What the card is of; docs/trust-card.md §8 lists the names."""
        entry: Mapping[str, Any] = cell.rows.entry
        made = entry["ingredients"]
        saliency = str(entry.get("saliency_map", "")) or ("not described" if cell.has_thresholds else "none")
        tested: Mapping[str, Any] = next((probe.data for probe in trust.entries.values()), {})
        method = tested.get("saliency", {})
        if method.get("description"):
            saliency = f"{method.get('kind', '')}, {saliency}: {method['description']}".removeprefix(", ")
        prompts = entry.get("prompts", {}).get("set") or tested.get("prompt_set")
        digest = made.get("prompt_set")
        return {
            "model": cell.model,
            "bundle": str(made.get("bundle") or "none"),
            "weights": cell.weights,
            "saliency": saliency,
            "prompt set": f"{prompts or 'not named'} ({digest})" if digest else "none",
            "dataset": f"{cell.title} ({cell.dataset})",
            "content of the dataset": str(cell.digest or "not known"),
            "protocol": cell.rows.protocol,
            "engine": str(made["engine"]),
            "pairs": str(cell.n),
            "patients": str(len(set(cell.patient_of.tolist()))),
            "degenerate maps": str(int(cell.counts.degenerate.sum())) if cell.has_thresholds else "none: no maps",
            "use": USE,
        }


def _of_cell(remarks: Sequence[str], cell: StudyCell, pictures: Sequence[Picture]) -> list[str]:
    """Remarks of the study of failures on this result, and on the images of its dataset if it shows some."""
    names = (f"{cell.dataset}: ", f"No overlays of {cell.model} on {cell.title}: ") if pictures else ()
    return [line for line in remarks if line.startswith(names)]
