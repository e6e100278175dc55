"""Pointing game, Dice and IoU from counts; thresholds, protocols and size strata."""
