"""Studies of one run or several: stored counts and maps -> the answer to one question: tables, CSV, JSON, figures.

material        finished cells with their patients, ready to be resampled
study_outcome   the result of a study, and the files it is written to
columns         one description of the columns of tables and rows; writing: numbers as cells
figures/        its drawings
anatomy/        what the study of errors judges, and its numbers
kept_maps       the maps a run keeps, or why it keeps none; overlays: cases as pictures
variants        cells of the same images and classes side by side: their values and differences, as rows and tables

thresholds_study   how much the score depends on the threshold, and what delta Dice is
fixed_thresholds   the score at thresholds that were named beforehand
gap/               findings that are recognised and not grounded, and the reverse
groups/            contrasts of groups of models over patients and over models
correlation_study  whether recognition predicts grounding
strata_study       grounding by size of the region
failures_study     the best and worst classes and cases, with overlays
readers/           agreement between readers, and models beside them
errors_study       the kinds of errors of boxes and of cut maps, and the gain if one is fixed
asked/             answers of models that `ask` asked: refusals, tokens, latency, cost
subgroups/         measures by view, sex, age and other attributes, and the gaps between groups
variant_studies    several prompt sets, or several kinds of maps, side by side; wording/: what wording changes
resolution_study   several input sizes side by side; compared_variants: what these three report
calibration_study  how much of delta Dice calibration on other patients recovers
"""
