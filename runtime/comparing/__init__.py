"""Two runs, or two models -> what changed, with paired tests, and a gate for continuous integration.

matching    which cells of two runs belong together
align       the rows that two cells share, and those that only one has
flips       changes of single rows: hits that flipped, Dice, logits
changes     changes of the numbers of a cell, with intervals and p values
comparison  all cells, corrected for their number
gate        --fail-if
layout      a comparison -> tables
record      a comparison -> plain data
"""
