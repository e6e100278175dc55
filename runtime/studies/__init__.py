"""Studies of one run or several: stored counts and maps -> one question answered, as tables, CSV, JSON and figures.

material     finished cells with their patients, ready to be resampled
outcome      what a study found, and the files it is written to
writing      how its numbers stand in tables
figures/     its drawings
kept_maps    the maps a run keeps, or why it keeps none
variants     cells of the same images and classes side by side: prompt sets, resolutions
differences  their values and differences as rows; side_by_side: as tables

thresholds   how much the score depends on the threshold, and what delta Dice is
correlation  does recognition predict grounding
strata       grounding by size of the region
failures     the best and worst classes and cases, with overlays
prompts      several prompt sets side by side
resolution   several input sizes side by side
calibration  what calibration on other patients gives back of delta Dice
"""
