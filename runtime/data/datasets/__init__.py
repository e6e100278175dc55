"""Annotations -> cases and regions, and regions -> masks. One file per dataset; `dataset_registry` lists the readers.

dataset                      what a dataset delivers: cases, regions, notes
options                      the options of a reader, checked
region_boxes, region_shapes  boxes; polygons, ellipses and run lengths; how each is drawn into a mask
region_grid                  a region on the evaluation grid
pixels                       where the pixels of a case come from
file_rows, mask_run_lengths  rows of annotation files, and run-length codes
masks/                       masks in files: which files, what they store, what of it is the region
source/                      files as they are on disk: tables, documents, folders of images
attributes/                  view, sex, age and the like, for those who ask
phrases/                     datasets that ask a phrase for each finding
readers/                     several readers of an image, and what a further reader marked
formats/                     any dataset in a common format
checking/                    counts of a dataset's content and of its problems
"""
