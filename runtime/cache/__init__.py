"""Images decoded and resized once, kept on disk and shared by all models of one geometry.

store        one geometry: reads the images that are ready, decodes and stores the others
layout       the files of a store: names, content, opening and rebuilding
locks        who may write to a store, and when it may be deleted
preparing    the stores of a dataset in several geometries, and decoding before an evaluation
eviction     all stores of a folder: listing, deleting, a size limit
"""
