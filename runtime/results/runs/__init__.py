"""Whole run directories: `shards` of one for several processes, `merging` them into one, `removal` of cells."""
