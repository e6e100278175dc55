"""What an evaluation reads: images, datasets, files of predicted boxes, and what is prepared of them.

images    image files -> pixels
datasets  annotations -> cases with regions
answers   files of predicted boxes -> boxes of pairs
cache     prepared images and masks, kept between runs
"""
