"""The numbers XBench (arXiv 2510.19599) prints, as data with their known problems.

table1.csv   grounding of seven models on seven datasets
classes.csv  pointing per class, the paper's Tables 2 to 5, with the pairs its percentages fit
means.csv    the means printed in Tables 2 to 5, of which many are not the means of their own cells
quoted.csv   numbers of the text and of Figures 3 and 4
"""

from __future__ import annotations

from .paper_numbers import MARK, Paper, Printed, paper, why_apart, why_mean_apart

__all__ = ["MARK", "Paper", "Printed", "paper", "why_apart", "why_mean_apart"]
