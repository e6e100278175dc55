"""Readers of file formats that any dataset can have. One file per format."""
