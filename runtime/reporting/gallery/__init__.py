"""The gallery of overlays: a few cases of every class, the same for all models, with the data to redraw the counts.

model           what a gallery holds, and the same as plain data for the page
choice          the pairs of a dataset in all models, and which are shown: the best, the median, the worst, hits, misses
pictures        the radiographs in their native size, found by the hashes of what was read; as its reader names them
                for a dataset whose files changed, or that asks phrases
small_pictures  those whose native ones do not fit, from the prepared images or the files
overlay         maps over radiographs: colours and outlines, also for the server
assembly        a run -> a gallery within a budget of bytes
"""
