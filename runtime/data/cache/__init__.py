"""Images decoded and resized once, and regions drawn once, kept on disk and shared by models.

image_store   one geometry: reads the images that are ready, decodes and stores the others
store_layout  the folder of a store, what its files mean, and its index
store_files   the open files of a store: records with checksums, pixels and reasons; opening and rebuilding
ready         many prepared images at once
checksums     the checksum of a record and its content, compiled
mask_store    the regions of a dataset on the evaluation grid
locks         who may write to a store, and when it may be deleted
preparing     the stores of a dataset in several geometries, and decoding before an evaluation
eviction      all stores of a folder: listing, deleting, a size limit
"""
