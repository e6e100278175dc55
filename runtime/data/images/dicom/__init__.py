"""DICOM files -> pixels (docs/datasets.md §0.2).

open_dicom     opens a file; the only place where pydicom reads
elements       the elements of a file as they are stored
pixel_frames   the pixels of a file, frame by frame: items, lengths, byte order
codecs         a decoder for each transfer syntax
stored_values  what any decoder returns -> stored values
lossless       differences of lossless JPEG that were taken modulo 2^P
run_lengths    run-length coding
lookup_tables  lookup tables
grey_levels    stored values -> grey levels
dicom_grey     a film -> 8-bit grey
"""
