"""Stored results: what an evaluation writes, and what every table, figure and test is computed from.

schema          the row of a result, its version, and former names of columns
storage         atomic files and part files; handles a full disk
run_directory   a run directory open for writing, and its lock
run_json        run.json is read and checked
cell_key        what a cell's result depends on, as one hash
loaded_dataset  a dataset opened for an evaluation: its cases and digest
run_outcome     how the cells of a run ended
load, maps      result files -> arrays: counts and scores; maps and regions
choices, pairs  the options of a report, and the pairs that it counts, with the draws of patients that models share
image_identity  which images of several results are the same: case, file and patient
comparability   the basis of numbers (protocol, images, labels, pairs), and the rows that several results share
numbers/        the numbers of a cell and of a run
runs/           shards, merging them, and the removal of cells
"""
