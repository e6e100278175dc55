"""The evaluation loop: bundles x datasets -> one Parquet file of counts per cell.

schema      the row of a result and its version
pairing     which cells a run has: bundles x datasets, and the findings they share
content     what a cell's result depends on, as one hash
decoding    images -> pixels and masks, ahead of the engine, bounded
sources     where pixels come from: prepared images or the files themselves
scoring     engine scores + masks -> rows
measure     maps + regions -> the counts of rows, by the protocol
cell        one cell: chunks, part files, merge
baselines   reference maps that see no image, and their rows
map_files   a folder of saliency maps
references  models that are no bundles: baselines and folders of maps
reference_cell   one cell of such a model
preparing   decoding a dataset ahead of any evaluation
storage     atomic files, part files, the one place that meets a full disk
run_content  what run.json must hold
rundir      run.json and the lock
options     how a run computes its cells, and what became of them
finishing   what becomes of a cell, in run.json and for the user
sharding    a part of every dataset for each of several processes
merging     shards -> one run directory
runner      all cells of a run; a cell that fails does not stop the others
progress    bars on a terminal, plain lines elsewhere
"""
