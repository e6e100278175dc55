"""The table model, one writer per format, and one list of metrics and their words.

table      what a table is
metrics    every number: its key, heading, words, unit, decimals, and whether higher is better
printed    how numbers are printed; stamps: warning lines above tables
console, markdown, latex    tables -> the terminal, Markdown, LaTeX; latex_text: signs of LaTeX
csv_text   rows -> CSV
"""
