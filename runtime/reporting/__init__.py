"""A run directory -> tables, figures and a page: computed from stored rows alone, without inference.

report       the whole report: reads the run, computes, writes and draws
presentation the models and datasets shown, in order, and their printed names
cells        numbers -> printed cells with intervals, marks and the paper's value; notes: the lines below tables
grounding_tables, class_tables (with recognition), difference_tables, native_tables, phrase_tables, box_tables -> tables
provenance   the tables of coverage and provenance
data_files   numbers -> CSV and report.json
paper/       what the paper prints
figures/, gallery/, page/    numbers and maps -> drawings, overlays, index.html

The numbers come from runtime/results/numbers, differences of models from runtime/comparing; runtime/tables writes.
"""
