"""Answers of a model as DICOM objects that an archive stores and a viewer shows (docs/dicom.md)."""
