"""Studies of one run or several: stored counts and maps -> the answer to one question: tables, CSV, JSON, figures.

material     finished cells with their patients, ready to be resampled
outcome      what a study found, and the files it is written to
writing      its numbers as table cells
figures/     its drawings
anatomy/     what the study of errors judges, and its numbers
kept_maps    the maps a run keeps, or why it keeps none; overlays: cases as pictures
variants     cells of the same images and classes side by side: prompt sets, resolutions
differences  their values and differences as rows; side_by_side: as tables

thresholds   how much the score depends on the threshold, and what delta Dice is
correlation  whether recognition predicts grounding
strata       grounding by size of the region
failures     the best and worst classes and cases, with overlays
readers/     agreement between readers, and models beside them
errors       the kinds of errors of boxes and of cut maps, and the gain if one is fixed
subgroups/   measures by view, sex, age and other attributes, and the gaps between groups
prompts      several prompt sets side by side
resolution   several input sizes side by side
calibration  how much of delta Dice calibration on other patients recovers
"""
