"""Annotations in DICOM: which files there are, and what each kind of object says (docs/formats.md §9.10)."""
