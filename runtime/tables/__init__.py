"""One model of a table, one writer per format, and one list of metrics and their words.

table      what a table is
metrics    every number: its key, heading, words, unit, decimals, and whether more is better
printed    how numbers are printed; stamps: the lines that say what they are worth
console, markdown, latex    tables -> the terminal, Markdown, LaTeX
csv_text   rows -> CSV
"""
