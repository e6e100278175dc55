"""Commands about DICOM objects of films: written to a folder, or sent to an archive (docs/dicom.md)."""
