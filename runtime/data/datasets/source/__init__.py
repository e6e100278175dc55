"""The files of a dataset as they are on disk: folders listed, names of images resolved, tables and documents parsed.

Every reader takes its files from here, so that a rule on files holds in each of them (docs/datasets.md §0.1). A test
fails for a reader that opens, lists or parses a file by itself.

listing      the files below a folder; hidden ones are none
image_names  names of images as annotation tools write them -> paths below their folder, ids, rows of tables
image_index  the images of a folder, found by these names
documents    text, JSON and YAML, strictly
csv_files    CSV with any separator
native_sizes sizes of images of which there are resized copies
csv_cells  cells that say nothing, and labels
spelling   names of classes that differ in case, blanks or letter forms alone
"""
