"""Overlays to look at: a few cases of every class, the same for all models, with what is needed to redraw the counts.

model      what a gallery holds
choice     which cases: the best, the median, the worst, hits, misses, and where models disagree
candidates the pairs of a dataset in all models, as the report counts them
pictures   the radiographs, from the prepared images or the dataset's files
overlays   the maps, regions and counts of the chosen cases
build      a run -> a gallery within a budget of bytes
payload    a gallery -> plain data for the page
"""
