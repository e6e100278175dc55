"""A run directory -> tables, figures and a page: a pure function of stored rows, nothing is inferred again.

load, maps  result files -> arrays; maps and regions are read only where they are asked for
choices     what a report can be asked to do otherwise
pairs       the pairs of a cell as the choices count them
patients    the patients of a dataset and their draws
shared      what numbers rest on, and what of it two cells share
values      arrays -> numbers of a cell; numbers: their names
spread      arrays -> bootstrap replicates and intervals of a cell
compute     a run -> results
results     the numbers of all cells, and means over datasets
paper/      what the paper prints

table       what a table is
cells, notes, printed   numbers -> printed cells, the lines below tables, digits
grounding_tables, class_tables, recognition_tables, difference_tables, native, provenance   -> tables
tables      all of them in order
stamps      the line that says what the numbers are worth
markdown, latex, console, files, document    tables -> tables.md, tables.tex, the terminal; numbers -> CSV, report.json
figures/, gallery/, page/   numbers and maps -> drawings, overlays, index.html
illustrate  writes those three
report      the one place that reads, computes and writes
"""
