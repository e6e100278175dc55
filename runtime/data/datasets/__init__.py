"""Annotations -> cases and regions, and regions -> masks. One file per dataset; `registry` lists the readers.

dataset                      what a dataset delivers: cases, regions, notes
region_boxes, region_shapes  boxes; polygons, ellipses and run lengths; how each is drawn into a mask
region_grid                  a region on the evaluation grid
reader_consensus             one region from the boxes of several radiologists
pixels                       where the pixels of a case come from
files, mask_run_lengths      reading annotation files and run-length codes
masks/                       masks in files: which files, what they store, what of it is the region
placement                    whether a region lies in its image
attributes/                  view, sex, age and the like, for those who ask
formats/                     any dataset in a common format
checking/                    counts of a dataset's content and of its problems
"""
