"""Image files -> grey pixels -> model input; regions are not handled here.

decode          a file -> native grey, by the type of its content; decoding in advance in threads
png_jpeg        PNG and JPEG: headers and pixels
kinds           the kind of a file by its first bytes
dicom/          DICOM: elements, frames of every transfer syntax, and what maps them to 8 bits
size            the native size, from the header alone
orientation     the EXIF orientation, from the header alone; no pixel is turned
other_kinds     the name of a kind of file that is not read
resizing        native grey -> model input, and the part of the image that it covers
intensity       BioViL's stretching of values; the histogram equalisation of MedKLIP's and MAVL's RSNA scripts
area            area averaging as OpenCV defines it
decoders        which decoder is used: the exact one, or DALI on a GPU
dali            decoding on the GPU
decoder_checks  whether the decoders of this machine work
samples         a small DICOM file in each transfer syntax
"""
