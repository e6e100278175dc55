"""A run directory -> tables, figures, overlays and a page. Numbers come from stored rows; no model runs."""
