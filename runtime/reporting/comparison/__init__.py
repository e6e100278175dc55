"""Two runs, or two models -> changes, and a gate for continuous integration.

comparison         all cells, corrected for their number
gate               --fail-if
comparison_tables  a comparison -> tables
comparison_record  a comparison -> plain data
"""
