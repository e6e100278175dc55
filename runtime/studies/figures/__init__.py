"""The drawings of studies, in the style of a report's figures: a file for each study that has some."""
