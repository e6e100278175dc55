"""DICOM files -> pixels (docs/datasets.md §0.2).

reading      opens a file; the only place where pydicom reads
elements     the elements of a file as they are stored
frames       the pixels of a file, frame by frame: items, lengths, byte order
codecs       a decoder for each transfer syntax
stored       what any decoder returns -> stored values
lossless     differences of lossless JPEG that were taken modulo 2^P
run_lengths  run-length coding
tables       lookup tables
voi          stored values -> grey levels
grey         a film -> 8-bit grey
"""
