"""Study of subgroups: do maps serve everybody alike? (docs/subgroups.md §5)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .....engines.errors import ConfigError, RunError
from .....engines.registry import did_you_mean
from ....host.config import DatasetConfig
from ...figures.study_figures import draw_gaps
from ...tables.table import Table
from ..material import Material
from ..study_outcome import StudyOutcome
from .grouping import groupings
from .measured import grouped_cell
from .subgroup_sources import attributes_digest, attributes_of, case_ids, given_tables
from .subgroup_tables import summary_table, tables_of


def study_subgroups(
    material: Material,
    *,
    by: Sequence[str] = (),
    tables: Sequence[str] = (),
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> StudyOutcome:
    """Measures by group and gaps between groups, of each model on each dataset.

    by: only these attributes. tables: [NAME=]FILE with attributes of the dataset NAME. datasets: current folders of
    datasets, used instead of the run's configuration. Raises ConfigError for an attribute that no dataset has and for
    tables that fit no dataset, DataError for a table that cannot be read, and RunError where no dataset has attributes.
    """
    names = tuple(dict.fromkeys(cell.dataset for cell in material.paired))
    of_run = (*names, *(cell.dataset for cell in material.elsewhere if cell.n))
    files = given_tables(tables, tuple(dict.fromkeys(of_run)))
    described, remarks = {}, []
    for name in names:
        attributes, notes = attributes_of(material, name, datasets or {}, files.get(name))
        remarks += notes
        if attributes is not None and attributes.names:
            described[name] = attributes
    if not described:
        why = "; ".join(line.rstrip(".") for line in remarks) or "no pair has a region"
        raise RunError(f"{material.path} has no results on cases with attributes: {why}.")
    attribute_names = dict.fromkeys(name for attributes in described.values() for name in attributes.names)
    for attribute in by:
        if attribute not in attribute_names:
            raise ConfigError(f"No case has an attribute '{attribute}': {did_you_mean(attribute, attribute_names)}.")
    groups: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    shown: list[Table] = []
    for name, attributes in described.items():
        divisions, notes = groupings(attributes, case_ids(material, name), tuple(by))
        remarks += [f"{name}: {line}" for line in notes]
        cells = [
            grouped_cell(cell, material.run, divisions, material.sampling.level)
            for cell in material.paired
            if cell.dataset == name and divisions
        ]
        remarks += [line for cell in cells for line in cell.remarks]
        cell_rows = [row for cell in cells for row in cell.groups], [row for cell in cells for row in cell.gaps]
        summary += [cell.summary for cell in cells if cell.summary is not None]
        groups, gaps = groups + cell_rows[0], gaps + cell_rows[1]
        if cells:
            shown += tables_of(material, name, attributes.source, *cell_rows)
    configured = {name: config.attributes for name, config in (datasets or {}).items() if config.attributes}
    tables_of_names = {
        kind: {name: str(path.absolute()) for name, path in paths.items() if name in described}
        for kind, paths in (("tables", files), ("configured", configured))
    }
    digests = {name: attributes_digest(material, name, attributes) for name, attributes in described.items()}
    basis = material.basis((row["model"], row["dataset"]) for row in summary)
    sources = "; ".join(f"{material.title(name)}: {attributes.source}" for name, attributes in described.items())
    return StudyOutcome(
        name="subgroups",
        title="Subgroups",
        facts=(f"attributes: {sources}", material.sampling.fact, *material.unfinished),
        tables=(summary_table(material, summary), *shown) if summary else (),
        data={"summary": summary, "groups": groups, "gaps": gaps},
        settings={"by": list(by), **tables_of_names, **material.sampling.settings},
        remarks=tuple(dict.fromkeys(remarks)),
        results=[{**each, "attributes": digests[each["dataset"]]} for each in basis],
    ).with_figures(lambda: draw_gaps(gaps, material))
