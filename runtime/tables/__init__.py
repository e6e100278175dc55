"""One model of a table, and one writer per format."""
