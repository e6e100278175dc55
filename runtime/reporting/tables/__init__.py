"""The table model, one writer per format, and one list of metrics and their words.

table         what a table is
metric_names  every number: its key, heading, words, unit, decimals, whether higher is better, and how it is printed
stamps        warning lines above tables
console       tables -> the terminal
markdown_csv  tables -> Markdown and CSV
latex         tables -> LaTeX; latex_text: signs of LaTeX
"""
