"""The evaluation loop: bundles x datasets -> one Parquet file of counts per cell.

evaluate    plans an evaluation and runs it, for the command line and the Python interface
options     how a run computes its cells
pairing     which bundles and datasets a run has, and the findings they share
runner      all cells of a run; a cell that fails does not stop the others
live        a callable of the user's program as a model
sources     where pixels come from: prepared images or the files themselves
decoding    one case -> its model input and its regions
cell        one cell: chunks, part files, merge
scoring     scores and regions -> rows
measure     maps and regions -> the counts of rows, by the protocol
finishing   the state of a cell in run.json, and what the user is told of it
progress    bars on a terminal, plain lines elsewhere
gpu/        the same loop with an engine that leaves its scores on the device
reference/  baselines and folders of saliency maps
"""
