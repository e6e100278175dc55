"""Annotations in DICOM: which files there are, and what each kind of object says (docs/datasets.md §9.10)."""
