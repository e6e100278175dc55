"""The numbers of stored results: of a class, a cell and a model, with their intervals and bootstrap replicates."""
