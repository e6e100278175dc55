"""The table model, one writer per format, and one list of metrics and their words.

table      what a table is
metrics    every number: its key, heading, words, unit, decimals, whether higher is better, and how it is printed
stamps     warning lines above tables
console, markdown_csv, latex    tables -> the terminal, Markdown and CSV, LaTeX; latex_text: signs of LaTeX
"""
