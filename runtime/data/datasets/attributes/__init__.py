"""What is known of a case beyond its findings, such as view, sex and age: read when a study of subgroups asks for it.

values            the words of files -> values under one name each
attribute_tables  tables in CSV: a user's own, NIH's entry file, CheXpert's labels
headers           the headers of DICOM images
lookup            all cases of a dataset, from one source
"""
