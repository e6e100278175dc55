"""Masks in files -> regions: the one way for all readers.

mask_names     which file is a mask of which image
mask_files     what a PNG file stores
mask_channels  which of it is the mask
mask_reader    what of the mask is the region, and what the file does not say
"""
