"""A run directory -> tables, figures and a page: computed from stored rows alone, without inference.

report         the whole report: reads the run, computes, writes and draws
presentation   the models and datasets shown, in order, and their printed names
printed_cells  numbers -> printed cells with intervals, marks and the paper's value
notes          the lines below tables
..._tables     numbers -> tables: grounding, classes with recognition, differences, native protocols, phrases, boxes
provenance     the tables of coverage and provenance
csv_and_json   numbers -> CSV and report.json
tables/        what a table is, and a writer for each format
comparison/    two runs -> tables of changes, and a gate
studies/       one question about a run each
paper/         what the paper prints
figures/       numbers -> drawings
gallery/       maps -> overlays
page/          index.html; viewing/ is shared with the server's page

The numbers come from results/numbers, differences of models from results/comparing; tables/ writes.
"""
