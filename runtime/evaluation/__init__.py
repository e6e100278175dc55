"""The evaluation loop: bundles x datasets -> one Parquet file of counts per cell.

run_evaluation  plans an evaluation and runs it, for the command line and the Python interface
cell_options    the options of a run for its cells
pairing         the bundles and datasets of a run, and the findings that they share
runner          all cells of a run; a cell that fails does not stop the others
live_model      a callable of the user's program, evaluated as a model
cell_sources    the source of pixels: prepared images or the image files
decoded_case    one case -> its model input and its regions
cell            one cell: chunks, part files, merge
scoring         scores and regions -> rows
measure         maps and regions -> the counts of rows, by the protocol
finishing       the state of a cell in run.json, and the messages about it
progress        bars on a terminal, plain lines elsewhere
gpu/            the same loop with an engine that keeps its scores on the GPU
reference/      baselines and folders of saliency maps
"""
