"""A run directory -> tables. Everything here is a pure function of stored counts; nothing is inferred again.

load        result files -> arrays
values      arrays -> numbers of a cell
results     the numbers of all cells
printed     how a number is printed
table       what a table is
tables      numbers -> Table 1 and the per-class tables
recognition_tables    numbers -> recognition and coverage
stamps      the line that says what the numbers are worth
markdown, console, files    tables -> report.md, the terminal, CSV and JSON
"""
