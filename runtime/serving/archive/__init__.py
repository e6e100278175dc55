"""Films of an archive through a model and the answers back into it, by DICOMweb (docs/pacs.md)."""
