"""Images decoded and resized once, and regions drawn once, kept on disk and shared by models.

store        one geometry: reads the images that are ready, decodes and stores the others
layout       the files of a store: names, content, opening and rebuilding
records      the record of a case, and its checksum
masks        the regions of a dataset on the evaluation grid
locks        who may write to a store, and when it may be deleted
preparing    the stores of a dataset in several geometries, and decoding before an evaluation
eviction     all stores of a folder: listing, deleting, a size limit
"""
