"""Differences of two results and their tests, for reports, `compare` and studies.

difference         a number of two results: paired bootstrap, DeLong, Holm's correction
model_differences  every two models of a report, each on what both have
cell_variants      several cells side by side, each minus the first: prompt sets, input sizes

Two runs, or two models -> changes, and a gate for continuous integration:

cell_pairs         which cells of two runs belong together
align              the rows that cells share, and those that only one of two has
flips              changes of single rows: hits that flipped, Dice, logits
cell_changes       changes of the numbers of a cell
comparison         all cells, corrected for their number
gate               --fail-if
comparison_tables  a comparison -> tables
comparison_record  a comparison -> plain data
"""
